"""What attesting, proposing and sitting in the sync committee bring by the rules of Altair and later, for nodes that do
not say it. Pure, in whole gwei; the names are those of the consensus specification.

All arrays have one entry for each validator of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Final

import numpy as np

from chainfolio.adapters.beacon.answers import Attestation, AttestedBlock, BlockMessage
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import States
from chainfolio.errors import BadAnswer

# The rules' own, the same in every network.
SOURCE, TARGET, HEAD = 1, 2, 4
WEIGHTS: Final = {SOURCE: 14, TARGET: 26, HEAD: 14}
SYNC_WEIGHT, PROPOSER_WEIGHT, DENOMINATOR = 2, 8, 64
PROPOSER_SHARE: Final = (DENOMINATOR - PROPOSER_WEIGHT) * DENOMINATOR // PROPOSER_WEIGHT

Committees = Mapping[tuple[int, int], Any]  # by slot and index: the validators in their order


@dataclass(frozen=True, slots=True)
class Stakes:
    """The stake of a network in one epoch: by `increments` of the effective balance, of whom is active alone."""

    source: str
    increments: Any
    active_increments: int
    base_reward: int  # of an increment

    def base_rewards(self, validators: Any) -> Any:
        """The base rewards of some validators; BadAnswer where one of them is not there."""
        if len(validators) and not 0 <= validators.min() <= validators.max() < len(self.increments):
            raise BadAnswer(self.source, "a committee with a validator that is not in the registry")
        return self.increments[validators] * self.base_reward

    def seat(self, spec: Spec) -> int:
        """What a seat in the sync committee brings for a slot, or costs where it is missed."""
        total = self.base_reward * self.active_increments * SYNC_WEIGHT // DENOMINATOR // spec.slots
        return total // spec.number("SYNC_COMMITTEE_SIZE")


def stakes_in(spec: Spec, epoch: int, states: States) -> Stakes:
    """The stake in an epoch, by the registry at its end."""
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    increments = states.effective_balance // increment
    active = max(1, int(increments[is_active(states, epoch)].sum()))
    base = increment * spec.number("BASE_REWARD_FACTOR") // isqrt(active * increment)
    return Stakes(spec.source, increments, active, base)


def is_active(states: States, epoch: int) -> Any:
    """Who is active in an epoch."""
    return (states.activation_epoch <= epoch) & (epoch < states.exit_epoch)


# --- votes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Voted:
    """Which votes for an epoch were in time by the end of a stretch of blocks, and what they brought their proposers,
    by slot."""

    flags: Any
    brought: Mapping[int, int]


def voted(
    spec: Spec,
    target: int,
    blocks: Sequence[AttestedBlock],
    roots: Mapping[int, str],
    committees: Committees,
    stakes: Stakes,
    flags: Any,
) -> Voted:
    """The votes for a target epoch in blocks of one epoch, after those that were in time before. `roots` are those of
    the newest block at each slot of the target."""
    flags, brought = flags.copy(), dict[int, int]()
    for block in blocks:
        for vote in block.body.attestations:
            if vote.data.target.epoch != target:
                continue
            who = voters(spec, vote, committees)
            base, gain = stakes.base_rewards(who), 0
            fresh = _in_time(spec, vote, block.slot, roots) & ~flags[who]
            for flag, weight in WEIGHTS.items():
                gain += int((base * weight)[(fresh & flag) > 0].sum())
            flags[who] |= fresh
            brought[block.slot] = brought.get(block.slot, 0) + gain // PROPOSER_SHARE
    return Voted(flags, brought)


def _in_time(spec: Spec, vote: Attestation, slot: int, roots: Mapping[int, str]) -> Any:
    """The flags of a vote that a block has."""
    delay, first, found = slot - vote.data.slot, vote.data.target.epoch * spec.slots, 0
    is_target = roots.get(first) == vote.data.target.root.lower()
    if delay <= isqrt(spec.slots):
        found |= SOURCE
    if is_target and (delay <= spec.slots or spec.is_at_least("deneb", spec.epoch(slot))):
        found |= TARGET
    if is_target and delay == 1 and roots.get(vote.data.slot) == vote.data.beacon_block_root.lower():
        found |= HEAD
    return np.uint8(found)


def voters(spec: Spec, vote: Attestation, committees: Committees) -> Any:
    """Who voted: of one committee, or since Electra of several."""
    indexes = [vote.data.index] if vote.committee_bits is None else np.flatnonzero(_bits(vote.committee_bits)).tolist()
    try:
        everybody = np.concatenate([committees[vote.data.slot, each] for each in indexes])
    except (KeyError, ValueError):
        raise BadAnswer(spec.source, f"a vote of slot {vote.data.slot} by a committee that there is not") from None
    bits = _bits(vote.aggregation_bits)
    # The last bit that is set closes the list.
    if not bits.any() or (size := int(np.flatnonzero(bits)[-1])) != len(everybody):
        raise BadAnswer(spec.source, f"a vote of slot {vote.data.slot} that does not fit its committees")
    return everybody[bits[:size].astype(bool)]


def _bits(written: str) -> Any:
    return np.unpackbits(np.frombuffer(bytes.fromhex(written[2:]), np.uint8), bitorder="little")


# --- what they bring -------------------------------------------------------------------------------------------------


def attestation_rewards(spec: Spec, epoch: int, after: States, flags: Any, *, is_leak: bool) -> tuple[Any, Any]:
    """What votes of an epoch bring when the next one ends, whose registry is `after`: one row of index, source, target,
    head, inactivity for each validator that has rewards, and what could have been, by effective balance. What a leak
    costs is not in it: it needs scores, and the balance shows it."""
    stakes = stakes_in(spec, epoch + 1, after)
    was_active = is_active(after, epoch)
    is_slashed = after.slashed & (after.activation_epoch <= epoch) & (epoch + 1 < after.withdrawable_epoch)
    base = stakes.increments * stakes.base_reward
    rows = np.zeros((len(after), 5), np.int64)
    rows[:, 0] = after.index
    sizes = np.unique(stakes.increments)
    ideal = np.zeros(len(sizes), np.int64)
    for at, (flag, weight) in enumerate(WEIGHTS.items(), 1):
        has = was_active & ~after.slashed & ((flags & flag) > 0)
        share = weight * max(1, int(stakes.increments[has].sum()))
        whole = stakes.active_increments * DENOMINATOR
        gain, could = (0, 0) if is_leak else (base * share // whole, sizes * stakes.base_reward * share // whole)
        lost = 0 if flag == HEAD else -(base * weight // DENOMINATOR)
        rows[:, at] = np.where(has, gain, lost)
        ideal += could
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    return rows[was_active | is_slashed], dict(zip((sizes * increment).tolist(), ideal.tolist(), strict=True))


def seated(block: BlockMessage, places: Sequence[tuple[int, int]], worth: int) -> dict[int, int]:
    """What a block brought the members of the sync committee that sit at some places, or cost them."""
    aggregate, found = block.body.sync_aggregate, dict[int, int]()
    bits = bytes.fromhex(aggregate.sync_committee_bits[2:]) if aggregate is not None else b""
    for place, validator in places:
        signed = place // 8 < len(bits) and bits[place // 8] >> (place % 8) & 1
        found[validator] = found.get(validator, 0) + (worth if signed else -worth)
    return found


def worth_of_seat(block: BlockMessage, places: Sequence[tuple[int, int]], told: Mapping[int, int]) -> int | None:
    """What a seat was worth in a block that is told to have brought that; None where no one number explains it."""
    worths = set[int]()
    for validator, net in seated(block, places, 1).items():
        if net:
            worths.add(told[validator] // net)
    if len(worths) != 1 or (worth := worths.pop()) < 0:
        return None
    return worth if seated(block, places, worth) == told else None


def slashing_gain(spec: Spec, epoch: int, effective: int) -> int:
    """What reporting who is slashed brings the proposer."""
    name = "WHISTLEBLOWER_REWARD_QUOTIENT"
    return effective // spec.number(f"{name}_ELECTRA" if spec.is_at_least("electra", epoch) else name)
