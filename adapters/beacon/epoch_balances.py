"""Balances of an epoch, its blocks, and changes that are no rewards (deposits, consolidations)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from chainfolio.adapters.beacon.block_responses import BlockMessage
from chainfolio.adapters.beacon.reader import BlockRewards
from chainfolio.adapters.beacon.responses import PendingConsolidation, PendingDeposit
from chainfolio.adapters.beacon.validator_table import Array, BalanceTable, ValidatorTable

Entry = TypeVar("Entry", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot with a block, and the rewards of the block."""

    block: BlockMessage
    rewards: BlockRewards


@dataclass(frozen=True, slots=True)
class EpochBalances:
    """Everything that moved balances in an epoch.

    Attributes:
        number: The epoch.
        before: Balances at the end of the epoch before.
        after: Balances at the end of this epoch.
        attestations: Rewards of two epochs ago, paid as this epoch began: index, source, target, head, inactivity.
        slots: Slots with a block.
        nearby: Validators at the end of this epoch or of the one before.
        accused: Validators in slashings of the epoch, before and after it.
        leaked: Validators that may have paid more for inactivity than the node says, at the end of the epoch before.
        changes: Deposits, consolidations and the like.
        correlation: Correlation penalties by validator; None if they are to be inferred from the balances.
    """

    number: int
    before: BalanceTable
    after: BalanceTable
    attestations: Array
    slots: Sequence[Slot]
    nearby: ValidatorTable
    accused: tuple[ValidatorTable, ValidatorTable]
    leaked: ValidatorTable | None = None
    changes: Sequence[BalanceChange] = ()
    correlation: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BalanceChange:
    """A change of a balance that is neither a reward nor a withdrawal.

    Attributes:
        slot: The first slot after which the balance has the change.
        other: The other validator of a consolidation.
    """

    validator: int
    slot: int
    kind: str
    gwei: int
    other: int | None = None


def immediate_deposits(slots: Iterable[Slot], index_of: Mapping[str, int]) -> list[BalanceChange]:
    """Return the deposits before Electra, which the block itself credits.

    Args:
        slots: Slots with a block.
        index_of: Validators by public key. Deposits for other keys are ignored.
    """
    return [
        BalanceChange(validator, slot.block.slot, "deposit", deposit.data.amount)
        for slot in slots
        for deposit in slot.block.body.deposits
        if (validator := index_of.get(deposit.data.pubkey.lower())) is not None
    ]


Queues = tuple[Sequence[PendingDeposit], Sequence[PendingConsolidation]]


def removed_entries(before: Sequence[Entry], after: Sequence[Entry]) -> list[Entry]:
    """Return the entries that a queue had before and has no more, in order.

    Of equal entries, as many are returned as there are fewer, the last ones.
    """
    counts: dict[Entry, int] = {}
    for each in after:
        counts[each] = counts.get(each, 0) + 1
    removed = []
    for each in before:
        if counts.get(each, 0):
            counts[each] -= 1
        else:
            removed.append(each)
    return removed


def queue_changes(
    epoch: EpochBalances,
    slot: int,
    before: Queues,
    after: Queues,
    index_of: Mapping[str, int],
    sources: ValidatorTable,
) -> list[BalanceChange]:
    """Return the deposits and consolidations that an epoch transition took from the queues of Electra.

    A consolidation gives two changes, of its source and its target; none if the source is slashed. It moves at most the
    source's effective balance.

    Args:
        epoch: The epoch that begins.
        slot: Its first slot.
        before: The queues before the transition.
        after: The queues after it.
        index_of: Validators by public key. Deposits for other keys are ignored.
        sources: The sources of consolidations, at the end of the epoch before.
    """
    changes = []
    for deposit in removed_entries(before[0], after[0]):
        validator = index_of.get(deposit.pubkey.lower())
        if validator is not None:
            changes.append(BalanceChange(validator, slot, "deposit", deposit.amount))
    consolidations = removed_entries(before[1], after[1])
    rewards = {int(row[0]): int(row[1:].sum()) for row in epoch.attestations} if consolidations else {}
    credits: dict[int, int] = {}
    for change in changes:
        credits[change.validator] = credits.get(change.validator, 0) + change.gwei
    for each in consolidations:
        source, target = np.array([each.source_index]), each.target_index
        if bool(sources.column("slashed", source)[0]):
            continue
        balance = int(sources.column("balance", source)[0]) + rewards.get(each.source_index, 0)
        balance = max(0, balance + credits.get(each.source_index, 0))
        moved_gwei = min(balance, int(sources.column("effective_balance", source)[0]))
        credits[each.source_index] = credits.get(each.source_index, 0) - moved_gwei
        credits[target] = credits.get(target, 0) + moved_gwei
        changes.append(BalanceChange(each.source_index, slot, "consolidation", -moved_gwei, target))
        changes.append(BalanceChange(target, slot, "consolidation", moved_gwei, each.source_index))
    return changes


def requeued_balances(
    slot: int, before: Sequence[PendingDeposit], after: Sequence[PendingDeposit], index_of: Mapping[str, int]
) -> list[BalanceChange]:
    """Return the amounts above 32 ETH that a block queued as validators became compounding.

    They are negative changes.

    Args:
        slot: The slot of the block.
        before: The queue of deposits before the block.
        after: The queue after it.
        index_of: Validators by public key. Others are ignored.
    """
    changes = []
    for deposit in removed_entries(after, before):
        validator = index_of.get(deposit.pubkey.lower()) if deposit.slot == 0 else None
        if validator is not None:
            changes.append(BalanceChange(validator, slot, "queued", -deposit.amount))
    return changes
