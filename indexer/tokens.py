"""The book of tokens: what their contracts said once, and the chain's token list. Asked once, then kept in the lake."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.contracts import Token
from chainfolio.tables import TOKENS

if TYPE_CHECKING:
    from adapters.evm.facts import Facts
    from storage.lake import Lake


class TokenBook:
    """The tokens of one chain, each asked once."""

    def __init__(self, facts: Facts, lake: Lake, listed: Mapping[str, Token]) -> None:
        self._facts, self._lake, self.listed = facts, lake, dict(listed)
        self._known: dict[str, Token] | None = None

    def known(self, contracts: Sequence[str]) -> dict[str, Token]:
        """Those of some contracts that need not be asked."""
        if self._known is None:
            self._known = {**self._stored(), **self.listed}
        return {contract: self._known[contract] for contract in contracts if contract in self._known}

    def _stored(self) -> dict[str, Token]:
        import polars as pl

        if not self._lake.exists(TOKENS):
            return {}
        rows = self._lake.scan(TOKENS, chain=self._facts.key).filter(pl.col("decimals").is_not_null()).collect()
        return {
            row["token"]: Token(self._asset(row["token"]), row["symbol"] or "", row["name"] or "", row["decimals"])
            for row in rows.iter_rows(named=True)
        }

    def _asset(self, contract: str) -> Asset:
        return self._facts.token_asset(contract)

    def learn(self, tokens: Mapping[str, Token], height: int) -> None:
        """Keep what contracts said; one that gave no decimals is asked again next time."""
        import pyarrow as pa

        # Another process may keep tokens too. Its number comes before its rows, so that two of one number are seen.
        stream, table = f"{self._facts.key}/tokens", TOKENS
        last = self._lake.last(table, stream)
        self._known = {**self._stored(), **self.listed}
        fresh = {c: token for c, token in tokens.items() if token.decimals is not None and c not in self._known}
        if not fresh:
            return
        rows = [
            {"chain": self._facts.key, "token": c, "symbol": t.symbol, "name": t.name, "decimals": t.decimals}
            for c, t in sorted(fresh.items())
        ]
        content = pa.Table.from_pylist([row | {"height": height} for row in rows], schema=table.schema())
        if self._lake.append(table, content, stream=stream, batch=last + 1):
            self._known |= fresh


def token_list(path: Path, facts: Facts) -> dict[str, Token]:
    """The tokens of `configs/tokens/<chain>.toml` or, where there is no such file, of the `.csv` of that name."""
    if not path.exists():
        rows = path.with_suffix(".csv")
        return _rows(rows, facts) if rows.exists() else {}
    return {
        row["address"]: Token(facts.token_asset(row["address"]), row["symbol"], row["symbol"], row["decimals"])
        for row in tomllib.loads(path.read_text())["tokens"]
    }


def _rows(path: Path, facts: Facts) -> dict[str, Token]:
    """The tokens of a list with a line for each."""
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["address"]: Token(facts.token_asset(row["address"]), row["symbol"], row["name"], int(row["decimals"]))
            for row in csv.DictReader(file)
        }


def token_images(path: Path, facts: Facts) -> dict[str, dict[str, str]]:
    """The pictures of the tokens of `configs/tokens/<chain>.toml`, and of the native coin at the zero address."""
    rows = tomllib.loads(path.read_text())["tokens"] if path.exists() else []
    found = {row["address"]: row["images"] for row in rows if "images" in row}
    return found | ({ZERO_ADDRESS: facts.native.images} if facts.native.images else {})
