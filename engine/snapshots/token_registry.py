"""Token registry of one chain: the tokens on public lists, with the number of lists that name each.

The file has thousands of lines and most are never needed, so a line is parsed when its token is requested.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from chainfolio.assets import Asset
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Token
from chainfolio.errors import BadSettings

HEADER: Final = "address,lists,decimals,symbol,name"
MIN_TRUSTED_LISTS: Final = 3  # lists that name a token which is taken for what it says
MIN_FAMOUS_LISTS: Final = 8  # lists that name a token which others pretend to be


class TokenRegistry:
    """The tokens of `configs/tokens/<chain>.csv`, most listed first; empty if the file does not exist."""

    def __init__(self, path: Path, info: ChainInfo) -> None:
        self._path, self._info = path, info

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def _lines(self) -> list[str]:
        """The lines of the file without its header, read once; BadSettings for another header."""
        if not self._path.exists():
            return []
        header, *lines = self._path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        if header != HEADER:
            raise BadSettings(self._path.name, f"the first line is not `{HEADER}`")
        return lines

    @cached_property
    def _by_contract(self) -> dict[str, str]:
        return {line.partition(",")[0]: line for line in self._lines}

    def list_count(self, asset: Asset) -> int:
        """Return the number of lists that name a token, 0 if none does.

        Raises:
          BadSettings: The file is malformed.
        """
        line = self._by_contract.get(asset.reference)
        return 0 if line is None else self._count(line)

    def assets_on(self, lists: int) -> list[Asset]:
        """Return the tokens on at least `lists` public lists, most listed first; BadSettings for a bad file."""
        asset = self._info.token_asset
        return [asset(line.partition(",")[0]) for line in self._lines_on(lists)]

    def tokens(self, lists: int) -> Iterator[Token]:
        """Yield the tokens on at least `lists` lists, most listed first, with symbol, name and decimals.

        Raises:
            BadSettings: The file is malformed.
        """
        for address, _, decimals, symbol, name in csv.reader(self._lines_on(lists)):
            yield Token(self._info.token_asset(address), symbol, name or symbol, int(decimals))

    def _lines_on(self, lists: int) -> list[str]:
        """Return the lines of tokens on at least `lists` lists; the file is sorted by that number."""
        return self._lines[: bisect_right(self._lines, -lists, key=lambda line: -self._count(line))]

    def _count(self, line: str) -> int:
        count = line.partition(",")[2].partition(",")[0]
        if not count.isdigit():
            raise BadSettings(self._path.name, f"`{line[:80]}` does not say how many lists name the token")
        return int(count)
