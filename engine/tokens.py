"""The book of tokens: the chain's token list, its token registry, and what contracts say of themselves, by block.

What a contract says of itself holds for the block at which it was asked, for it may change its name and its decimals:
nothing that was said at one block is shown in an answer about another. Only the token list holds for all blocks. What
was seen before serves to ask in time: together with the balances.
"""

from __future__ import annotations

import threading
import tomllib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Token
from chainfolio.tables import TOKENS
from engine.token_registry import FAMOUS, KNOWN, TokenRegistry
from portfolio.spam import Originals

if TYPE_CHECKING:
    from chainfolio.chains import ChainInfo
    from storage.lake import Lake

KEPT_BLOCKS: Final = 4
KEPT_ACCOUNTS: Final = 4096

K = TypeVar("K")
V = TypeVar("V")


class TokenBook:
    """The tokens of one chain. Without a `lake`, what contracts say is not kept."""

    def __init__(
        self, chain: str, lake: Lake | None, listed: Mapping[Asset, Token], registry: TokenRegistry | None = None
    ) -> None:
        self._chain, self._lake, self.listed, self.registry = chain, lake, dict(listed), registry
        self._seen: set[str] | None = None
        self._learning = threading.Lock()
        self._at: OrderedDict[str, dict[Asset, Token]] = OrderedDict()
        self._named: OrderedDict[str, frozenset[Asset]] = OrderedDict()

    def is_trusted(self, asset: Asset) -> bool:
        """Whether a token is taken for what it says: it is on the chain's list, or enough public lists name it."""
        return asset in self.listed or (self.registry is not None and self.registry.lists(asset) >= KNOWN)

    @cached_property
    def originals(self) -> Originals:
        """The tokens that others pretend to be: those of the chain's list, and those that most public lists name."""
        famous = self.registry.tokens(FAMOUS) if self.registry is not None else ()
        return Originals.of((each.asset, each.symbol, each.name) for each in (*self.listed.values(), *famous))

    def known(self, assets: Collection[Asset], block: Block) -> dict[Asset, Token]:
        """Those of some tokens that need not be asked at a block."""
        told = self._at.get(block.hash, {})
        return {each: known for each in assets if (known := self.listed.get(each) or told.get(each)) is not None}

    def learn(self, tokens: Mapping[Asset, Token], block: Block) -> None:
        """Keep for a block what contracts said there; one that gave no decimals is asked again."""
        told = {asset: token for asset, token in tokens.items() if token.decimals is not None}
        with self._learning:  # blocks are read in several threads
            _put(self._at, block.hash, self._at.get(block.hash, {}) | told, KEPT_BLOCKS)
            self._record(told, block.height)

    # --- what will be asked ------------------------------------------------------------------------------------------

    def expected(self, account: str, met: Collection[Asset]) -> set[Asset]:
        """The tokens that a snapshot of an account will name: those of its last one, and what it met of those seen."""
        seen = self.seen
        return {asset for asset in met if asset.reference in seen} | self._named.get(account, frozenset())

    def named(self, account: str, assets: Collection[Asset]) -> None:
        """A snapshot of an account has named these tokens."""
        _put(self._named, account, frozenset(assets), KEPT_ACCOUNTS)

    @property
    def seen(self) -> set[str]:
        """The contracts that ever said what they are."""
        if self._seen is None:
            self._seen = self._stored()
        return self._seen

    def stored(self, assets: Collection[Asset]) -> dict[Asset, Token]:
        """Return what is known of some tokens without a node: lists, and what contracts said when they were first read.
        Tokens of which nothing is known have no symbol and no decimals."""
        known = {each: self.listed.get(each) or Token(each, "", "", None) for each in assets}
        if self._lake is None or not self._lake.exists(TOKENS):
            return known
        by_contract = {each.reference: each for each in assets if each not in self.listed}
        rows = self._lake.scan(TOKENS, chain=self._chain).collect()
        for row in rows.iter_rows(named=True):
            if (each := by_contract.get(row["token"])) is not None:
                known[each] = Token(each, row["symbol"], row["name"], row["decimals"])
        return known

    def _stored(self) -> set[str]:
        if self._lake is None or not self._lake.exists(TOKENS):
            return set()
        return set(self._lake.scan(TOKENS, chain=self._chain).select("token").collect()["token"])

    def _record(self, told: Mapping[Asset, Token], height: int) -> None:
        """A row for each token that was never seen before, with the height at which it said so."""
        import pyarrow as pa

        by_contract = {asset.reference: token for asset, token in told.items()}
        if self._lake is None or by_contract.keys() <= self.seen:
            return
        # Another process may keep tokens too. Its number comes before its rows, so that two of one number are seen.
        stream, table = f"{self._chain}/tokens", TOKENS
        last = self._lake.last(table, stream)
        self._seen = self._stored()
        rows = [
            {"chain": self._chain, "token": c, "symbol": t.symbol, "name": t.name, "decimals": t.decimals}
            for c, t in sorted(by_contract.items())
            if c not in self._seen
        ]
        if not rows:
            return
        content = pa.Table.from_pylist([row | {"height": height} for row in rows], schema=table.schema())
        if self._lake.append(table, content, stream=stream, batch=last + 1):
            self._seen |= by_contract.keys()


def _put(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value, and let go of the oldest where there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def token_list(path: Path, info: ChainInfo) -> dict[Asset, Token]:
    """The chain's token list: `configs/tokens/<chain>.toml` or, where there is no such file, the tokens of the registry
    that are taken for what they say."""
    if not path.exists():
        registry = TokenRegistry(path.with_suffix(".csv"), info)
        return {token.asset: token for token in registry.tokens(KNOWN)}
    listed = (
        Token(info.token_asset(row["address"]), row["symbol"], row.get("name", row["symbol"]), row["decimals"])
        for row in tomllib.loads(path.read_text())["tokens"]
    )
    return {token.asset: token for token in listed}


def token_images(path: Path, info: ChainInfo) -> dict[Asset, dict[str, str]]:
    """The pictures of the tokens of `configs/tokens/<chain>.toml`, and of the native coin."""
    rows = tomllib.loads(path.read_text())["tokens"] if path.exists() else []
    found = {info.token_asset(row["address"]): row["images"] for row in rows if "images" in row}
    return found | ({info.native.asset: dict(info.native_images)} if info.native_images else {})
