"""What is read of a chain: blocks by slot, and the rewards, states and duties of epochs. Each is asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from chainfolio.adapters.beacon.answers import (
    FORKS,
    BlockMessage,
    BlockReward,
    Header,
    KeyedRow,
    PendingConsolidation,
    PendingDeposit,
    ProposerDuty,
    Randao,
    SignedBlock,
    SyncCommittee,
    SyncReward,
    TotalReward,
    ValidatorState,
)
from chainfolio.adapters.beacon.computed import Computed
from chainfolio.adapters.beacon.ideal import ToldRewards, ideal_of
from chainfolio.adapters.beacon.memo import Memo
from chainfolio.adapters.beacon.node import Nodes
from chainfolio.adapters.beacon.registry import PIECE, Registry, numbered
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import Held, States, columns, joined
from chainfolio.adapters.beacon.voting import seated, worth_of_seat
from chainfolio.errors import BadAnswer, HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.rest import Absent

T = TypeVar("T")
P = ParamSpec("P")
LITTLE: Final = 2_000  # rows
NOT_TOLD: Final = (
    HistoryUnavailable,
    UnsupportedMethod,
)  # 404, 405 or 501: then it is computed, as far as the rest is there
LIMITS: Final = {
    "block": 4096,
    "slots": 8,
    "states": 6,
    "held": 4,
    "attestations": 6,
    "closing": 4,
    "committee": 8,
    "duties": 64,
    "worth": 64,
}
# A million validators fill 40 MB with each of these: no more of them than two epochs need that follow each other.
WHOLE_LIMITS: Final = {**LIMITS, "states": 4, "held": 2, "attestations": 2, "closing": 3}
MANY: Final = 20_000  # validators: of so many no more spans are read at once than of a whole network
TWO_SPANS: Final = 16  # epochs that two spans of some validators read at once


def limits_of(epochs: int) -> dict[str, int]:
    """Of some validators so many epochs are read at once, by several spans."""
    return LIMITS | dict.fromkeys(("slots", "states", "attestations", "closing"), epochs)


@dataclass(frozen=True, slots=True)
class Seats:
    """The seats of a sync committee: those of wanted validators, as (place, validator), and who they are."""

    places: tuple[tuple[int, int], ...]
    wanted: frozenset[int]


@dataclass(frozen=True, slots=True)
class Earned:
    """What a block brought: to its proposer, and to the wanted members of the sync committee."""

    proposer: int | None = None
    proposal: int = 0
    sync: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Reader:
    """Reads one chain for some validators; `wanted` None stands for all of them. Blocks are the same for all readers:
    `blocks` has them, where that is another memory."""

    nodes: Nodes
    spec: Spec
    wanted: tuple[int, ...] | None
    memo: Memo = field(default_factory=lambda: Memo(LIMITS))
    blocks: Memo | None = None
    registry: Registry | None = None
    computed: Computed | None = None
    is_wanted: Callable[[int], bool] = field(init=False)  # whether a validator is one of those that are read

    def __post_init__(self) -> None:
        self.is_wanted = _anybody if self.wanted is None else frozenset(self.wanted).__contains__

    # --- slots -------------------------------------------------------------------------------------------------------

    async def block(self, slot: int) -> BlockMessage | None:
        """The block of a slot; None where its proposal was missed, as far as one node knows."""
        return await (self.blocks or self.memo).get("block", slot, lambda: self._block(slot))

    async def blocks_of(self, slots: Iterable[int]) -> list[BlockMessage]:
        """The blocks of some slots, without those that were missed; the first error ends it."""
        asked = [self._asked(slot) for slot in slots]
        if on_their_way := [each for each in asked if not each.done()]:
            # One callback each, where to gather what is shielded takes three; and it cancels none of them.
            await asyncio.wait(on_their_way, return_when=asyncio.FIRST_EXCEPTION)
            for each in asked:
                if each.done() and (error := each.exception()) is not None:
                    raise error
        return [block for each in asked if (block := each.result()) is not None]

    def _asked(self, slot: int) -> asyncio.Task[BlockMessage | None]:
        return (self.blocks or self.memo).asked("block", slot, lambda: self._block(slot))

    async def _block(self, slot: int) -> BlockMessage | None:
        try:
            found = await self.nodes.told(f"/eth/v2/beacon/blocks/{slot}", SignedBlock)
        except Absent:
            return None
        if found.version not in FORKS:
            raise UnsupportedMethod(
                self.nodes.key,
                f"slot {slot} has a block of the fork `{found.version:.20}`, which is not known here",
                remedy="upgrade Chainfolio, then index on",
            )
        if found.data.message.slot != slot:
            raise BadAnswer(self.nodes.key, f"the block of slot {found.data.message.slot} in the place of {slot}")
        return found.data.message

    async def header(self, which: int | str) -> Header:
        """The header at a slot, or of a root. Absent where there is none."""
        return await self.nodes.data(f"/eth/v1/beacon/headers/{which}", Header)

    async def earned(self, blocks: Sequence[BlockMessage]) -> list[Earned]:
        """What blocks of one epoch brought to the wanted validators."""
        own = [block for block in blocks if self.is_wanted(block.proposer_index)]
        proposals = dict(zip((block.slot for block in own), await gathered(map(self._proposal, own)), strict=True))
        has_seats = any(block.body.sync_aggregate is not None for block in blocks)
        seats, found = await self.seats(self.spec.epoch(blocks[0].slot)) if has_seats else None, list[Earned]()
        for block in blocks:
            proposer = block.proposer_index if block.slot in proposals else None
            is_seated = seats is not None and seats.wanted and block.body.sync_aggregate is not None
            sync = await self._sync(block, seats) if seats is not None and is_seated else {}
            found.append(Earned(proposer, proposals.get(block.slot, 0), tuple(sorted(sync.items()))))
        return found

    async def _proposal(self, block: BlockMessage) -> int:
        try:
            reward = await self.of(block.slot, f"/eth/v1/beacon/rewards/blocks/{block.slot}", BlockReward)
        except NOT_TOLD:
            return await self.computing().proposal(block)
        parts = reward.attestations + reward.sync_aggregate + reward.proposer_slashings + reward.attester_slashings
        if reward.proposer_index != block.proposer_index or reward.total != parts:
            raise BadAnswer(self.nodes.key, f"the reward of the block at slot {block.slot} is not its proposer's")
        return reward.total

    async def _sync(self, block: BlockMessage, seats: Seats) -> dict[int, int]:
        """What a block brought the wanted members of the sync committee. A seat is worth the same in all blocks of an
        epoch: the first that is asked about tells it of all, and the balances at its end bear it out."""
        epoch = self.spec.epoch(block.slot)
        worth = await self.memo.get("worth", epoch, lambda: self._worth(block, seats))
        return await self._told_sync(block, seats) if worth is None else seated(block, seats.places, worth)

    async def _worth(self, block: BlockMessage, seats: Seats) -> int | None:
        """What a seat is worth, by what a block brought; None where that is not the same for all."""
        return worth_of_seat(block, seats.places, await self._told_sync(block, seats))

    async def doubts(self, epoch: int) -> bool:
        """Balances do not bear out what seats are worth: whether each block of an epoch can be asked about instead."""
        if await self.memo.get("worth", epoch, _nothing) is None:
            return False
        self.memo.drop("worth", epoch)
        self.memo.drop("slots", epoch)
        return await self.memo.get("worth", epoch, _nothing) is None

    async def _told_sync(self, block: BlockMessage, seats: Seats) -> dict[int, int]:
        asked = [] if self.wanted is None else [str(each) for each in sorted(seats.wanted)]
        path = f"/eth/v1/beacon/rewards/sync_committee/{block.slot}"
        try:
            rewards = await self.of(block.slot, path, list[SyncReward], asked)
        except NOT_TOLD:
            return await self.computing().sync(block, seats.places)
        sync: dict[int, int] = {}
        for each in rewards:
            if each.validator_index in seats.wanted:
                sync[each.validator_index] = sync.get(each.validator_index, 0) + each.reward
        if missing := seats.wanted - sync.keys():
            raise BadAnswer(self.nodes.key, f"no sync reward of validator {min(missing)} at slot {block.slot}")
        return sync

    def computing(self) -> Computed:
        """What computes rewards that no node says, of the whole network."""
        if self.computed is None:
            everybody = self if self.wanted is None else Reader(self.nodes, self.spec, None, blocks=self.blocks)
            self.computed = Computed(everybody)
        return self.computed

    @property
    def of_everybody(self) -> Reader | None:
        """The reader of the whole network; None if only some validators are read."""
        if self.wanted is None:
            return self
        return self.computed.everybody if self.computed is not None and self.computed.is_used else None

    @property
    def is_told(self) -> bool:
        """Whether nodes have said all rewards so far."""
        return self.computed is None or not self.computed.is_used

    # --- epochs ------------------------------------------------------------------------------------------------------

    async def seats(self, epoch: int) -> Seats | None:
        """The sync committee of an epoch; None before Altair."""
        if not self.spec.is_at_least("altair", epoch):
            return None
        period = epoch // self.spec.number("EPOCHS_PER_SYNC_COMMITTEE_PERIOD")
        return await self.memo.get("committee", period, lambda: self._seats(epoch))

    async def _seats(self, epoch: int) -> Seats:
        slot = epoch * self.spec.slots
        path = f"/eth/v1/beacon/states/{slot}/sync_committees?epoch={epoch}"
        members = tuple((await self.of(slot, path, SyncCommittee)).validators)
        places = tuple((at, each) for at, each in enumerate(members) if self.is_wanted(each))
        return Seats(places, frozenset(each for _, each in places))

    def end(self, epoch: int) -> int:
        """The last slot of an epoch."""
        return (epoch + 1) * self.spec.slots - 1

    async def states(self, epoch: int) -> States:
        """The wanted validators at the end of an epoch."""
        return await self.memo.get("states", epoch, lambda: self._states(self.end(epoch)))

    async def _states(self, slot: int) -> States:
        return await self._registry().at(slot, self.spec) if self.wanted is None else await self.part(slot, self.wanted)

    def _registry(self) -> Registry:
        self.registry = self.registry or Registry(self.nodes)
        return self.registry

    async def held(self, epoch: int) -> Held:
        """What the wanted validators have at the end of an epoch. Of a whole network the balances alone are read: a
        tenth of its registry, of which little else changes."""
        if self.wanted is not None or self.memo.has("states", epoch):
            return await self.states(epoch)
        return await self.memo.get("held", epoch, lambda: self._held(self.end(epoch)))

    async def _held(self, slot: int) -> Held:
        try:
            return await self._registry().held(slot)
        except UnsupportedMethod:
            return await self._registry().at(slot, self.spec)

    async def near(self, epoch: int) -> States:
        """The wanted validators at the end of an epoch or of the one before: whichever is read anyway."""
        return await self.states(epoch if self.memo.has("states", epoch) or not epoch else epoch - 1)

    async def some(self, epoch: int, indexes: Sequence[int]) -> States:
        """Some validators at the end of an epoch, wanted or not."""
        if epoch >= 0 and self.memo.has("states", epoch):
            known = await self.states(epoch)
            if known.places(asked := np.array(indexes, np.int64))[1].all():
                return known.only(asked)
        return await self.part(self.end(epoch) if epoch >= 0 else 0, indexes)

    async def indexes(self, epoch: int, pubkeys: Collection[str]) -> dict[str, int]:
        """The wanted validators that have some public keys at the end of an epoch, by their keys."""
        if self.wanted is not None:
            known = await self.states(epoch)
            own = zip((f"0x{bytes(each).hex()}" for each in known.pubkey), known.index.tolist(), strict=True)
            return {key: index for key, index in own if key in pubkeys}
        keys, found = sorted(pubkeys), dict[str, int]()
        for start in range(0, len(keys), PIECE):
            for each in await self.named(self.end(epoch), keys[start : start + PIECE]):
                found[each.validator.pubkey.lower()] = each.index
        return found

    def settled(self, epoch: int) -> None:
        """An epoch is settled: what of a whole network no later one needs is given up, 40 MB of a million each."""
        if self.wanted is None:
            for kind, key in (("attestations", epoch - 2), ("attestations", epoch), ("closing", epoch)):
                self.memo.drop(kind, key)

    async def origin(self, at: Held) -> States:
        """The validators before the first slot: those of genesis, as far as they are in a later state."""
        if self.wanted is None:
            return await self.memo.get("states", -1, lambda: self._states(0))
        return await self.memo.get("states", -1, lambda: self.part(0, at.index.tolist()))

    async def part(self, slot: int, indexes: Sequence[int]) -> States:
        """Some validators in the state after a slot."""
        if not indexes:
            return columns(self.nodes.key, [])
        path, parts = f"/eth/v1/beacon/states/{slot}/validators", list[States]()
        for start in range(0, len(indexes), PIECE):
            asked = {"ids": [str(each) for each in indexes[start : start + PIECE]]}
            found = await self.of(slot, path, list[KeyedRow], asked)
            parts.append(await _beside(len(found), columns, self.nodes.key, found))
        part = joined(parts)
        if not set(part.index.tolist()) <= set(indexes):
            raise BadAnswer(self.nodes.key, "a validator that nobody asked for")
        return part

    async def named(self, slot: int, ids: Sequence[str]) -> list[ValidatorState]:
        """The validators that indexes and public keys name in the state after a slot."""
        return await self.of(slot, f"/eth/v1/beacon/states/{slot}/validators", list[ValidatorState], {"ids": ids})

    async def attestations(self, epoch: int) -> tuple[dict[int, int], Any]:
        """What attesting in an epoch could bring, by effective balance, and what it brought: one row of index, source,
        target, head, inactivity a validator."""
        return await self.memo.get("attestations", epoch, lambda: self._attestations(epoch))

    async def _attestations(self, epoch: int) -> tuple[dict[int, int], Any]:
        states = await self.held(epoch + 1)
        try:
            return await self._told(epoch, states)
        except NOT_TOLD:
            ideal, rows = await self.computing().attestations(epoch)
            return ideal, rows[np.isin(rows[:, 0], states.index)]

    async def _told(self, epoch: int, states: Held) -> tuple[dict[int, int], Any]:
        ideal: dict[int, int] = {}
        known = set(states.effective_balance.tolist()) if isinstance(states, States) and self.wanted else None
        rows = [np.zeros((0, 5), np.int64)]
        for start in range(0, len(states), PIECE):
            indexes = states.index[start : start + PIECE]
            is_whole = self.wanted is None and start + PIECE <= len(states)
            asked = numbered(start, PIECE) if is_whole else [str(each) for each in indexes.tolist()]
            path = f"/eth/v1/beacon/rewards/attestations/{epoch}"
            found = await self.of(self.end(epoch + 1), path, ToldRewards, asked)
            ideal |= ideal_of(self.nodes.key, found.ideal_rewards, known)
            rows.append(await _beside(len(found.total_rewards), _rows, found.total_rewards))
        every = np.concatenate(rows)
        every = every[np.argsort(every[:, 0], kind="stable")]
        if (every[1:, 0] == every[:-1, 0]).any() or not states.places(every[:, 0])[1].all():
            raise BadAnswer(self.nodes.key, f"rewards of epoch {epoch} twice, or of a validator that nobody asked for")
        return ideal, every

    async def duties(self, epoch: int) -> dict[int, int] | None:
        """Who was to propose in each slot of an epoch; None where the node does not say it of so old an epoch."""
        return await self.memo.get("duties", epoch, lambda: self._duties(epoch))

    async def _duties(self, epoch: int) -> dict[int, int] | None:
        try:
            found = await self.nodes.data(f"/eth/v1/validator/duties/proposer/{epoch}", list[ProposerDuty])
        except (Absent, BadAnswer):  # a refusal, which many nodes give for the past
            return None
        if {each.slot for each in found} - {0} != set(range(epoch * self.spec.slots, self.end(epoch) + 1)) - {0}:
            raise BadAnswer(self.nodes.key, f"proposers of other slots than those of epoch {epoch}")
        return {each.slot: each.validator_index for each in found}

    async def mix(self, epoch: int, at: int) -> bytes | None:
        """The RANDAO mix of an epoch by the state at the end of the epoch `at`, below 0 that of genesis; None where no
        node says it."""
        state = self.end(at) if epoch >= 0 else "genesis"
        path = f"/eth/v1/beacon/states/{state}/randao?epoch={max(0, epoch)}"
        try:
            return bytes.fromhex((await self.nodes.data(path, Randao)).randao[2:])
        except (Absent, BadAnswer):
            return None

    async def pending(self, slot: int) -> tuple[list[PendingDeposit], list[PendingConsolidation]]:
        """What waits in the state after a slot: deposits that are not credited yet, and consolidations."""
        path = f"/eth/v1/beacon/states/{slot}/pending_consolidations"
        return await self.pending_deposits(slot), await self.of(slot, path, list[PendingConsolidation])

    async def pending_deposits(self, slot: int) -> list[PendingDeposit]:
        """The deposits that wait in the state after a slot, in their order."""
        return await self.of(slot, f"/eth/v1/beacon/states/{slot}/pending_deposits", list[PendingDeposit])

    async def of(self, slot: int, path: str, kind: type[T], body: Any = None) -> T:
        """What the node says about a slot that it has passed. HistoryUnavailable where it says there is nothing."""
        try:
            return await self.nodes.data(path, kind, body)
        except Absent as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None


async def _beside(count: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What some work on so many rows makes of them: beside the event loop, unless it is too little to go there."""
    return await asyncio.to_thread(work, *args, **kwargs) if count > LITTLE else work(*args, **kwargs)


def _rows(rows: Sequence[TotalReward]) -> Any:
    count = len(rows)
    names = ("validator_index", "source", "target", "head", "inactivity")
    table = np.empty((count, 5), np.int64)
    for at, name in enumerate(names):
        table[:, at] = np.fromiter(map(attrgetter(name), rows), np.int64, count)
    if rows and rows[0].inclusion_delay is not None:  # before Altair
        table[:, 4] += np.fromiter((each.inclusion_delay or 0 for each in rows), np.int64, count)
    return table


def _anybody(validator: int) -> bool:
    return True


async def _nothing() -> int | None:
    """What is not known."""
    return None


async def gathered(asks: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All answers in order; the first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in asks]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
