"""Explain every validator's balance in one epoch, to the gwei, by its rewards and other changes.

The balance after an epoch is the one before, plus attestation rewards of two epochs ago (paid as the epoch begins),
plus rewards of blocks and sync committees, plus deposits and consolidations, minus withdrawals and penalties. Integers
only; arrays have one entry for each validator of `index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainfolio.adapters.beacon.block_responses import Withdrawal
from chainfolio.adapters.beacon.epoch_balances import BalanceChange, EpochBalances, Slot
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import NEVER, Array, Column, ValidatorTable
from chainfolio.adapters.beacon.voting import Seats

VOTES: Final = 3  # of an attestation; a node may round each of them by a gwei


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The balances of an epoch compared with what moved them.

    Attributes:
        index: The validators.
        unexplained: Gwei that nothing explains.
        attestations: Rewards as they were really paid: source, target, head, inactivity, and 1 if the node gave them.
            Some nodes round votes, or weigh inactivity by the wrong fork, which the balance corrects.
        sync: Sync committee rewards of the epoch.
        slashing: Slashing penalties of the epoch, negative.
        changes: Deposits, consolidations and the like.
    """

    index: Array
    unexplained: Array
    attestations: Array
    sync: Array
    slashing: Array
    changes: tuple[BalanceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Duties:
    """The duties of an epoch.

    Attributes:
        number: The epoch.
        at: Validators at its end.
        after: Validators at the end of the next epoch, when attestations are weighed.
        ideal: Ideal attestation rewards by effective balance.
        attestations: Rewards as the node gives them: index, source, target, head, inactivity.
        slots: Slots with a block.
        seats: Of the sync committee, None before Altair.
        proposers: By slot; None if unknown.
    """

    number: int
    at: ValidatorTable
    after: ValidatorTable
    ideal: Mapping[int, int]
    attestations: Array
    slots: Sequence[Slot]
    seats: Seats | None
    proposers: Mapping[int, int] | None


@dataclass(frozen=True, slots=True)
class EpochRewards:
    """The rewards of an epoch.

    Attributes:
        columns: Of `validator_rewards`, without chain, validator and bucket.
        on_duty: Mask of validators with duties.
        is_rewarded: Mask of validators with attestation rewards from the node.
        has_amount: Mask of validators with a reward, a proposal or an unexplained amount.
    """

    columns: dict[str, Column]
    on_duty: Array
    is_rewarded: Array
    has_amount: Array


class Adder:
    """Sums amounts by validator, for the validators of `index`. Amounts of others are ignored."""

    def __init__(self, index: Array) -> None:
        self._index = index
        self._rows = None if len(index) > 4096 else {each: row for row, each in enumerate(index.tolist())}

    def sums(self, pairs: Iterable[tuple[int, int]]) -> Array:
        """Return each validator's sum of amounts, from pairs of validator and amount; others are ignored."""
        sums = np.zeros(len(self._index), np.int64)
        if (rows := self._rows) is not None:
            for validator, amount in pairs:
                if validator in rows:
                    sums[rows[validator]] += amount
            return sums
        for validator, amount in pairs:
            row = int(np.searchsorted(self._index, validator))
            if row < len(sums) and self._index[row] == validator:
                sums[row] += amount
        return sums


def by_index(rewards: Array, index: Array) -> Array:
    """Return attestation rewards in the order of `index`, with a last column: 1, or 0 if there are none."""
    ordered = np.zeros((len(index), 5), np.int64)
    if len(rewards) and len(index):
        rows = np.minimum(np.searchsorted(rewards[:, 0], index), len(rewards) - 1)
        is_present = rewards[rows, 0] == index
        ordered[is_present, :4] = rewards[rows[is_present], 1:]
        ordered[:, 4] = is_present
    return ordered


def initial_penalties(spec: Spec, epoch: EpochBalances) -> list[BalanceChange]:
    """Return a negative change for each validator that was slashed in the epoch, in the order of blocks.

    Validators that were slashed before are left out, although a block accuses them again.
    """
    before, after = epoch.accused
    quotient, changes, slashed = spec.slashing_quotient(epoch.number), list[BalanceChange](), set[int]()
    is_new = after.slashed & ~before.column("slashed", after.index).astype(bool)
    new = dict(zip(after.index[is_new].tolist(), after.effective_balance[is_new].tolist(), strict=True))
    for slot in epoch.slots:
        for validator in slot.block.accused_validators:
            if validator in new and validator not in slashed:
                slashed.add(validator)
                changes.append(BalanceChange(validator, slot.block.slot, "slashed", -(new[validator] // quotient)))
    return changes


def seat_counts(epoch: Duties, adder: Adder) -> tuple[Array, Array, Array]:
    """Return per validator the signed seats, the missed seats, and the gwei for signing all its seats.

    Slots without sync rewards or without a block do not count. The reward of a seat is taken from the slot's rewards, 0
    if each validator there signed half of its seats.
    """
    hits: dict[int, int] = {}
    misses: dict[int, int] = {}
    ideal: dict[int, int] = {}
    for slot in epoch.slots:
        if epoch.seats is None or not slot.rewards.sync or slot.block.body.sync_aggregate is None:
            continue
        bits = bytes.fromhex(slot.block.body.sync_aggregate.sync_committee_bits[2:])
        signed: dict[int, int] = {}
        seats: dict[int, int] = {}
        for position, validator in epoch.seats.seats:
            bit = bits[position // 8] >> (position % 8) & 1 if position // 8 < len(bits) else 0
            signed[validator] = signed.get(validator, 0) + bit
            seats[validator] = seats.get(validator, 0) + 1
        seat_reward = 0
        for validator, reward in slot.rewards.sync:
            net = 2 * signed[validator] - seats[validator]
            seat_reward = max(seat_reward, abs(reward) // abs(net) if net else 0)
        for validator, count in seats.items():
            hits[validator] = hits.get(validator, 0) + signed[validator]
            misses[validator] = misses.get(validator, 0) + count - signed[validator]
            ideal[validator] = ideal.get(validator, 0) + seat_reward * count
    return adder.sums(hits.items()), adder.sums(misses.items()), adder.sums(ideal.items())


def reconcile(spec: Spec, epoch: EpochBalances) -> Reconciliation:
    """Compare an epoch's balances with what moved them, and correct amounts that nodes give inexactly.

    Corrected are sync penalties beyond a balance, unread correlation penalties, inactivity penalties (for `leaked`) and
    rounding of votes. What is left of the difference is `unexplained`, in gwei, positive if the balance is larger.
    """
    index = epoch.after.index
    adder = Adder(index)
    attestations = by_index(epoch.attestations, index)
    sync = adder.sums(pair for slot in epoch.slots for pair in slot.rewards.sync)
    slashing = adder.sums((each.validator, each.gwei) for each in initial_penalties(spec, epoch))
    balance_before = epoch.before.column("balance", index)
    if epoch.correlation:
        available = np.maximum(0, balance_before + attestations[:, :4].sum(axis=1))
        slashing -= np.minimum(adder.sums(epoch.correlation.items()), available)
    explained = attestations[:, :4].sum(axis=1) + sync + slashing + adder.sums(_proposal_rewards(epoch.slots))
    explained += adder.sums((each.validator, each.gwei) for each in epoch.changes)
    explained -= adder.sums((each.validator_index, each.amount) for each in withdrawals(epoch.slots))
    unexplained = epoch.after.balance - balance_before - explained
    # A balance does not fall below zero: the part of a sync penalty that exceeds it is not paid.
    is_unpaid = (epoch.after.balance == 0) & (unexplained > 0) & (sync < 0)
    unpaid = np.where(is_unpaid, np.minimum(unexplained, -sync), 0)
    sync, unexplained = sync + unpaid, unexplained - unpaid
    if epoch.correlation is None:
        slashing, unexplained = _infer_correlation_penalties(spec, epoch, index, slashing, unexplained)
    if epoch.leaked is not None:
        effective = epoch.leaked.column("effective_balance", index, 1)
        penalties = missing_inactivity(spec, epoch.number - 1, effective, attestations, unexplained)
        attestations[:, 3] += penalties
        unexplained = unexplained - penalties
    unexplained = _absorb_rounding(attestations, unexplained)
    return Reconciliation(index, unexplained, attestations, sync, slashing, tuple(epoch.changes))


def _proposal_rewards(slots: Iterable[Slot]) -> Iterator[tuple[int, int]]:
    """Yield proposer and reward of the blocks whose proposer is selected."""
    for slot in slots:
        if slot.rewards.proposer is not None:
            yield slot.rewards.proposer, slot.rewards.proposal


def _infer_correlation_penalties(
    spec: Spec, epoch: EpochBalances, index: Array, slashing: Array, unexplained: Array
) -> tuple[Array, Array]:
    """Count the unexplained loss of slashed validators halfway to withdrawal as correlation penalty.

    Return `slashing` with it, and `unexplained` without it.
    """
    half_vector = spec.number("EPOCHS_PER_SLASHINGS_VECTOR") // 2
    is_halfway = epoch.nearby.column("withdrawable_epoch", index) == epoch.number - 1 + half_vector
    is_due = epoch.nearby.column("slashed", index).astype(bool) & is_halfway & (unexplained < -VOTES)
    return slashing + np.where(is_due, unexplained, 0), np.where(is_due, 0, unexplained)


def has_inactivity_doubts(attestations: Array, unexplained: Array) -> Array:
    """Return a mask of validators that missed their target and have an unexplained balance."""
    doubts: Array = (attestations[:, 1] < 0) & (np.abs(unexplained) > VOTES)
    return doubts


def missing_inactivity(spec: Spec, epoch: int, effective: Array, attestations: Array, unexplained: Array) -> Array:
    """Return inactivity penalties that the node leaves out or weighs by another fork, negative.

    A penalty counts if a whole inactivity score explains the balance, up to the rounding of votes. As a score grows by
    at most the bias in an epoch, larger amounts stay unexplained.

    Args:
        epoch: The epoch at whose end the penalty is computed.
        effective: Effective balances.
        attestations: As in `Reconciliation`.
        unexplained: Gwei that nothing else explains.
    """
    bias = spec.number("INACTIVITY_SCORE_BIAS")
    divisor = bias * spec.inactivity_quotient(epoch)
    effective = np.maximum(1, effective)
    total = -(attestations[:, 3] + unexplained)
    score = (total * divisor + effective // 2) // effective
    penalty = effective * score // divisor
    is_score = (score > 0) & (score <= bias * (epoch + 1))
    fits = has_inactivity_doubts(attestations, unexplained) & is_score & (np.abs(total - penalty) <= VOTES)
    return np.where(fits, -penalty - attestations[:, 3], 0)


def withdrawals(slots: Iterable[Slot]) -> Iterator[Withdrawal]:
    """Yield the withdrawals in blocks."""
    for slot in slots:
        if (payload := slot.block.body.execution_payload) is not None:
            yield from payload.withdrawals


def _absorb_rounding(attestations: Array, unexplained: Array) -> Array:
    """Correct votes that the node rounded, in `attestations`, and return what stays unexplained.

    At most one gwei a vote. It is unknown which vote was rounded: the one with the largest weight is corrected first.
    """
    for vote in (1, 0, 2):
        is_rounded = (np.abs(unexplained) <= VOTES) & (attestations[:, 4] > 0) & (attestations[:, vote] != 0)
        step = np.where(is_rounded, np.sign(unexplained), 0)
        attestations[:, vote] += step
        unexplained = unexplained - step
    return unexplained


def epoch_rewards(epoch: Duties, current: Reconciliation, payment: Reconciliation, height: int) -> EpochRewards:
    """Return the rewards of an epoch: a row per validator at its beginning, in gwei, zeros included.

    Validators without a row in `payment` have no votes' rewards.

    Args:
        epoch: Its duties.
        current: Its balances.
        payment: The balances of the epoch in which its attestations were paid.
        height: The slot whose block settled the epoch.
    """
    index = epoch.at.index
    adder = Adder(index)
    rows, is_present = _search(payment.index, index)
    rewards = payment.attestations[rows] if len(payment.attestations) else np.zeros((1, 5), np.int64)
    votes = np.where(is_present[:, None], rewards, 0)
    hits, misses, sync_ideal = seat_counts(epoch, adder)
    balances = np.array(sorted(epoch.ideal), np.int64)
    values = np.array([epoch.ideal[each] for each in balances.tolist()], np.int64)
    rows, has_ideal = _search(balances, epoch.after.column("effective_balance", index))
    ideal = values[rows] if len(values) else rows
    on_duty = is_on_duty(epoch, index)
    amounts = {
        "source": votes[:, 0],
        "target": votes[:, 1],
        "head": votes[:, 2],
        "inactivity": votes[:, 3],
        "sync": current.sync,
        "sync_hits": hits,
        "sync_misses": misses,
        "proposals": adder.sums(_proposal_rewards(epoch.slots)),
        "proposed": adder.sums((slot.block.proposer_index, 1) for slot in epoch.slots),
        "slashing": current.slashing,
        "unexplained": current.unexplained,
    }
    columns: dict[str, Column] = {
        **amounts,
        "epoch": np.full(len(index), epoch.number),
        "height": np.full(len(index), height),
        "ideal": (np.where(on_duty, ideal, 0), has_ideal | ~on_duty),
        "sync_ideal": sync_ideal,
        "missed": _missed_proposals(epoch, adder),
        "effective": epoch.at.effective_balance,
    }
    is_rewarded = by_index(epoch.attestations, index)[:, 4].astype(bool)
    has_amount = np.logical_or.reduce([each != 0 for each in amounts.values()])
    return EpochRewards(columns, on_duty, is_rewarded, has_amount)


def _missed_proposals(epoch: Duties, adder: Adder) -> Array | None:
    """Return how many slots each validator missed as a proposer; None if the proposers are not known."""
    if epoch.proposers is None:
        return None
    with_block = {slot.block.slot for slot in epoch.slots}
    # The block of slot 0 is the genesis block, which has no proposer.
    return adder.sums((each, 1) for slot, each in epoch.proposers.items() if slot not in with_block and slot > 0)


def is_on_duty(epoch: Duties, index: Array) -> Array:
    """Return a mask of active validators, and slashed ones until they can withdraw: they have rewards."""
    is_activated = epoch.after.column("activation_epoch", index, NEVER) <= epoch.number
    is_active = epoch.number < epoch.after.column("exit_epoch", index)
    is_slashed = epoch.after.column("slashed", index).astype(bool)
    is_locked: Array = is_slashed & (epoch.number + 1 < epoch.after.column("withdrawable_epoch", index))
    return is_activated & (is_active | is_locked)


def _search(array: Array, values: Array) -> tuple[Array, Array]:
    """Return the position of each value in a sorted array, and whether it is present."""
    if not len(array):
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    positions = np.minimum(np.searchsorted(array, values), len(array) - 1)
    return positions, array[positions] == values
