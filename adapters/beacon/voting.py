"""Compute rewards of attesting, proposing and sync committees by the rules of Altair and later.

Used if no node serves rewards. Pure, in whole gwei; the names are those of the consensus specification. Arrays have one
entry for each validator of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Final

import numpy as np

from chainfolio.adapters.beacon.block_responses import Attestation, AttestedBlock, BlockMessage
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import (
    Array,
    ValidatorTable,
)
from chainfolio.errors import BadAnswer

# Constants of the rules, the same in every network.
SOURCE, TARGET, HEAD = 1, 2, 4
WEIGHTS: Final = {SOURCE: 14, TARGET: 26, HEAD: 14}
SYNC_WEIGHT, PROPOSER_WEIGHT, DENOMINATOR = 2, 8, 64
PROPOSER_SHARE: Final = (DENOMINATOR - PROPOSER_WEIGHT) * DENOMINATOR // PROPOSER_WEIGHT

Committees = Mapping[tuple[int, int], Array]  # by slot and index: the validators in their order
Seat = tuple[int, int]  # position in the sync committee, validator


@dataclass(frozen=True, slots=True)
class NetworkStake:
    """The stake of a network in one epoch.

    Attributes:
        source: The nodes, for errors.
        increments: Effective balance of each validator, in increments.
        active_increments: Sum of active validators.
        base_reward: Gwei per increment.
    """

    source: str
    increments: Array
    active_increments: int
    base_reward: int

    def base_rewards(self, validators: Array) -> Array:
        """Return the base rewards of some validators.

        Raises:
            BadAnswer: A validator is not in the registry.
        """
        if len(validators) and not 0 <= validators.min() <= validators.max() < len(self.increments):
            raise BadAnswer(self.source, "a committee with a validator that is not in the registry")
        rewards: Array = self.increments[validators] * self.base_reward
        return rewards

    def seat_reward(self, spec: Spec) -> int:
        """Return the reward of a sync committee seat for a slot, which is also the penalty for missing it."""
        total = self.base_reward * self.active_increments * SYNC_WEIGHT // DENOMINATOR // spec.slots_per_epoch
        return total // spec.number("SYNC_COMMITTEE_SIZE")


def network_stake(spec: Spec, epoch: int, registry: ValidatorTable) -> NetworkStake:
    """Return the stake in an epoch, from the registry at its end; at least one increment is active."""
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    increments = registry.effective_balance // increment
    active = max(1, int(increments[is_active(registry, epoch)].sum()))
    base_reward = increment * spec.number("BASE_REWARD_FACTOR") // isqrt(active * increment)
    return NetworkStake(spec.source, increments, active, base_reward)


def is_active(registry: ValidatorTable, epoch: int) -> Array:
    """Return a mask of the validators that are active in an epoch."""
    active: Array = (registry.activation_epoch <= epoch) & (epoch < registry.exit_epoch)
    return active


# --- attestations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelyVotes:
    """The timely votes for a target epoch, up to some block.

    Attributes:
        flags: SOURCE, TARGET and HEAD of each validator.
        proposer_rewards: Gwei that the last counted epoch's blocks earned by including votes, by slot.
    """

    flags: Array
    proposer_rewards: Mapping[int, int]


def count_votes(
    spec: Spec,
    target: int,
    blocks: Sequence[AttestedBlock],
    roots: Mapping[int, str],
    committees: Committees,
    stake: NetworkStake,
    flags: Array,
) -> TimelyVotes:
    """Return earlier votes with those for a target epoch in the blocks of one epoch.

    Also returned is, by slot, the gwei that a proposer gets for flags that a validator did not have yet.

    Args:
        target: The epoch that the votes are for.
        blocks: All blocks of one epoch: the target or the next.
        roots: Root of the newest block at each slot of the target.
        committees: Of the target.
        stake: In the epoch of the blocks.
        flags: Timely votes in earlier blocks. They are copied.

    Raises:
        BadAnswer: A vote does not fit its committees.
    """
    flags, proposer_rewards = flags.copy(), dict[int, int]()
    for block in blocks:
        for vote in block.body.attestations:
            if vote.data.target.epoch != target:
                continue
            validators = attesting_validators(spec, vote, committees)
            base, reward = stake.base_rewards(validators), 0
            new_flags = _timely_flags(spec, vote, block.slot, roots) & ~flags[validators]
            for flag, weight in WEIGHTS.items():
                reward += int((base * weight)[(new_flags & flag) > 0].sum())
            flags[validators] |= new_flags
            proposer_rewards[block.slot] = proposer_rewards.get(block.slot, 0) + reward // PROPOSER_SHARE
    return TimelyVotes(flags, proposer_rewards)


def _timely_flags(spec: Spec, vote: Attestation, slot: int, roots: Mapping[int, str]) -> np.uint8:
    """Return the timely flags (SOURCE, TARGET, HEAD) of a vote that is included at a slot, 0 if none.

    Each has its own maximum delay; TARGET needs the right target, and HEAD the right head too.
    """
    delay, first_slot, flags = slot - vote.data.slot, vote.data.target.epoch * spec.slots_per_epoch, 0
    is_target = roots.get(first_slot) == vote.data.target.root.lower()
    if delay <= isqrt(spec.slots_per_epoch):
        flags |= SOURCE
    if is_target and (delay <= spec.slots_per_epoch or spec.is_at_least("deneb", spec.epoch(slot))):
        flags |= TARGET
    if is_target and delay == 1 and roots.get(vote.data.slot) == vote.data.beacon_block_root.lower():
        flags |= HEAD
    return np.uint8(flags)


def attesting_validators(spec: Spec, vote: Attestation, committees: Committees) -> Array:
    """Return the validators behind a vote: of one committee, or since Electra of several.

    Raises:
        BadAnswer: The vote does not fit its committees.
    """
    indexes = [vote.data.index] if vote.committee_bits is None else np.flatnonzero(_bits(vote.committee_bits)).tolist()
    try:
        members = np.concatenate([committees[vote.data.slot, each] for each in indexes])
    except (KeyError, ValueError):
        raise BadAnswer(spec.source, f"a vote of slot {vote.data.slot} by a committee that there is not") from None
    bits = _bits(vote.aggregation_bits)
    # The last bit that is set closes the list.
    if not bits.any() or (size := int(np.flatnonzero(bits)[-1])) != len(members):
        raise BadAnswer(spec.source, f"a vote of slot {vote.data.slot} that does not fit its committees")
    attesting: Array = members[bits[:size].astype(bool)]
    return attesting


def _bits(text: str) -> Array:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text[2:]), np.uint8), bitorder="little")


# --- rewards ---------------------------------------------------------------------------------------------------------


def attestation_rewards(
    spec: Spec, epoch: int, registry: ValidatorTable, flags: Array, *, is_leak: bool
) -> tuple[Array, dict[int, int]]:
    """Return the rewards for votes of an epoch, which are paid when the next one ends.

    Penalties of an inactivity leak are not included: they need scores, and are computed from balances instead.

    Args:
        epoch: The epoch of the votes.
        registry: At the end of the next epoch.
        flags: Timely votes of each validator.
        is_leak: True if no epoch became final for so long that votes are not rewarded.

    Returns:
        A row of index, source, target, head, inactivity for each validator with duties, and the ideal reward by
        effective balance.
    """
    stake = network_stake(spec, epoch + 1, registry)
    was_active = is_active(registry, epoch)
    is_slashed = registry.slashed & (registry.activation_epoch <= epoch) & (epoch + 1 < registry.withdrawable_epoch)
    base = stake.increments * stake.base_reward
    rows = np.zeros((len(registry), 5), np.int64)
    rows[:, 0] = registry.index
    sizes = np.unique(stake.increments)
    ideal = np.zeros(len(sizes), np.int64)
    for column, (flag, weight) in enumerate(WEIGHTS.items(), 1):
        has_flag = was_active & ~registry.slashed & ((flags & flag) > 0)
        share = weight * max(1, int(stake.increments[has_flag].sum()))
        divisor = stake.active_increments * DENOMINATOR
        if not is_leak:
            ideal += sizes * stake.base_reward * share // divisor
        reward = 0 if is_leak else base * share // divisor
        penalty = 0 if flag == HEAD else -(base * weight // DENOMINATOR)
        rows[:, column] = np.where(has_flag, reward, penalty)
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    return rows[was_active | is_slashed], dict(zip((sizes * increment).tolist(), ideal.tolist(), strict=True))


def sync_rewards(block: BlockMessage, seats: Sequence[Seat], seat_reward: int) -> dict[int, int]:
    """Return the sync committee rewards of a block for some seats, by validator.

    A seat without a signature costs `seat_reward` gwei, also if the block has no aggregate.
    """
    aggregate, rewards = block.body.sync_aggregate, dict[int, int]()
    bits = bytes.fromhex(aggregate.sync_committee_bits[2:]) if aggregate is not None else b""
    for position, validator in seats:
        has_signed = position // 8 < len(bits) and bits[position // 8] >> (position % 8) & 1
        rewards[validator] = rewards.get(validator, 0) + (seat_reward if has_signed else -seat_reward)
    return rewards


def infer_seat_reward(block: BlockMessage, seats: Sequence[Seat], rewards: Mapping[int, int]) -> int | None:
    """Return the seat reward that explains a block's sync rewards, None if no single number does."""
    candidates = set[int]()
    for validator, net_seats in sync_rewards(block, seats, 1).items():
        if net_seats:
            candidates.add(rewards[validator] // net_seats)
    if len(candidates) != 1 or (seat_reward := candidates.pop()) < 0:
        return None
    return seat_reward if sync_rewards(block, seats, seat_reward) == rewards else None


def whistleblower_reward(spec: Spec, epoch: int, effective_balance: int) -> int:
    """Return the proposer's reward for including the slashing of a validator."""
    name = "WHISTLEBLOWER_REWARD_QUOTIENT"
    return effective_balance // spec.number(f"{name}_ELECTRA" if spec.is_at_least("electra", epoch) else name)


@dataclass(frozen=True, slots=True)
class Seats:
    """The seats of the selected validators in a sync committee."""

    seats: tuple[Seat, ...]
    validators: frozenset[int]
