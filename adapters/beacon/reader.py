"""Read blocks by slot, and rewards, validators and duties by epoch. Each is requested once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, ParamSpec, TypeVar

import numpy as np

from chainfolio.adapters.beacon.block_responses import BlockMessage, SignedBlock
from chainfolio.adapters.beacon.computed import ComputedRewards
from chainfolio.adapters.beacon.ideal import RawAttestationRewards, decode_ideal_rewards
from chainfolio.adapters.beacon.memo import LIMITS, Memo
from chainfolio.adapters.beacon.node import Nodes, RequestBody
from chainfolio.adapters.beacon.registry import PAGE_SIZE, Registry, encoded_indexes
from chainfolio.adapters.beacon.responses import (
    FORKS,
    BlockReward,
    Header,
    KeyedRow,
    PendingConsolidation,
    PendingDeposit,
    ProposerDuty,
    Randao,
    SyncCommittee,
    SyncReward,
    TotalReward,
    ValidatorState,
)
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import (
    Array,
    BalanceTable,
    ValidatorTable,
    concatenate,
    validator_table,
)
from chainfolio.adapters.beacon.voting import Seats, infer_seat_reward, sync_rewards
from chainfolio.errors import BadAnswer, HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.rest import ResourceNotFound

T = TypeVar("T")
P = ParamSpec("P")
THREAD_MIN_ROWS: Final = 2_000  # fewer rows are decoded without a thread
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
class Reader:
    """Reads one chain for the selected validators.

    Unless they say otherwise, its methods raise HistoryUnavailable if no node has the state any more, BadAnswer if a
    response is malformed, and other SourceErrors if no node answers.

    Attributes:
        selection: Indexes of the selected validators, None for all.
        memo: Caches results.
        block_memo: Caches blocks; `memo` if None. Readers with different selections share it.
        registry: Reads all validators; made when needed.
        computed: Computes rewards that no node serves; made when needed.
        includes: Returns True for the index of a selected validator.
    """

    nodes: Nodes
    spec: Spec
    selection: tuple[int, ...] | None
    memo: Memo = field(default_factory=lambda: Memo(LIMITS))
    block_memo: Memo | None = None
    registry: Registry | None = None
    computed: ComputedRewards | None = None
    includes: Callable[[int], bool] = field(init=False)

    def __post_init__(self) -> None:
        self.includes = _includes_all if self.selection is None else frozenset(self.selection).__contains__

    # --- slots -------------------------------------------------------------------------------------------------------

    async def block(self, slot: int) -> BlockMessage | None:
        """Return the block of a slot, None if the node has none: the proposal was missed, or the node lost it."""
        return await (self.block_memo or self.memo).get("block", slot, lambda: self._read_block(slot))

    async def read_blocks(self, slots: Iterable[int]) -> list[BlockMessage]:
        """Return the blocks of some slots, in order, without missed ones; the first error is raised at once."""
        memo = self.block_memo or self.memo
        tasks = [memo.task("block", slot, partial(self._read_block, slot)) for slot in slots]
        if running := [task for task in tasks if not task.done()]:
            # Takes one callback a task, where gathering shielded tasks takes three; and it cancels none of them.
            await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise error
        return [block for task in tasks if (block := task.result()) is not None]

    async def _read_block(self, slot: int) -> BlockMessage | None:
        """Return the block of a slot, None if the node has none; raise UnsupportedMethod for a new fork."""
        try:
            response = await self.nodes.fetch(f"/eth/v2/beacon/blocks/{slot}", SignedBlock)
        except ResourceNotFound:
            return None
        if response.version not in FORKS:
            raise UnsupportedMethod(
                self.nodes.key,
                f"slot {slot} has a block of the fork `{response.version:.20}`, which is not known here",
                remedy="upgrade Chainfolio, then index on",
            )
        block = response.data.message
        if block.slot != slot:
            raise BadAnswer(self.nodes.key, f"the block of slot {block.slot} in the place of {slot}")
        return block

    async def header(self, slot: int) -> Header:
        """Return the header at a slot.

        Raises:
            ResourceNotFound: There is none.
        """
        return await self.nodes.read(f"/eth/v1/beacon/headers/{slot}", Header)

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
        """Return sync rewards in gwei by selected validator, computed if the node does not serve them."""
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
                self if is_whole else Reader(self.nodes, self.spec, None, block_memo=self.block_memo)
            )
        return self.computed

    @property
    def network_reader(self) -> Reader | None:
        """The reader of the whole network; None if only selected validators were read so far."""
        if self.selection is None:
            return self
        return self.computed.network if self.computed is not None and self.computed.is_used else None

    @property
    def has_served_rewards(self) -> bool:
        """True if nodes have served all rewards so far."""
        return self.computed is None or not self.computed.is_used

    # --- epochs ------------------------------------------------------------------------------------------------------

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

    def last_slot(self, epoch: int) -> int:
        """Return the last slot of an epoch."""
        return (epoch + 1) * self.spec.slots_per_epoch - 1

    async def validators(self, epoch: int) -> ValidatorTable:
        """Return the selected validators at the end of an epoch."""
        return await self.memo.get("validators", epoch, lambda: self._read_validators(self.last_slot(epoch)))

    async def _read_validators(self, slot: int) -> ValidatorTable:
        if self.selection is None:
            return await self._registry().validators(slot, self.spec)
        return await self.validators_at_slot(slot, self.selection)

    def _registry(self) -> Registry:
        self.registry = self.registry or Registry(self.nodes)
        return self.registry

    async def balances(self, epoch: int) -> BalanceTable:
        """Return the balances of the selected validators at the end of an epoch.

        For a whole network only the balances are read, a tenth of the bytes of its validators.
        """
        if self.selection is not None or self.memo.has("validators", epoch):
            return await self.validators(epoch)
        return await self.memo.get("balances", epoch, lambda: self._read_balances(self.last_slot(epoch)))

    async def _read_balances(self, slot: int) -> BalanceTable:
        try:
            return await self._registry().balances(slot)
        except UnsupportedMethod:
            return await self._registry().validators(slot, self.spec)

    async def nearby_validators(self, epoch: int) -> ValidatorTable:
        """Return the selected validators at the end of an epoch, or of the one before if only that is cached."""
        return await self.validators(epoch if self.memo.has("validators", epoch) or not epoch else epoch - 1)

    async def select_validators(self, epoch: int, indexes: Sequence[int]) -> ValidatorTable:
        """Return any validators at the end of an epoch (-1: at genesis), by ascending index."""
        if epoch >= 0 and self.memo.has("validators", epoch):
            table = await self.validators(epoch)
            array = np.array(indexes, np.int64)
            if table.locate(array)[1].all():
                return table.select(array)
        return await self.validators_at_slot(self.last_slot(epoch) if epoch >= 0 else 0, indexes)

    async def indexes_of_keys(self, epoch: int, pubkeys: Collection[str]) -> dict[str, int]:
        """Return indexes of selected validators at the end of an epoch by public key, without unknown keys."""
        if self.selection is not None:
            table = await self.validators(epoch)
            pairs = zip((f"0x{bytes(each).hex()}" for each in table.pubkey), table.index.tolist(), strict=True)
            return {key: index for key, index in pairs if key in pubkeys}
        keys, indexes = sorted(pubkeys), dict[str, int]()
        for start in range(0, len(keys), PAGE_SIZE):
            for each in await self.find_validators(self.last_slot(epoch), keys[start : start + PAGE_SIZE]):
                indexes[each.validator.pubkey.lower()] = each.index
        return indexes

    def release(self, epoch: int) -> None:
        """Remove the results for a whole network that no epoch after a settled one needs from the cache."""
        if self.selection is None:
            for kind, key in (("attestations", epoch - 2), ("attestations", epoch), ("reconciliation", epoch)):
                self.memo.drop(kind, key)

    async def genesis_validators(self, later: BalanceTable) -> ValidatorTable:
        """Return those of genesis, of a selection only those that `later` has. The first result is cached."""
        if self.selection is None:
            return await self.memo.get("validators", -1, lambda: self._read_validators(0))
        return await self.memo.get("validators", -1, lambda: self.validators_at_slot(0, later.index.tolist()))

    async def validators_at_slot(self, slot: int, indexes: Sequence[int]) -> ValidatorTable:
        """Return any validators in the state after a slot, by ascending index, without absent ones.

        Raises:
            BadAnswer: The node returned other validators.
        """
        if not indexes:
            return validator_table(self.nodes.key, [])
        path, parts = f"/eth/v1/beacon/states/{slot}/validators", list[ValidatorTable]()
        for start in range(0, len(indexes), PAGE_SIZE):
            body = {"ids": [str(each) for each in indexes[start : start + PAGE_SIZE]]}
            rows = await self.read(slot, path, list[KeyedRow], body)
            parts.append(await _decode(len(rows), validator_table, self.nodes.key, rows))
        table = concatenate(parts)
        if not set(table.index.tolist()) <= set(indexes):
            raise BadAnswer(self.nodes.key, "a validator that was not requested")
        return table

    async def find_validators(self, slot: int, ids: Sequence[str]) -> list[ValidatorState]:
        """Return the validators with some indexes or public keys in the state after a slot."""
        return await self.read(slot, f"/eth/v1/beacon/states/{slot}/validators", list[ValidatorState], {"ids": ids})

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
        """Read ideal and actual rewards by pages, sorted; BadAnswer for doubled or unrequested validators."""
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
            parts.append(await _decode(len(response.total_rewards), _reward_rows, response.total_rewards))
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

    async def randao_mix(self, epoch: int, state_epoch: int) -> bytes | None:
        """Return an epoch's RANDAO mix (negative: of genesis), from the state at the end of `state_epoch`.

        None if no node has that state, or if the request is refused or the response malformed. Not cached.
        """
        state = self.last_slot(state_epoch) if epoch >= 0 else "genesis"
        path = f"/eth/v1/beacon/states/{state}/randao?epoch={max(0, epoch)}"
        try:
            return bytes.fromhex((await self.nodes.read(path, Randao)).randao[2:])
        except (ResourceNotFound, BadAnswer):
            return None

    async def pending_queues(self, slot: int) -> tuple[list[PendingDeposit], list[PendingConsolidation]]:
        """Return the queues of deposits and consolidations in the state after a slot."""
        path = f"/eth/v1/beacon/states/{slot}/pending_consolidations"
        return await self.pending_deposits(slot), await self.read(slot, path, list[PendingConsolidation])

    async def pending_deposits(self, slot: int) -> list[PendingDeposit]:
        """Return the queue of deposits in the state after a slot."""
        return await self.read(slot, f"/eth/v1/beacon/states/{slot}/pending_deposits", list[PendingDeposit])

    async def read(self, slot: int, path: str, kind: type[T], body: RequestBody = None) -> T:
        """Return the data of a path about a past slot.

        Raises:
            HistoryUnavailable: No node has it.
        """
        try:
            return await self.nodes.read(path, kind, body)
        except ResourceNotFound as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None


async def _decode(count: int, decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Decode rows, in a thread if there are many."""
    return await asyncio.to_thread(decode, *args, **kwargs) if count > THREAD_MIN_ROWS else decode(*args, **kwargs)


def _reward_rows(rewards: Sequence[TotalReward]) -> Array:
    count = len(rewards)
    names = ("validator_index", "source", "target", "head", "inactivity")
    rows = np.empty((count, 5), np.int64)
    for column, name in enumerate(names):
        rows[:, column] = np.fromiter(map(attrgetter(name), rewards), np.int64, count)
    if rewards and rewards[0].inclusion_delay is not None:  # before Altair
        rows[:, 4] += np.fromiter((each.inclusion_delay or 0 for each in rewards), np.int64, count)
    return rows


def _includes_all(validator: int) -> bool:
    return True


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
