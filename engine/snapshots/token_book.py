"""Token book: the chain's token list, its token registry, and descriptions by contracts, by block.

A contract may change its name and decimals. So a description is valid for the block at which it was read, and an answer
about one block never shows a description from another; only the token list is valid for all blocks. Earlier
descriptions tell which tokens to prefetch together with the balances.
"""

from __future__ import annotations

import threading
import tomllib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Token
from chainfolio.engine.snapshots.token_registry import MIN_FAMOUS_LISTS, MIN_TRUSTED_LISTS, TokenRegistry
from chainfolio.portfolio.spam import KnownTokens
from chainfolio.tables import TOKENS

if TYPE_CHECKING:
    from chainfolio.chain_results import ChainInfo
    from chainfolio.storage.lake import Lake

MAX_BLOCKS: Final = 4
MAX_ACCOUNTS: Final = 4096
MAX_SEEN: Final = 200_000  # contracts whose description is known to be stored

K = TypeVar("K")
V = TypeVar("V")


class TokenBook:
    """The tokens of one chain. Without a `lake`, descriptions are not stored."""

    def __init__(
        self, chain: str, lake: Lake | None, listed: Mapping[Asset, Token], registry: TokenRegistry | None = None
    ) -> None:
        """Prepare an empty cache of descriptions. `listed` tokens have theirs from files."""
        self._chain, self._lake, self.listed, self.registry = chain, lake, dict(listed), registry
        self._seen_contracts: OrderedDict[str, None] | None = None
        self._write_lock = threading.Lock()
        self._described_at: OrderedDict[str, dict[Asset, Token]] = OrderedDict()
        self._tokens_of_account: OrderedDict[str, frozenset[Asset]] = OrderedDict()

    def is_trusted(self, asset: Asset) -> bool:
        """Return True if the token's name is trusted: it is on the chain's list, or on enough public lists."""
        return asset in self.listed or (
            self.registry is not None and self.registry.list_count(asset) >= MIN_TRUSTED_LISTS
        )

    @cached_property
    def originals(self) -> KnownTokens:
        """The tokens that others imitate: those of the chain's list, and those on most public lists."""
        famous = self.registry.tokens(MIN_FAMOUS_LISTS) if self.registry is not None else ()
        return KnownTokens.of((each.asset, each.symbol, each.name) for each in (*self.listed.values(), *famous))

    def described_at(self, assets: Collection[Asset], block: Block) -> dict[Asset, Token]:
        """Return the tokens whose description at the block is known without a read."""
        described = self._described_at.get(block.hash, {})
        return {each: token for each in assets if (token := self.listed.get(each) or described.get(each)) is not None}

    def add(self, tokens: Mapping[Asset, Token], block: Block) -> None:
        """Remember descriptions that contracts gave at a block, and store new tokens.

        A token without decimals is not remembered, so that it is read again.
        """
        described = {asset: token for asset, token in tokens.items() if token.decimals is not None}
        with self._write_lock:  # blocks are read in several threads
            _put(self._described_at, block.hash, self._described_at.get(block.hash, {}) | described, MAX_BLOCKS)
            self._record(described, block.height)

    # --- what will be asked ------------------------------------------------------------------------------------------

    def expected(self, account: str, assets: Collection[Asset]) -> set[Asset]:
        """Return the tokens that a snapshot of an account will probably name.

        They are those of its last snapshot, and those of `assets` that were described before.
        """
        seen_contracts = self.seen_contracts
        return {asset for asset in assets if asset.reference in seen_contracts} | self._tokens_of_account.get(
            account, frozenset()
        )

    def set_account_tokens(self, account: str, assets: Collection[Asset]) -> None:
        """Remember the tokens that a snapshot of an account contains."""
        _put(self._tokens_of_account, account, frozenset(assets), MAX_ACCOUNTS)

    def little_known_issues(self, pairs: Iterable[tuple[str, Asset]], priced: Set[Asset]) -> Iterator[Issue]:
        """Yield an issue for each held token that only few public lists name and that has no price.

        Args:
            pairs: Accounts and tokens that they hold.
            priced: The assets that have a price.
        """
        for account, asset in pairs:
            lists = self.registry.list_count(asset) if self.registry else 0
            if lists and asset not in priced and not self.is_trusted(asset):
                reason = f"only {lists} public lists name this token and it has no price: it is in no sum"
                yield Issue("registry", asset.reference, reason, makes_partial=False, account=account)

    @property
    def seen_contracts(self) -> Set[str]:
        """Contracts that were described at any block, loaded from the lake at first use; at most `MAX_SEEN`."""
        return self._seen().keys()

    @property
    def seen_count(self) -> int:
        """Number of such contracts in memory; nothing is loaded."""
        return len(self._seen_contracts or ())

    def _seen(self) -> OrderedDict[str, None]:
        if self._seen_contracts is None:
            self._seen_contracts = OrderedDict.fromkeys(self._stored())
        return self._seen_contracts

    def stored(self, assets: Collection[Asset]) -> dict[Asset, Token]:
        """Return tokens without asking a node: as on the list, else as they were first described.

        Every asset has an entry; unknown tokens have no symbol and no decimals.
        """
        tokens = {each: self.listed.get(each) or Token(each, "", "", None) for each in assets}
        if self._lake is None or not self._lake.exists(TOKENS):
            return tokens
        by_contract = {each.reference: each for each in assets if each not in self.listed}
        rows = self._lake.scan(TOKENS, chain=self._chain).collect()
        for row in rows.iter_rows(named=True):
            if (each := by_contract.get(row["token"])) is not None:
                tokens[each] = Token(each, row["symbol"], row["name"], row["decimals"])
        return tokens

    def _stored(self, contracts: Collection[str] | None = None) -> list[str]:
        """Return those of `contracts` that are stored, or the last MAX_SEEN stored ones; [] without a lake."""
        import polars as pl

        if self._lake is None or not self._lake.exists(TOKENS):
            return []
        tokens = self._lake.scan(TOKENS, chain=self._chain).select("token")
        chosen = tokens.tail(MAX_SEEN) if contracts is None else tokens.filter(pl.col("token").is_in(list(contracts)))
        return chosen.collect()["token"].to_list()

    def _record(self, described: Mapping[Asset, Token], height: int) -> None:
        """Store one row for each token that is not stored yet, with the height of its description.

        Nothing is stored without a lake, or if another process stored tokens at the same time: the next call tries
        again.
        """
        import pyarrow as pa

        by_contract = {asset.reference: token for asset, token in described.items()}
        if self._lake is None or by_contract.keys() <= self.seen_contracts:
            return
        # Another process may keep tokens too. Its number comes before its rows, so that two of one number are seen.
        stream, table = f"{self._chain}/tokens", TOKENS
        last = self._lake.last(table, stream)
        stored = set(self._stored(by_contract))
        rows = [
            {"chain": self._chain, "token": c, "symbol": t.symbol, "name": t.name, "decimals": t.decimals}
            for c, t in sorted(by_contract.items())
            if c not in stored
        ]
        for contract in stored:
            _put(self._seen(), contract, None, MAX_SEEN)
        if not rows:
            return
        content = pa.Table.from_pylist([row | {"height": height} for row in rows], schema=table.schema())
        if self._lake.append(table, content, stream=stream, batch=last + 1):
            for contract in by_contract:
                _put(self._seen(), contract, None, MAX_SEEN)


def _put(entries: OrderedDict[K, V], key: K, value: V, max_entries: int) -> None:
    """Set an entry, and evict the oldest ones above the limit."""
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > max_entries:
        entries.popitem(last=False)


def token_list(path: Path, info: ChainInfo) -> dict[Asset, Token]:
    """Return the tokens of `configs/tokens/<chain>.toml`, else the trusted tokens of the registry.

    Those are on at least MIN_TRUSTED_LISTS lists.
    """
    if not path.exists():
        registry = TokenRegistry(path.with_suffix(".csv"), info)
        return {token.asset: token for token in registry.tokens(MIN_TRUSTED_LISTS)}
    tokens = (
        Token(info.token_asset(row["address"]), row["symbol"], row.get("name", row["symbol"]), row["decimals"])
        for row in tomllib.loads(path.read_text())["tokens"]
    )
    return {token.asset: token for token in tokens}


def token_images(path: Path, info: ChainInfo) -> dict[Asset, dict[str, str]]:
    """Return the images of the tokens of `configs/tokens/<chain>.toml`, and of the native coin."""
    rows = tomllib.loads(path.read_text())["tokens"] if path.exists() else []
    images = {info.token_asset(row["address"]): row["images"] for row in rows if "images" in row}
    return images | ({info.native.asset: dict(info.native_images)} if info.native_images else {})
