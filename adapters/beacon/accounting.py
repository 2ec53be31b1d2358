"""One epoch of every validator: what its duties brought, and whether that explains its balance to the gwei.

The balance after an epoch is the one before it, with the attestations of two epochs ago (paid as it begins), with
what its blocks and its seats in the sync committee brought, less withdrawals and penalties, with deposits and
consolidations. No floats; all arrays have one entry for each validator of `index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainfolio.adapters.beacon.answers import BlockMessage, PendingConsolidation, PendingDeposit, Withdrawal
from chainfolio.adapters.beacon.reader import Earned, Seats
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import NEVER, Held, States

VOTES: Final = 3  # of an attestation: each is rounded by itself


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot with a block, and what the block brought."""

    block: BlockMessage
    earned: Earned


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a balance that is neither a reward nor a withdrawal. `slot`: after it the balance has it."""

    validator: int
    slot: int
    kind: str
    gwei: int
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Balances:
    """All that moved balances in an epoch. `before` and `at` are what validators had at the end of the last epoch and
    of this one; `paid` are the attestations of two epochs ago, which were paid as it began.

    `near` is the registry at one of the two. Of whom blocks accuse, it is known at both (`accused`); of whom a leak may
    have cost more than was told, at the end of the last epoch (`leaked`). `half_way` is what those owe who were slashed
    half a vector ago; None where it cannot be computed, and then it is what else would be left.
    """

    number: int
    before: Held
    at: Held
    paid: Any
    slots: Sequence[Slot]
    near: States
    accused: tuple[States, States]
    leaked: States | None = None
    changes: Sequence[Change] = ()
    half_way: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """How the balances of an epoch close, for the validators of `index`.

    `left` is what nothing explains. `paid` are the attestations as they were really paid: some nodes round them, or
    weigh inactivity by the wrong fork, and the balance tells. `sync` and `slashing` belong to the epoch itself.
    """

    index: Any
    left: Any
    paid: Any
    sync: Any
    slashing: Any
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Duties:
    """What is known of the duties of an epoch: what attesting could have brought, who sat in the sync committee, who
    was to propose. `after` are the validators at the end of the next epoch, when attestations are weighed."""

    number: int
    at: States
    after: States
    ideal: Mapping[int, int]
    attested: Any
    slots: Sequence[Slot]
    seats: Seats | None
    proposers: Mapping[int, int] | None


class Adder:
    """Adds amounts to validators that are known by their index; those of others are left out."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._place = None if len(index) > 4096 else {each: at for at, each in enumerate(index.tolist())}

    def sums(self, pairs: Iterable[tuple[int, int]]) -> Any:
        """The sum of amounts by validator."""
        found = np.zeros(len(self._index), np.int64)
        if (place := self._place) is not None:
            for validator, amount in pairs:
                if validator in place:
                    found[place[validator]] += amount
            return found
        for validator, amount in pairs:
            at = int(np.searchsorted(self._index, validator))
            if at < len(found) and self._index[at] == validator:
                found[at] += amount
        return found


def by_index(rows: Any, index: Any) -> Any:
    """Rows of attestations in the order of the validators, zeros where there is none, and a last column that says
    whether there is one."""
    found = np.zeros((len(index), 5), np.int64)
    if len(rows) and len(index):
        at = np.minimum(np.searchsorted(rows[:, 0], index), len(rows) - 1)
        is_there = rows[at, 0] == index
        found[is_there, :4] = rows[at[is_there], 1:]
        found[:, 4] = is_there
    return found


def penalties(spec: Spec, epoch: Balances) -> list[Change]:
    """The first penalty of those whom a block of the epoch slashed."""
    before, now = epoch.accused
    quotient, found, done = spec.slashing_quotient(epoch.number), list[Change](), set[int]()
    is_fresh = now.slashed & ~before.of("slashed", now.index).astype(bool)
    fresh = dict(zip(now.index[is_fresh].tolist(), now.effective_balance[is_fresh].tolist(), strict=True))
    for slot in epoch.slots:
        for validator in slot.block.accused:
            if validator in fresh and validator not in done:
                done.add(validator)
                found.append(Change(validator, slot.block.slot, "slashed", -(fresh[validator] // quotient)))
    return found


def seat_counts(epoch: Duties, adder: Adder) -> tuple[Any, Any, Any]:
    """Seats that signed and seats that did not, and what all of them could have brought."""
    hits: dict[int, int] = {}
    misses: dict[int, int] = {}
    could: dict[int, int] = {}
    for slot in epoch.slots:
        if epoch.seats is None or not slot.earned.sync or slot.block.body.sync_aggregate is None:
            continue
        bits = bytes.fromhex(slot.block.body.sync_aggregate.sync_committee_bits[2:])
        signed: dict[int, int] = {}
        seats: dict[int, int] = {}
        for place, validator in epoch.seats.places:
            bit = bits[place // 8] >> (place % 8) & 1 if place // 8 < len(bits) else 0
            signed[validator] = signed.get(validator, 0) + bit
            seats[validator] = seats.get(validator, 0) + 1
        unit = 0
        for validator, reward in slot.earned.sync:
            net = 2 * signed[validator] - seats[validator]
            unit = max(unit, abs(reward) // abs(net) if net else 0)
        for validator, count in seats.items():
            hits[validator] = hits.get(validator, 0) + signed[validator]
            misses[validator] = misses.get(validator, 0) + count - signed[validator]
            could[validator] = could.get(validator, 0) + unit * count
    return adder.sums(hits.items()), adder.sums(misses.items()), adder.sums(could.items())


def closing(spec: Spec, epoch: Balances) -> Closing:
    """Whether the balances of an epoch close, and what they say of what nodes do not say exactly."""
    index = epoch.at.index
    adder = Adder(index)
    paid = by_index(epoch.paid, index)
    sync = adder.sums(pair for slot in epoch.slots for pair in slot.earned.sync)
    slashing = adder.sums((each.validator, each.gwei) for each in penalties(spec, epoch))
    if epoch.half_way:
        held = epoch.before.of("balance", index) + paid[:, :4].sum(axis=1)
        slashing -= np.minimum(adder.sums(epoch.half_way.items()), np.maximum(0, held))
    explained = paid[:, :4].sum(axis=1) + sync + slashing
    explained += adder.sums(
        (s.earned.proposer, s.earned.proposal) for s in epoch.slots if s.earned.proposer is not None
    )
    explained += adder.sums((each.validator, each.gwei) for each in epoch.changes)
    explained -= adder.sums((each.validator_index, each.amount) for each in withdrawn(epoch.slots))
    left = epoch.at.balance - epoch.before.of("balance", index) - explained
    # A balance does not fall below zero: what of a penalty was more than there was, nobody paid.
    unpaid = np.where((epoch.at.balance == 0) & (left > 0) & (sync < 0), np.minimum(left, -sync), 0)
    sync, left = sync + unpaid, left - unpaid
    if epoch.half_way is None:
        slashing, left = _half_way(spec, epoch, index, slashing, left)
    if epoch.leaked is not None:
        more = inactivity(spec, epoch.number - 1, epoch.leaked.of("effective_balance", index, 1), paid, left)
        paid[:, 3] += more
        left = left - more
    return Closing(index, _rounded(paid, left), paid, sync, slashing, tuple(epoch.changes))


def _half_way(spec: Spec, epoch: Balances, index: Any, slashing: Any, left: Any) -> tuple[Any, Any]:
    """What else would be left of who is half-way to the end of its stay after a slashing is what it paid for that."""
    half = spec.number("EPOCHS_PER_SLASHINGS_VECTOR") // 2
    is_half_way = epoch.near.of("withdrawable_epoch", index) == epoch.number - 1 + half
    due = epoch.near.of("slashed", index).astype(bool) & is_half_way & (left < -VOTES)
    return slashing + np.where(due, left, 0), np.where(due, 0, left)


def suspects(paid: Any, left: Any) -> Any:
    """Who missed its target, and of whose balance something is left to explain."""
    return (paid[:, 1] < 0) & (np.abs(left) > VOTES)


def inactivity(spec: Spec, number: int, effective: Any, paid: Any, left: Any) -> Any:
    """What nodes leave out of the penalties for inactivity at the end of an epoch, or weigh by another fork: that of a
    validator of which a whole score explains what is left, but for the rounding of its votes. No score grows by more
    than the bias an epoch: what is larger stays unexplained."""
    bias = spec.number("INACTIVITY_SCORE_BIAS")
    parts = bias * spec.inactivity_quotient(number)
    effective = np.maximum(1, effective)
    total = -(paid[:, 3] + left)
    score = (total * parts + effective // 2) // effective
    penalty = effective * score // parts
    is_score = (score > 0) & (score <= bias * (number + 1))
    fits = suspects(paid, left) & is_score & (np.abs(total - penalty) <= VOTES)
    return np.where(fits, -penalty - paid[:, 3], 0)


def withdrawn(slots: Iterable[Slot]) -> Iterator[Withdrawal]:
    """What blocks paid out."""
    for slot in slots:
        if (payload := slot.block.body.execution_payload) is not None:
            yield from payload.withdrawals


def _rounded(paid: Any, left: Any) -> Any:
    """Take what a node rounded up, a gwei a vote at most, out of the votes; what is left then. Which of the votes it
    was is not known: the largest first."""
    for vote in (1, 0, 2):
        step = np.where((np.abs(left) <= VOTES) & (paid[:, 4] > 0) & (paid[:, vote] != 0), np.sign(left), 0)
        paid[:, vote] += step
        left = left - step
    return left


def rows(epoch: Duties, own: Closing, later: Closing, height: int) -> dict[str, Any]:
    """The columns of `validator_rewards` of an epoch but chain and bucket. `own` is the closing of the epoch, `later`
    that of the one in which its attestations were paid."""
    index = epoch.at.index
    adder = Adder(index)
    is_told = by_index(epoch.attested, index)[:, 4]
    at, is_there = _places(later.index, index)
    votes = np.where(is_there[:, None], later.paid[at] if len(later.paid) else np.zeros((1, 5), np.int64), 0)
    proposed = adder.sums((slot.block.proposer_index, 1) for slot in epoch.slots)
    proposals = adder.sums((s.earned.proposer, s.earned.proposal) for s in epoch.slots if s.earned.proposer is not None)
    hits, misses, could = seat_counts(epoch, adder)
    known = np.array(sorted(epoch.ideal), np.int64)
    values = np.array([epoch.ideal[each] for each in known.tolist()], np.int64)
    ideal, has_ideal = _looked_up(known, values, epoch.after.of("effective_balance", index))
    on_duty = is_on_duty(epoch, index)
    missed = None
    if epoch.proposers is not None:
        taken = {slot.block.slot for slot in epoch.slots}
        # Slot 0 has no block that anybody proposed.
        missed = adder.sums((each, 1) for slot, each in epoch.proposers.items() if slot not in taken and slot > 0)
    return {
        "validator": index,
        "epoch": np.full(len(index), epoch.number),
        "height": np.full(len(index), height),
        "source": votes[:, 0],
        "target": votes[:, 1],
        "head": votes[:, 2],
        "inactivity": votes[:, 3],
        "ideal": (np.where(on_duty, ideal, 0), has_ideal | ~on_duty),
        "sync": own.sync,
        "sync_ideal": could,
        "sync_hits": hits,
        "sync_misses": misses,
        "proposals": proposals,
        "proposed": proposed,
        "missed": missed,
        "slashing": own.slashing,
        "effective": epoch.at.effective_balance,
        "unexplained": own.left,
        "on_duty": on_duty,
        "is_told": is_told.astype(bool),
    }


def is_on_duty(epoch: Duties, index: Any) -> Any:
    """Who has rewards of an epoch: the active ones, and the slashed ones until they can withdraw."""
    begun = epoch.after.of("activation_epoch", index, NEVER) <= epoch.number
    active = begun & (epoch.number < epoch.after.of("exit_epoch", index))
    slashed = epoch.after.of("slashed", index).astype(bool)
    return active | (begun & slashed & (epoch.number + 1 < epoch.after.of("withdrawable_epoch", index)))


def _places(known: Any, wanted: Any) -> tuple[Any, Any]:
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, known[at] == wanted


def _looked_up(known: Any, values: Any, wanted: Any) -> tuple[Any, Any]:
    at, is_there = _places(known, wanted)
    return (values[at] if len(values) else at), is_there


# --- what changes balances beside rewards ----------------------------------------------------------------------------


def credited_at_once(slots: Iterable[Slot], index_of: Mapping[str, int]) -> list[Change]:
    """Deposits of the bridge before Electra, which the block itself credits."""
    return [
        Change(validator, slot.block.slot, "deposit", deposit.data.amount)
        for slot in slots
        for deposit in slot.block.body.deposits
        if (validator := index_of.get(deposit.data.pubkey.lower())) is not None
    ]


Pending = tuple[Sequence[PendingDeposit], Sequence[PendingConsolidation]]


def gone(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """What a queue had before and has no more, each as often as it is gone."""
    left: dict[Any, int] = {}
    for each in after:
        left[each] = left.get(each, 0) + 1
    found = []
    for each in before:
        if left.get(each, 0):
            left[each] -= 1
        else:
            found.append(each)
    return found


def from_queues(
    epoch: Balances, slot: int, before: Pending, after: Pending, index_of: Mapping[str, int], sources: States
) -> list[Change]:
    """What the transition into an epoch, whose first slot it is, took out of the queues of Electra. `sources` are those
    of the consolidations, at the end of the last epoch."""
    found = []
    for deposit in gone(before[0], after[0]):
        validator = index_of.get(deposit.pubkey.lower())
        if validator is not None:
            found.append(Change(validator, slot, "deposit", deposit.amount))
    settled = {int(row[0]): int(row[1:].sum()) for row in epoch.paid} if gone(before[1], after[1]) else {}
    credits: dict[int, int] = {}
    for each in found:
        credits[each.validator] = credits.get(each.validator, 0) + each.gwei
    for each in gone(before[1], after[1]):
        source, target = np.array([each.source_index]), each.target_index
        if bool(sources.of("slashed", source)[0]):
            continue
        held = int(sources.of("balance", source)[0]) + settled.get(each.source_index, 0)
        held = max(0, held + credits.get(each.source_index, 0))
        moved = min(held, int(sources.of("effective_balance", source)[0]))
        credits[each.source_index] = credits.get(each.source_index, 0) - moved
        credits[target] = credits.get(target, 0) + moved
        found.append(Change(each.source_index, slot, "consolidation", -moved, target))
        found.append(Change(target, slot, "consolidation", moved, each.source_index))
    return found


def queued(
    slot: int, before: Sequence[PendingDeposit], after: Sequence[PendingDeposit], index_of: Mapping[str, int]
) -> list[Change]:
    """What of a balance a block put back into the queue: a validator that becomes compounding keeps 32 ETH."""
    found = []
    for deposit in gone(after, before):
        validator = index_of.get(deposit.pubkey.lower()) if deposit.slot == 0 else None
        if validator is not None:
            found.append(Change(validator, slot, "queued", -deposit.amount))
    return found
