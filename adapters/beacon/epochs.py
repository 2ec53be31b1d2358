"""An epoch once it is settled: everything that is read of it, its changes of stake, and its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from adapters.beacon import accounting
from adapters.beacon.accounting import Balances, Change, Closing, Duties, Slot
from adapters.beacon.reader import Earned, Reader, gathered
from adapters.beacon.states import States
from chainfolio.errors import BadAnswer

PAID_AFTER: Final = 2  # epochs
SETTLED_AFTER: Final = 3  # when the balances of the epoch in which they were paid are known, too
COUNTED: Final = ("source", "target", "head", "inactivity", "sync", "sync_hits", "sync_misses", "proposals", "proposed",
                  "slashing", "unexplained")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settled:
    """A settled epoch: the columns of its rewards, its changes of stake, and the registry before and at its end."""

    number: int
    columns: dict[str, Any]
    changes: tuple[Change, ...]
    before: States
    at: States


async def settled(reader: Reader, number: int, height: int) -> Settled:
    """An epoch whose attestations were paid before the block at a slot. BadAnswer where a node leaves somebody out who
    had duties."""
    own, later = await gathered([closing(reader, number), closing(reader, number + PAID_AFTER)])
    ideal, attested = await reader.attestations(number)
    at, after = await gathered([reader.states(number), reader.states(number + 1)])
    slots = range(number * reader.spec.slots, reader.end(number) + 1)
    duties = Duties(
        number, at, after, ideal, attested, await gathered_slots(reader, slots), await reader.seats(number),
        await reader.duties(number),
    )  # fmt: skip
    columns = accounting.rows(duties, own, later, height)
    silent = columns["on_duty"] & ~columns["is_told"]
    if silent.any():
        missing = int(at.index[np.flatnonzero(silent)[0]])
        raise BadAnswer(reader.nodes.key, f"no rewards of validator {missing} for epoch {number}, though it had duties")
    keep = columns.pop("on_duty") | sum(columns[name] != 0 for name in COUNTED).astype(bool)
    columns.pop("is_told")
    found = {name: _kept(values, keep) for name, values in columns.items()}
    return Settled(number, found, own.changes, await _before(reader, number, at), at)


async def closing(reader: Reader, number: int) -> Closing:
    """How the balances of an epoch close."""
    return await reader.memo.get("closing", number, lambda: _closing(reader, number))


async def _closing(reader: Reader, number: int) -> Closing:
    slots = range(number * reader.spec.slots, reader.end(number) + 1)
    at = await reader.states(number)
    paid = np.zeros((0, 5), np.int64)
    if number >= PAID_AFTER:
        _, paid = await reader.attestations(number - PAID_AFTER)
    read = Balances(number, await _before(reader, number, at), at, paid, await gathered_slots(reader, slots))
    index_of = _index_of(at)
    read = replace(read, changes=tuple(accounting.credited_at_once(reader.spec, read, index_of)))
    found = accounting.closing(reader.spec, read)
    if found.left.any() and reader.spec.is_at_least("electra", number) and number > 0:
        changes = await _from_queues(reader, read, index_of)
        found = accounting.closing(reader.spec, replace(read, changes=(*read.changes, *changes)))
    return found


async def _before(reader: Reader, number: int, at: States) -> States:
    return await reader.states(number - 1) if number else await reader.origin(at)


def _kept(values: Any, keep: Any) -> Any:
    if values is None:
        return None
    return (values[0][keep], values[1][keep]) if isinstance(values, tuple) else values[keep]


async def gathered_slots(reader: Reader, slots: range) -> tuple[Slot, ...]:
    """The slots that have a block, with what it brought."""
    blocks = [block for block in await gathered(reader.block(slot) for slot in slots) if block is not None]
    earned: list[Earned] = await gathered(reader.earned(block) for block in blocks)
    return tuple(Slot(block, each) for block, each in zip(blocks, earned, strict=True))


def _index_of(at: States) -> Callable[[str], int | None]:
    """The wanted validators by their public keys. Made when it is first needed: rarely, of many."""
    known: dict[bytes, int] = {}

    def find(pubkey: str) -> int | None:
        if not known and len(at):
            known.update(zip((bytes(each) for each in at.pubkey), at.index.tolist(), strict=True))
        return known.get(bytes.fromhex(pubkey[2:]))

    return find


async def _from_queues(reader: Reader, read: Balances, index_of: Callable[[str], int | None]) -> tuple[Change, ...]:
    """The changes of an epoch that the queues of Electra tell: as it begins, and of blocks that put stake back."""
    first = read.number * reader.spec.slots
    before, after = await gathered([reader.pending(first - 1), reader.pending(first)])
    unread = {each.source_index for each in accounting.gone(before[1], after[1])} - set(read.before.index.tolist())
    others = await reader.part(first - 1, sorted(unread))
    found = accounting.from_queues(read, first, before, after, index_of, others)
    for slot in read.slots:
        if any(each.source_pubkey == each.target_pubkey for each in slot.block.body.execution_requests.consolidations):
            older, newer = await gathered([reader.pending(slot.block.slot - 1), reader.pending(slot.block.slot)])
            found += accounting.queued(slot.block.slot, older[0], newer[0], index_of)
    known = set(read.at.index.tolist())
    return tuple(each for each in found if each.validator in known)
