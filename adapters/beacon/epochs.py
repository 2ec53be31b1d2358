"""Settle epochs: read everything that an epoch depends on, and return its rewards and stake changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from chainfolio.adapters.beacon import accounting, correlation, epoch_balances, proposers
from chainfolio.adapters.beacon.accounting import Duties, Reconciliation
from chainfolio.adapters.beacon.epoch_balances import BalanceChange, EpochBalances, Slot
from chainfolio.adapters.beacon.reader import Reader, gather_all
from chainfolio.adapters.beacon.responses import PendingDeposit
from chainfolio.adapters.beacon.validator_table import Array, BalanceTable, Column, ValidatorTable
from chainfolio.errors import BadAnswer

PAYMENT_DELAY: Final = 2  # epochs after which attestations are paid
SETTLEMENT_DELAY: Final = 3  # epochs after which also the balances at the end of the epoch of payment are known
MAX_PARALLEL: Final = 4  # epochs that are read at once for selected validators
Deposits = list[PendingDeposit]


@dataclass(frozen=True, slots=True)
class SettledEpoch:
    """An epoch whose rewards are final.

    Attributes:
        number: The epoch.
        height: The slot whose block settled it.
        validators: Indexes of validators with duties or an amount in `columns`.
        columns: Of `validator_rewards` for these, without chain, validator and bucket.
        changes: Changes of balances that are neither rewards nor withdrawals.
        at: Validators at the end of the epoch.
    """

    number: int
    height: int
    validators: Array
    columns: dict[str, Column]
    changes: tuple[BalanceChange, ...]
    at: ValidatorTable


async def settle_epochs(reader: Reader, epochs: Sequence[tuple[int, int]]) -> AsyncIterator[list[SettledEpoch]]:
    """Yield settled epochs in their order.

    Several epochs are read at once for selected validators, one for a whole network and if rewards have to be computed.

    Args:
        epochs: Each with the slot whose block settles it.

    Raises:
        SourceError: As `settle_epoch`.
    """
    pending = list(epochs)
    while pending:
        count = MAX_PARALLEL if reader.selection is not None and reader.has_served_rewards else 1
        batch, pending = pending[:count], pending[count:]
        if count > 1:
            await _prefetch(reader, batch[0][0], batch[-1][0])
        yield await gather_all(settle_epoch(reader, *each) for each in batch)


async def _prefetch(reader: Reader, first: int, last: int) -> None:
    """Request everything that epochs depend on at once; each alone would request one after the other."""
    end, requests = last + PAYMENT_DELAY + 1, list[Awaitable[object]]()
    requests += [reader.validators(number) for number in range(max(0, first - 1), end)]
    requests += [epoch_slots(reader, number) for number in range(first, end)]
    requests += [reader.attestations(number) for number in range(max(0, first - PAYMENT_DELAY), last + 1)]
    requests += [reader.proposer_duties(number) for number in range(first, last + 1)]
    await gather_all(requests)


async def settle_epoch(reader: Reader, number: int, height: int) -> SettledEpoch:
    """Return an epoch whose attestations were paid before the block at a slot, and release its cache.

    Its rows are the validators that had duties or an amount other than zero.

    Raises:
        BadAnswer: The node gives no rewards of a validator with duties, or a response is malformed.
        SourceError: Something could not be read.
    """
    # These two epochs need all fields of validators; for those around them, balances are enough.
    at, after = await gather_all([reader.validators(number), reader.validators(number + 1)])
    numbers = number, number + PAYMENT_DELAY
    current, payment = await gather_all(reconciliation(reader, each) for each in numbers)
    ideal, attestations = await reader.attestations(number)
    duties = Duties(
        number,
        at,
        after,
        ideal,
        attestations,
        await epoch_slots(reader, number),
        await reader.seats(number),
        await _proposers(reader, number),
    )
    rewards = accounting.epoch_rewards(duties, current, payment, height)
    if len(missing := at.index[rewards.on_duty & ~rewards.is_rewarded]):
        raise BadAnswer(
            reader.nodes.key, f"no rewards of validator {missing[0]} for epoch {number}, though it had duties"
        )
    keep = rewards.on_duty | rewards.has_amount
    columns = {name: _filter_rows(values, keep) for name, values in rewards.columns.items()}
    reader.release(number)
    return SettledEpoch(number, height, at.index[keep], columns, current.changes, at)


async def _proposers(reader: Reader, number: int) -> Mapping[int, int] | None:
    """Return the proposers of an epoch's slots, from the node or computed; empty if no slot was missed.

    None if the node does not serve them and the whole registry is not read or its RANDAO mix is missing, or if a
    computed proposer contradicts a block.
    """
    if (duties := await reader.proposer_duties(number)) is not None:
        return duties
    spec, blocks = reader.spec, {each.block.slot: each.block for each in await epoch_slots(reader, number)}
    slots = range(max(1, number * spec.slots_per_epoch), reader.last_slot(number) + 1)
    if blocks.keys() >= set(slots):
        return {}
    if (network := reader.network_reader) is None:
        return None
    mix = await network.randao_mix(proposers.mix_epoch(spec, number), number)
    if mix is None:
        return None
    registry = await network.validators(proposers.state_epoch(spec, number))
    computed = await asyncio.to_thread(proposers.proposers, spec, number, slots, mix, registry)
    if any(computed[slot] != block.proposer_index for slot, block in blocks.items() if slot):
        return None
    return computed


async def validators_before(reader: Reader, number: int, at: BalanceTable) -> ValidatorTable:
    """Return the validators before an epoch; before the first, those of genesis that are in `at`."""
    return await reader.validators(number - 1) if number else await reader.genesis_validators(at)


async def reconciliation(reader: Reader, number: int) -> Reconciliation:
    """Return the balances of an epoch compared with what moved them."""
    return await reader.memo.get("reconciliation", number, lambda: _reconcile(reader, number))


async def _reconcile(reader: Reader, number: int) -> Reconciliation:
    """Reconcile the balances of an epoch, reading more only while changes are unexplained.

    It reads, in this order: validators in an inactivity leak, queued changes, sync rewards per block.
    """
    spec, epoch = reader.spec, await _balances(reader, number)
    keys = {each.data.pubkey.lower() for slot in epoch.slots for each in slot.block.body.deposits}
    if keys and not spec.is_at_least("electra", number):
        deposits = epoch_balances.immediate_deposits(epoch.slots, await reader.indexes_of_keys(number, keys))
        epoch = replace(epoch, changes=tuple(deposits))
    result = accounting.reconcile(spec, epoch)
    doubtful = result.index[accounting.has_inactivity_doubts(result.attestations, result.unexplained)]
    if len(doubtful) and spec.is_at_least("altair", number - 1):
        epoch = replace(epoch, leaked=await reader.select_validators(number - 1, doubtful.tolist()))
        result = accounting.reconcile(spec, epoch)
    if result.unexplained.any() and spec.is_at_least("electra", number) and number > 0:
        changes = await _queue_changes(reader, epoch)
        result = accounting.reconcile(spec, replace(epoch, changes=(*epoch.changes, *changes)))
    is_sync_doubtful = bool(result.unexplained[result.sync != 0].any())
    if is_sync_doubtful and await reader.read_sync_per_block(number):
        return await _reconcile(reader, number)
    return result


async def _balances(reader: Reader, number: int) -> EpochBalances:
    """Return what moved balances in an epoch, without changes that only the queues show.

    The first epochs have no attestations; before epoch 0 is the genesis.
    """
    slots, attestations = await epoch_slots(reader, number), np.zeros((0, 5), np.int64)
    after = await reader.balances(number)
    before = await reader.balances(number - 1) if number else await reader.genesis_validators(after)
    if number >= PAYMENT_DELAY:
        _, attestations = await reader.attestations(number - PAYMENT_DELAY)
    indexes = sorted({each for slot in slots for each in slot.block.accused_validators if reader.includes(each)})
    accused = await reader.select_validators(number - 1, indexes), await reader.select_validators(number, indexes)
    nearby = await reader.nearby_validators(number)
    penalties = await correlation.correlation_penalties(reader, number, nearby)
    return EpochBalances(number, before, after, attestations, slots, nearby, accused, correlation=penalties)


def _filter_rows(values: Column, keep: Array) -> Column:
    """Return the rows of a column that are True in `keep`."""
    if values is None or keep.all():
        return values
    return (values[0][keep], values[1][keep]) if isinstance(values, tuple) else values[keep]


async def epoch_slots(reader: Reader, number: int) -> tuple[Slot, ...]:
    """Return the slots of an epoch that have a block, with the rewards of the block."""
    return await reader.memo.get("slots", number, lambda: _read_slots(reader, number))


async def _read_slots(reader: Reader, number: int) -> tuple[Slot, ...]:
    slots = range(number * reader.spec.slots_per_epoch, reader.last_slot(number) + 1)
    blocks = await reader.read_blocks(slots)
    rewards = await reader.block_rewards(blocks)
    return tuple(Slot(block, each) for block, each in zip(blocks, rewards, strict=True))


async def _queue_changes(reader: Reader, epoch: EpochBalances) -> tuple[BalanceChange, ...]:
    """Return the balance changes of selected validators that the queues of Electra show.

    They are those at the transition, and balances that requests in blocks put back into the queue.
    """
    first = epoch.number * reader.spec.slots_per_epoch
    before, after = await gather_all([reader.pending_queues(first - 1), reader.pending_queues(first)])
    deposits, requeues = epoch_balances.removed_entries(before[0], after[0]), list[tuple[int, Deposits, Deposits]]()
    for each in epoch.slots:
        consolidations = each.block.body.execution_requests.consolidations
        if any(request.source_pubkey == request.target_pubkey for request in consolidations):
            slot = each.block.slot
            old, new = await gather_all([reader.pending_deposits(slot - 1), reader.pending_deposits(slot)])
            requeues.append((slot, old, new))
            deposits += epoch_balances.removed_entries(new, old)
    index_of = await reader.indexes_of_keys(epoch.number, {each.pubkey.lower() for each in deposits})
    removed = epoch_balances.removed_entries(before[1], after[1])
    source_indexes = sorted({consolidation.source_index for consolidation in removed})
    sources = await reader.select_validators(epoch.number - 1, source_indexes)
    changes = epoch_balances.queue_changes(epoch, first, before, after, index_of, sources)
    for slot, old, new in requeues:
        changes += epoch_balances.requeued_balances(slot, old, new, index_of)
    return tuple(each for each in changes if reader.includes(each.validator))
