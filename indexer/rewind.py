"""Delete indexed data from a height on, or at the heights of damaged files; check the anchor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from chainfolio.chain_blocks import hash_at
from chainfolio.errors import BadRequest, DeepReorg
from chainfolio.indexer.consistency import newest_batch
from chainfolio.indexer.scopes import NO_END
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

REWIND = ("rewind",)
REPAIR = ("repair",)


def rewind(lake: Lake, tail: Tail, chain: str, height: int) -> int:
    """Delete everything from a height on. The caller holds the chain's lock.

    The intent is stored first, so the next run finishes a rewind that was killed.

    Returns:
        The first deleted height, which is lower if a killed run left an open batch below.
    """
    first = min([height, *(batch.span.first for batch in tail.open_batches(chain))])
    tail.open_batch(chain, Span(first, NO_END), REWIND, after=newest_batch(lake, chain))
    finish_rewind(lake, tail, chain)
    return first


def finish_rewind(lake: Lake, tail: Tail, chain: str) -> None:
    """Finish a rewind that was started. Does nothing if there is none."""
    starts = [batch.span.first for batch in tail.open_batches(chain) if batch.datasets == REWIND]
    if starts:
        lake.delete_span(chain, Span(min(starts), NO_END))
        tail.rewind(chain, min(starts) - 1, None)


def finish_deletions(lake: Lake, tail: Tail, chain: str) -> None:
    """Delete the rows of repairs that were started, from all tables that follow the indexed ranges.

    Histories named by the intent are kept: they are damaged too, and are rebuilt as a whole.
    """
    for batch in tail.open_batches(chain):
        if batch.datasets == REPAIR:
            kept_tables = {*batch.filters, "balances", "allowances", "tokens", "prices"}
            lake.delete_span(chain, batch.span, [table for table in TABLES.values() if table.name not in kept_tables])
            tail.forget_batch(batch)


async def check_anchor(chain: Chain, tail: Tail) -> None:
    """Check that the last final block of the tail is on the node's chain.

    Raises:
        DeepReorg: It is not.
    """
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return
    theirs = await hash_at(chain, anchor.height)
    if theirs != anchor.hash:
        raise DeepReorg(chain.key, anchor.height, anchor.hash, theirs)


def check_span(chain: str, first: int, last: int, finalized: int) -> Span:
    """Return the span that a user requested, limited to final blocks.

    Raises:
        BadRequest: The span is empty, negative, or above the final blocks.
    """
    if first < 0:
        raise BadRequest("from", "a block height is at least 0")
    if first > finalized:
        raise BadRequest("from", f"block {first} is not final yet on {chain}: the newest final block is {finalized}")
    if first > last:
        raise BadRequest("to", f"{last} is before {first}")
    return Span(first, min(last, finalized))
