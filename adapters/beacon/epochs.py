"""An epoch once it is settled: everything that is read of it, its changes of stake, and its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from chainfolio.adapters.beacon import accounting, correlation, proposers
from chainfolio.adapters.beacon.accounting import Balances, Change, Closing, Duties, Slot
from chainfolio.adapters.beacon.answers import PendingDeposit
from chainfolio.adapters.beacon.reader import Reader, gathered
from chainfolio.adapters.beacon.states import Held, States
from chainfolio.errors import BadAnswer

PAID_AFTER: Final = 2  # epochs
SETTLED_AFTER: Final = 3  # when the balances of the epoch in which they were paid are known, too
Deposits = list[PendingDeposit]
COUNTED: Final = (
    "source",
    "target",
    "head",
    "inactivity",
    "sync",
    "sync_hits",
    "sync_misses",
    "proposals",
    "proposed",
    "slashing",
    "unexplained",
)


AT_ONCE: Final = 4  # epochs that are read of some validators


@dataclass(frozen=True, slots=True)
class Settled:
    """An epoch that the block of the slot `height` settled: the columns of its rewards, its changes of stake, and the
    registry at its end."""

    number: int
    height: int
    columns: dict[str, Any]
    changes: tuple[Change, ...]
    at: States


async def settled_in_turn(reader: Reader, wanted: Sequence[tuple[int, int]]) -> AsyncIterator[list[Settled]]:
    """Epochs in their order, each with the slot whose block settles it. Several are read at once where each is little:
    not of a whole network, and not where what nodes do not say has to be computed of one."""
    left = list(wanted)
    while left:
        count = AT_ONCE if reader.wanted is not None and reader.is_told else 1
        some, left = left[:count], left[count:]
        if count > 1:
            await _read_ahead(reader, some[0][0], some[-1][0])
        yield await gathered(settled(reader, *each) for each in some)


async def _read_ahead(reader: Reader, first: int, last: int) -> None:
    """Ask at once for all that some epochs rest on, which each of them needs one after the other."""
    end, asks = last + PAID_AFTER + 1, list[Coroutine[Any, Any, object]]()
    asks += [reader.states(number) for number in range(max(0, first - 1), end)]
    asks += [gathered_slots(reader, number) for number in range(first, end)]
    asks += [reader.attestations(number) for number in range(max(0, first - PAID_AFTER), last + 1)]
    asks += [reader.duties(number) for number in range(first, last + 1)]
    await gathered(asks)


async def settled(reader: Reader, number: int, height: int) -> Settled:
    """An epoch whose attestations were paid before the block at a slot. BadAnswer where a node leaves somebody out who
    had duties."""
    # These two registries are needed whole; of the epochs around them balances do.
    at, after = await gathered([reader.states(number), reader.states(number + 1)])
    own, later = await gathered([closing(reader, number), closing(reader, number + PAID_AFTER)])
    ideal, attested = await reader.attestations(number)
    duties = Duties(
        number,
        at,
        after,
        ideal,
        attested,
        await gathered_slots(reader, number),
        await reader.seats(number),
        await _proposers(reader, number),
    )
    columns = accounting.rows(duties, own, later, height)
    silent = columns["on_duty"] & ~columns["is_told"]
    if silent.any():
        missing = int(at.index[np.flatnonzero(silent)[0]])
        raise BadAnswer(reader.nodes.key, f"no rewards of validator {missing} for epoch {number}, though it had duties")
    keep = columns.pop("on_duty") | sum(columns[name] != 0 for name in COUNTED).astype(bool)
    columns.pop("is_told")
    found = {name: _kept(values, keep) for name, values in columns.items()}
    reader.settled(number)
    return Settled(number, height, found, own.changes, at)


async def _proposers(reader: Reader, number: int) -> Mapping[int, int] | None:
    """Who was to propose in the slots of an epoch without a block, as the node says or by the rules. None where the
    node does not say it and the whole registry is not read, or where the rules contradict a block."""
    if (told := await reader.duties(number)) is not None:
        return told
    spec, blocks = reader.spec, {each.block.slot: each.block for each in await gathered_slots(reader, number)}
    slots = range(max(1, number * spec.slots), reader.end(number) + 1)
    if blocks.keys() >= set(slots):
        return {}
    if (everybody := reader.of_everybody) is None:
        return None
    mix = await everybody.mix(proposers.mix_epoch(spec, number), number)
    if mix is None:
        return None
    registry = await everybody.states(proposers.state_epoch(spec, number))
    found = await asyncio.to_thread(proposers.proposers, spec, number, slots, mix, registry)
    if any(found[slot] != block.proposer_index for slot, block in blocks.items() if slot):
        return None
    return found


async def before(reader: Reader, number: int, at: Held) -> States:
    """The registry before an epoch."""
    return await reader.states(number - 1) if number else await reader.origin(at)


async def closing(reader: Reader, number: int) -> Closing:
    """How the balances of an epoch close."""
    return await reader.memo.get("closing", number, lambda: _closing(reader, number))


async def _closing(reader: Reader, number: int) -> Closing:
    spec, read = reader.spec, await _balances(reader, number)
    keys = {each.data.pubkey.lower() for slot in read.slots for each in slot.block.body.deposits}
    if keys and not spec.is_at_least("electra", number):
        credited = accounting.credited_at_once(read.slots, await reader.indexes(number, keys))
        read = replace(read, changes=tuple(credited))
    found = accounting.closing(spec, read)
    suspects = found.index[accounting.suspects(found.paid, found.left)]
    if len(suspects) and spec.is_at_least("altair", number - 1):
        read = replace(read, leaked=await reader.some(number - 1, suspects.tolist()))
        found = accounting.closing(spec, read)
    if found.left.any() and spec.is_at_least("electra", number) and number > 0:
        changes = await _from_queues(reader, read)
        found = accounting.closing(spec, replace(read, changes=(*read.changes, *changes)))
    is_short = bool(found.left[found.sync != 0].any())
    return await _closing(reader, number) if is_short and await reader.doubts(number) else found


async def _balances(reader: Reader, number: int) -> Balances:
    """All that is known beforehand of how balances moved in an epoch."""
    slots, paid = await gathered_slots(reader, number), np.zeros((0, 5), np.int64)
    at = await reader.held(number)
    older = await reader.held(number - 1) if number else await reader.origin(at)
    if number >= PAID_AFTER:
        _, paid = await reader.attestations(number - PAID_AFTER)
    accused = sorted({each for slot in slots for each in slot.block.accused if reader.is_wanted(each)})
    both = await reader.some(number - 1, accused), await reader.some(number, accused)
    near = await reader.near(number)
    half_way = await correlation.half_way(reader, number, near)
    return Balances(number, older, at, paid, slots, near, both, half_way=half_way)


def _kept(values: Any, keep: Any) -> Any:
    if values is None or keep.all():
        return values
    return (values[0][keep], values[1][keep]) if isinstance(values, tuple) else values[keep]


async def gathered_slots(reader: Reader, number: int) -> tuple[Slot, ...]:
    """The slots of an epoch that have a block, with what it brought."""
    return await reader.memo.get("slots", number, lambda: _slots(reader, number))


async def _slots(reader: Reader, number: int) -> tuple[Slot, ...]:
    slots = range(number * reader.spec.slots, reader.end(number) + 1)
    blocks = await reader.blocks_of(slots)
    earned = await reader.earned(blocks)
    return tuple(Slot(block, each) for block, each in zip(blocks, earned, strict=True))


async def _from_queues(reader: Reader, read: Balances) -> tuple[Change, ...]:
    """The changes of an epoch that the queues of Electra tell: as it begins, and of blocks that put stake back."""
    first = read.number * reader.spec.slots
    older, newer = await gathered([reader.pending(first - 1), reader.pending(first)])
    waited, moved = accounting.gone(older[0], newer[0]), list[tuple[int, Deposits, Deposits]]()
    for each in read.slots:
        if any(one.source_pubkey == one.target_pubkey for one in each.block.body.execution_requests.consolidations):
            slot = each.block.slot
            was, now = await gathered([reader.pending_deposits(slot - 1), reader.pending_deposits(slot)])
            moved.append((slot, was, now))
            waited += accounting.gone(now, was)
    index_of = await reader.indexes(read.number, {each.pubkey.lower() for each in waited})
    sources = sorted({each.source_index for each in accounting.gone(older[1], newer[1])})
    found = accounting.from_queues(read, first, older, newer, index_of, await reader.some(read.number - 1, sources))
    for slot, was, now in moved:
        found += accounting.queued(slot, was, now, index_of)
    return tuple(each for each in found if reader.is_wanted(each.validator))
