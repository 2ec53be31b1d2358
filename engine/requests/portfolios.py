"""Portfolios of accounts now or at a block, and the prices that a process leaves in the tail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.engine.named_accounts import pinned_chain
from chainfolio.errors import StoreError

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.service import Engine
    from chainfolio.indexer.parts import IndexedChains
    from chainfolio.portfolio.document import Portfolio
    from chainfolio.portfolio.facts import Options

log = logging.getLogger("chainfolio.prices")


async def portfolios(
    engine: Engine, accounts: Sequence[Account], chain: str | None, block: int | None, options: Options
) -> list[Portfolio]:
    """Return one portfolio per account: over all chains now, or of one chain at a block (None: its head).

    With `chain` or `block`, the chain is read anew. Without `chain`, a block needs accounts of one chain.

    Raises:
        BadRequest: Several chains fit the accounts, none does, or the block is above the head.
        NotSupported: No chain of the kind of any account is configured.
        SourceError: No chain could be read.
    """
    if block is None and chain is None:
        return await engine.portfolios(accounts, options, wait=True, wallet_only=False)
    key = pinned_chain(engine.system, chain, block, accounts)
    if block is None:
        head = (await engine.system.chain(key).heads()).latest
        return await engine.at_pinned(accounts, key, head, options, past=False)
    return await engine.at_block(accounts, key, block, options)


def settle_prices(system: IndexedChains) -> None:
    """Move the stored prices of final blocks to the lake, as a server may never run to do it.

    A store that fails is only logged; nothing is done if the system keeps nothing.
    """
    keys = [] if system.keeps_nothing else [chain.key for chain in system.used_chains]
    for key in keys:
        if system.tail.has_prices(key):
            from chainfolio.engine.stored_prices.store import PriceStore

            try:
                PriceStore(key, system.lake, system.tail).settle_final()
            except StoreError as error:  # the prices stay in the tail, and the response is complete
                log.warning("%s: prices were not moved to the lake: %s", key, error.message)
