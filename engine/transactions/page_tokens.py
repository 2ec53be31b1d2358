"""Tokens of the activities of an answer, and those that are spam."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Token
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.transactions.activities import MovedTokens

STORED: Final = (
    "the node does not answer: names and decimals of tokens are those that were stored, and none is checked for spam"
)


@dataclass(slots=True)
class PageTokens:
    """The tokens of one chain in an answer.

    Attributes:
        block: Tokens are judged as a portfolio at this block would judge them.
        tokens: Names and decimals, by asset.
        spam: Tokens that are spam, each with its account. Listed tokens never are.
    """

    snapshotter: Snapshotter
    block: Block
    tokens: dict[Asset, Token] = field(default_factory=dict)
    spam: set[tuple[str, Asset]] = field(default_factory=set)
    _judged: set[tuple[str, Asset]] = field(default_factory=set)
    _balances: dict[tuple[str, Asset], Any] = field(default_factory=dict)

    async def add(self, moved: MovedTokens) -> None:
        """Describe tokens, and judge those that moved.

        Listed tokens are described by the list, others by their state at `block`.

        Nothing is read if all tokens are listed, or were added before.

        Raises:
            SourceError: The chain could not be read.
        """
        listed, assets = self.snapshotter.book.listed, moved.assets
        self.tokens |= {asset: listed[asset] for asset in assets & listed.keys()}
        if assets <= listed.keys() or (moved.pairs <= self._judged and assets <= self.tokens.keys()):
            return
        described, spam = await self.snapshotter.judge(moved.pairs, assets - listed.keys(), self.block, self._balances)
        self.tokens |= described
        self.spam |= spam.keys()
        self._judged |= moved.pairs

    async def add_stored(self, assets: Set[Asset]) -> Issue | None:
        """Add the stored names and decimals of tokens; none of them is taken for spam.

        Return an issue if some are not on a list.
        """
        new, book = assets - self.tokens.keys(), self.snapshotter.book
        self.tokens |= await asyncio.to_thread(book.stored, new)
        return None if new <= book.listed.keys() else Issue(self.snapshotter.chain.key, "tokens", STORED)
