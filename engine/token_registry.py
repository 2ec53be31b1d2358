"""The token registry of one chain: the tokens that public lists name, with the number of lists that name each.

The file has thousands of lines and most of them are never looked at, so a line is read when its token is asked for.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from chainfolio.assets import Asset
from chainfolio.chains import ChainInfo
from chainfolio.contracts import Token
from chainfolio.errors import BadSettings

HEADER: Final = "address,lists,decimals,symbol,name"
KNOWN: Final = 3  # lists that name a token which is taken for what it says
FAMOUS: Final = 8  # lists that name a token which others pretend to be


class TokenRegistry:
    """The tokens of `configs/tokens/<chain>.csv`, those that most lists name first; none where there is no file."""

    def __init__(self, path: Path, info: ChainInfo) -> None:
        self._path, self._info = path, info

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def _lines(self) -> list[str]:
        if not self._path.exists():
            return []
        header, *lines = self._path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        if header != HEADER:
            raise BadSettings(self._path.name, f"the first line is not `{HEADER}`")
        return lines

    @cached_property
    def _by_contract(self) -> dict[str, str]:
        return {line.partition(",")[0]: line for line in self._lines}

    def lists(self, asset: Asset) -> int:
        """How many lists name a token; 0 where none does."""
        line = self._by_contract.get(asset.reference)
        return 0 if line is None else self._count(line)

    def named_by(self, lists: int) -> list[Asset]:
        """The tokens that at least so many lists name."""
        asset = self._info.token_asset
        return [asset(line.partition(",")[0]) for line in self._from(lists)]

    def tokens(self, lists: int) -> Iterator[Token]:
        """The same with the symbol, the name and the decimals that the lists give."""
        for address, _, decimals, symbol, name in csv.reader(self._from(lists)):
            yield Token(self._info.token_asset(address), symbol, name or symbol, int(decimals))

    def _from(self, lists: int) -> list[str]:
        """The first lines, up to those that fewer lists name."""
        return self._lines[: bisect_right(self._lines, -lists, key=lambda line: -self._count(line))]

    def _count(self, line: str) -> int:
        count = line.partition(",")[2].partition(",")[0]
        if not count.isdigit():
            raise BadSettings(self._path.name, f"`{line[:80]}` does not say how many lists name the token")
        return int(count)
