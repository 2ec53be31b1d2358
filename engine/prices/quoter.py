"""Names and prices of tokens at the heads of chains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.blocks import Block
from chainfolio.contracts import Issue, QuotedTokens, Token
from chainfolio.errors import SourceError

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.parts import Chains


log = logging.getLogger("chainfolio.engine")


@dataclass(frozen=True, slots=True)
class Quoter:
    """Quotes tokens of any configured chain.

    Attributes:
        snapshotter_of: Returns the snapshotter of a chain.
        budget: Limits the time for one chain.
    """

    system: Chains
    snapshotter_of: Callable[[Chain], Snapshotter]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]

    async def quotes(self, contracts_by_chain: Mapping[str, Sequence[str]]) -> dict[str, QuotedTokens]:
        """Return tokens and current prices by chain; chains that are not configured are left out.

        A chain that cannot be read has an issue, and its tokens have no prices.
        """
        keys = [key for key in contracts_by_chain if key in self.system.settings.chains]
        quotes = await asyncio.gather(*(self._quote(key, contracts_by_chain[key]) for key in keys))
        return dict(zip(keys, quotes, strict=True))

    async def _quote(self, key: str, contracts: Sequence[str]) -> QuotedTokens:
        """Return the prices of contracts on a chain.

        If the chain cannot be read, which is logged, there are no prices, an issue, and a block of height 0.
        """
        chain = self.system.chain(key)
        reader, assets = self.snapshotter_of(chain), [chain.info.token_asset(contract) for contract in contracts]
        try:
            async with self.budget(chain):
                return await reader.quote(assets)
        except SourceError as error:
            log.warning("%s could not be read: %s", key, error.message)
            issue = Issue(key, key, f"the chain could not be read: {error.reason}")
            block = Block(0, "", "", self.system.environment.clock.now_us())
            nameless = {asset: Token(asset, "", "", None) for asset in assets}
            tokens = nameless | reader.book.described_at(assets, block) | {reader.native.asset: reader.native}
            return QuotedTokens(block, tokens, {}, (issue,))
