"""Read rewards, committees and duties of the selected validators. Each is requested once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeVar

import numpy as np

from chainfolio.adapters.beacon.block_responses import BlockMessage
from chainfolio.adapters.beacon.computed import ComputedRewards
from chainfolio.adapters.beacon.ideal import RawAttestationRewards, decode_ideal_rewards
from chainfolio.adapters.beacon.registry import PAGE_SIZE, encoded_indexes
from chainfolio.adapters.beacon.responses import BlockReward, ProposerDuty, SyncCommittee, SyncReward, TotalReward
from chainfolio.adapters.beacon.state_reader import StateReader, decode_rows
from chainfolio.adapters.beacon.validator_table import Array, BalanceTable, ValidatorTable
from chainfolio.adapters.beacon.voting import Seats, infer_seat_reward, sync_rewards
from chainfolio.errors import BadAnswer, HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.rest import ResourceNotFound

T = TypeVar("T")
NOT_SERVED: Final = (HistoryUnavailable, UnsupportedMethod)  # the value is computed, if it can be


@dataclass(frozen=True, slots=True)
class BlockRewards:
    """Rewards of a block, in gwei.

    Attributes:
        proposer: None if it is not selected.
        proposal: Of the proposer.
        sync: Of selected sync committee members: validator and reward.
    """

    proposer: int | None = None
    proposal: int = 0
    sync: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Reader(StateReader):
    """Reads one chain for the selected validators: blocks and states, and what they earned.

    Its methods raise the errors that those of `StateReader` raise.

    Attributes:
        computed: Computes rewards that no node serves; made when needed.
    """

    computed: ComputedRewards | None = None

    async def block_rewards(self, blocks: Sequence[BlockMessage]) -> list[BlockRewards]:
        """Return the rewards of blocks of one epoch, one per block in order, for the selected validators."""
        selected = [block for block in blocks if self.includes(block.proposer_index)]
        totals = await gather_all(map(self._proposal, selected))
        proposals = dict(zip((block.slot for block in selected), totals, strict=True))
        has_seats = any(block.body.sync_aggregate is not None for block in blocks)
        seats = await self.seats(self.spec.epoch(blocks[0].slot)) if has_seats else None
        rewards = list[BlockRewards]()
        for block in blocks:
            proposer = block.proposer_index if block.slot in proposals else None
            has_sync = seats is not None and seats.validators and block.body.sync_aggregate is not None
            sync = await self._sync(block, seats) if seats is not None and has_sync else {}
            rewards.append(BlockRewards(proposer, proposals.get(block.slot, 0), tuple(sorted(sync.items()))))
        return rewards

    async def _proposal(self, block: BlockMessage) -> int:
        """Return a proposer's reward in gwei, computed if it is not served; BadAnswer for contradictions."""
        try:
            reward = await self.read(block.slot, f"/eth/v1/beacon/rewards/blocks/{block.slot}", BlockReward)
        except NOT_SERVED:
            return await self.computed_rewards().proposal(block)
        parts = reward.attestations + reward.sync_aggregate + reward.proposer_slashings + reward.attester_slashings
        if reward.proposer_index != block.proposer_index or reward.total != parts:
            raise BadAnswer(self.nodes.key, f"the reward of the block at slot {block.slot} is not its proposer's")
        return reward.total

    async def _sync(self, block: BlockMessage, seats: Seats) -> dict[int, int]:
        """Return the sync rewards of selected members.

        The seat reward is the same in all blocks of an epoch. It is inferred from the first one that is read, and the
        balances at the end of the epoch confirm it.
        """
        epoch = self.spec.epoch(block.slot)
        seat_reward = await self.memo.get("seat_reward", epoch, lambda: self._infer_seat_reward(block, seats))
        if seat_reward is None:
            return await self._read_sync(block, seats)
        return sync_rewards(block, seats.seats, seat_reward)

    async def _infer_seat_reward(self, block: BlockMessage, seats: Seats) -> int | None:
        return infer_seat_reward(block, seats.seats, await self._read_sync(block, seats))

    async def read_sync_per_block(self, epoch: int) -> bool:
        """Discard an epoch's seat reward, which balances contradict; read sync rewards per block from now on.

        Return False if they were read per block already.
        """
        if await self.memo.get("seat_reward", epoch, _no_seat_reward) is None:
            return False
        self.memo.drop("seat_reward", epoch)
        self.memo.drop("slots", epoch)
        return await self.memo.get("seat_reward", epoch, _no_seat_reward) is None

    async def _read_sync(self, block: BlockMessage, seats: Seats) -> dict[int, int]:
        """Return sync rewards in gwei by selected validator, computed if the node does not serve them.

        Raises BadAnswer if the node gives none of a validator that has a seat.
        """
        ids = [] if self.selection is None else [str(each) for each in sorted(seats.validators)]
        path = f"/eth/v1/beacon/rewards/sync_committee/{block.slot}"
        try:
            rewards = await self.read(block.slot, path, list[SyncReward], ids)
        except NOT_SERVED:
            return await self.computed_rewards().sync_rewards(block, seats.seats)
        sync: dict[int, int] = {}
        for each in rewards:
            if each.validator_index in seats.validators:
                sync[each.validator_index] = sync.get(each.validator_index, 0) + each.reward
        if missing := seats.validators - sync.keys():
            raise BadAnswer(self.nodes.key, f"no sync reward of validator {min(missing)} at slot {block.slot}")
        return sync

    def computed_rewards(self) -> ComputedRewards:
        """Return the rewards that are computed for the whole network, made on the first call."""
        if self.computed is None:
            is_whole = self.selection is None
            self.computed = ComputedRewards(
                self if is_whole else StateReader(self.nodes, self.spec, None, block_memo=self.block_memo)
            )
        return self.computed

    @property
    def network_reader(self) -> StateReader | None:
        """The reader of the whole network; None if only selected validators were read so far."""
        if self.selection is None:
            return self
        return self.computed.network if self.computed is not None and self.computed.is_used else None

    @property
    def has_served_rewards(self) -> bool:
        """True if nodes have served all rewards so far."""
        return self.computed is None or not self.computed.is_used

    async def seats(self, epoch: int) -> Seats | None:
        """Return the selected seats in the sync committee of an epoch, None before Altair."""
        if not self.spec.is_at_least("altair", epoch):
            return None
        period = epoch // self.spec.number("EPOCHS_PER_SYNC_COMMITTEE_PERIOD")
        return await self.memo.get("committee", period, lambda: self._read_seats(epoch))

    async def _read_seats(self, epoch: int) -> Seats:
        """Return the seats of selected validators in the sync committee of an epoch."""
        slot = epoch * self.spec.slots_per_epoch
        path = f"/eth/v1/beacon/states/{slot}/sync_committees?epoch={epoch}"
        members = (await self.read(slot, path, SyncCommittee)).validators
        seats = tuple((position, each) for position, each in enumerate(members) if self.includes(each))
        return Seats(seats, frozenset(validator for _, validator in seats))

    async def attestations(self, epoch: int) -> tuple[dict[int, int], Array]:
        """Return ideal attestation rewards by effective balance, and those of selected validators.

        The latter are rows of index, source, target, head, inactivity, by index; computed if the node has no rewards.
        """
        return await self.memo.get("attestations", epoch, lambda: self._attestations(epoch))

    async def _attestations(self, epoch: int) -> tuple[dict[int, int], Array]:
        """Read attestation rewards from the node; compute them if it does not serve them."""
        balances = await self.balances(epoch + 1)
        try:
            return await self._read_attestations(epoch, balances)
        except NOT_SERVED:
            ideal, rows = await self.computed_rewards().attestations(epoch)
            return ideal, rows[np.isin(rows[:, 0], balances.index)]

    async def _read_attestations(self, epoch: int, balances: BalanceTable) -> tuple[dict[int, int], Array]:
        """Read ideal rewards by effective balance, and rows of rewards by ascending index, in pages.

        Ideal rewards are those for the balances of selected validators, or all. Validators without rewards are absent.
        Raises BadAnswer for a validator that comes twice or was not requested.
        """
        ideal: dict[int, int] = {}
        table = balances if self.selection and isinstance(balances, ValidatorTable) else None
        needed = None if table is None else set(table.effective_balance.tolist())
        parts = [np.zeros((0, 5), np.int64)]
        for start in range(0, len(balances), PAGE_SIZE):
            indexes = balances.index[start : start + PAGE_SIZE]
            is_full_page = self.selection is None and start + PAGE_SIZE <= len(balances)
            ids = encoded_indexes(start, PAGE_SIZE) if is_full_page else [str(each) for each in indexes.tolist()]
            path = f"/eth/v1/beacon/rewards/attestations/{epoch}"
            response = await self.read(self.last_slot(epoch + 1), path, RawAttestationRewards, ids)
            ideal |= decode_ideal_rewards(self.nodes.key, response.ideal_rewards, needed)
            parts.append(await decode_rows(len(response.total_rewards), _reward_rows, response.total_rewards))
        rows = np.concatenate(parts)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        if (rows[1:, 0] == rows[:-1, 0]).any() or not balances.locate(rows[:, 0])[1].all():
            raise BadAnswer(self.nodes.key, f"rewards of epoch {epoch} twice, or of a validator that was not requested")
        return ideal, rows

    async def proposer_duties(self, epoch: int) -> dict[int, int] | None:
        """Return the proposer of each slot of an epoch, None if the node does not serve it for past epochs."""
        return await self.memo.get("duties", epoch, lambda: self._read_duties(epoch))

    async def _read_duties(self, epoch: int) -> dict[int, int] | None:
        """Return the proposers of an epoch by slot, None without a usable answer; BadAnswer for other slots."""
        try:
            duties = await self.nodes.read(f"/eth/v1/validator/duties/proposer/{epoch}", list[ProposerDuty])
        except (ResourceNotFound, BadAnswer):  # a refusal, which many nodes give for the past
            return None
        slots = range(epoch * self.spec.slots_per_epoch, self.last_slot(epoch) + 1)
        if {each.slot for each in duties} - {0} != set(slots) - {0}:
            raise BadAnswer(self.nodes.key, f"proposers of other slots than those of epoch {epoch}")
        return {each.slot: each.validator_index for each in duties}


def _reward_rows(rewards: Sequence[TotalReward]) -> Array:
    count = len(rewards)
    names = ("validator_index", "source", "target", "head", "inactivity")
    rows = np.empty((count, 5), np.int64)
    for column, name in enumerate(names):
        rows[:, column] = np.fromiter(map(attrgetter(name), rewards), np.int64, count)
    if rewards and rewards[0].inclusion_delay is not None:  # before Altair
        rows[:, 4] += np.fromiter((each.inclusion_delay or 0 for each in rewards), np.int64, count)
    return rows


async def _no_seat_reward() -> int | None:
    return None


async def gather_all(requests: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results in order. The first error cancels the other requests and is raised."""
    tasks = [asyncio.ensure_future(each) for each in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
