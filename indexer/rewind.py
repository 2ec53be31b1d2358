"""What was indexed is forgotten, from a height on or at the heights of damaged files; whether the past still stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from chainfolio.chains import hash_at
from chainfolio.errors import BadRequest, DeepReorg
from chainfolio.tables import TABLES
from indexer.consistency import newest_batch
from indexer.scopes import NO_END

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.lake import Lake
    from storage.tail import Tail

REWIND = ("rewind",)
REPAIR = ("repair",)


def rewind(lake: Lake, tail: Tail, chain: str, height: int) -> int:
    """Forget everything from a height on, or from lower where a killed run left a batch half-way; from which height.

    The caller holds the chain's lock. It is written down before it is begun: a killed one is finished by the next run.
    """
    first = min([height, *(batch.span.first for batch in tail.open_batches(chain))])
    tail.open_batch(chain, Span(first, NO_END), REWIND, after=newest_batch(lake, chain))
    finish_rewind(lake, tail, chain)
    return first


def finish_rewind(lake: Lake, tail: Tail, chain: str) -> None:
    """Carry out a rewind that was begun; nothing where none was."""
    begun = [batch.span.first for batch in tail.open_batches(chain) if batch.datasets == REWIND]
    if begun:
        lake.forget(chain, Span(min(begun), NO_END))
        tail.rewind(chain, min(begun) - 1, None)


def finish_forgetting(lake: Lake, tail: Tail, chain: str) -> None:
    """Forget the rows of repairs that were begun: those of all tables that follow the indexed ranges, but for the
    histories that the intent spares, for they are damaged too and made again as a whole."""
    for batch in tail.open_batches(chain):
        if batch.datasets == REPAIR:
            spared = {*batch.filters, "balances", "allowances", "tokens", "prices"}
            lake.forget(chain, batch.span, [table for table in TABLES.values() if table.name not in spared])
            tail.forget(batch)


async def check_anchor(chain: Chain, tail: Tail) -> None:
    """The last final block we keep must still be on the node's chain: DeepReorg where it is not."""
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return
    theirs = await hash_at(chain, anchor.height)
    if theirs != anchor.hash:
        raise DeepReorg(chain.key, anchor.height, anchor.hash, theirs)


def check_span(chain: str, first: int, last: int, finalized: int) -> Span:
    """The span a user asked for, within what is final."""
    if first < 0:
        raise BadRequest("from", "a block height is at least 0")
    if first > finalized:
        raise BadRequest("from", f"block {first} is not final yet on {chain}: the newest final block is {finalized}")
    if first > last:
        raise BadRequest("to", f"{last} is before {first}")
    return Span(first, min(last, finalized))
