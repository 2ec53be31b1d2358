"""Rows of what stake accounts earned: in the name of whoever may withdraw it, though the stake keeps it.

An epoch is paid by the first blocks of the next one. So what an epoch paid belongs to the slots of the next epoch, and
a span is read epoch by epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.solana.datasets import REWARDS
from adapters.solana.forms import U64
from adapters.solana.history import signatures
from adapters.solana.node import slot_of
from adapters.solana.reads import Reward, RewardRead
from adapters.solana.rewards import PAGE, Dropped, NotServed, of_epoch
from adapters.solana.rows import Rewarded, reward_table
from adapters.solana.state import stakes_of
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import Collected
from chainfolio.errors import BadAnswer
from chainfolio.tables import TRANSFERS
from transport import metering
from transport.endpoint import Endpoint
from transport.wire import Request, typed

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain

WAY: Final = "epochs"
EPOCHS: Final = 64  # of one piece
LATELY: Final = 10_000  # slots, about an hour: whoever lacks a block of then is behind
KEPT: Final = 10_000  # epochs of accounts that are remembered


class Schedule(msgspec.Struct, frozen=True):
    """How slots are cut into epochs, as `getEpochSchedule` tells it. The first epochs of a cluster may be short, each
    twice as long as the one before."""

    slotsPerEpoch: U64
    firstNormalEpoch: U64
    firstNormalSlot: U64

    def first(self, epoch: int) -> int:
        """The first slot of an epoch."""
        if epoch >= self.firstNormalEpoch:
            return self.firstNormalSlot + (epoch - self.firstNormalEpoch) * self.slotsPerEpoch
        return self._shortest * ((1 << epoch) - 1)

    def epoch(self, slot: int) -> int:
        """The epoch of a slot."""
        if slot >= self.firstNormalSlot:
            return self.firstNormalEpoch + (slot - self.firstNormalSlot) // self.slotsPerEpoch
        return (slot // self._shortest + 1).bit_length() - 1

    @property
    def _shortest(self) -> int:
        """How many slots the epoch 0 has, where it is shorter than others."""
        return self.firstNormalSlot // ((1 << self.firstNormalEpoch) - 1)

    def check(self, source: str) -> None:
        """BadAnswer where no clock runs like that."""
        short = self.firstNormalEpoch
        if not self.slotsPerEpoch or short > 64 or bool(short) != bool(self.firstNormalSlot) or (
            short and self.firstNormalSlot % ((1 << short) - 1)
        ):  # fmt: skip
            raise BadAnswer(source, "a schedule of epochs that cannot be")


@dataclass(frozen=True, slots=True)
class Earned:
    """What one stake account earned in an epoch, and who may withdraw it."""

    stake: str
    owner: str
    reward: Reward


Told = tuple[Earned, ...] | None  # None: no node tells it


@dataclass(slots=True)
class RewardRows:
    """Reads what stakes of accounts of one chain earned. What was told of an epoch is kept, for the next piece may have
    slots of the same."""

    chain: SolanaChain
    _schedule: Schedule | None = None
    _born: dict[str, int] = field(default_factory=dict)  # the first slot of stake accounts
    _told: dict[tuple[frozenset[str], int], Told] = field(default_factory=dict)

    async def collect(
        self, span: Span, accounts: Sequence[str], before: Block | None, budget: Budget | None
    ) -> Collected:
        """As `ReadsAccounts.collect_accounts` has it."""
        with metering.on(budget):
            node = self.chain.node
            if before is None:
                span = Span(span.first, max(span.first, min(span.last, node.finalized)))
            if self._schedule is None:
                try:
                    self._schedule = await node.with_any(_schedule, kind="rewards")
                except BadAnswer:
                    return self._collected(span, [], is_told=False)
            schedule, who = self._schedule, frozenset(accounts)
            epochs = _paid_in(schedule, span)
            # A follower does not ask anew with every block what nobody tells.
            known = [each for each in epochs if self._told.get((who, each)) is not None]
            asked = [each for each in epochs if (who, each) in self._told] if before else known
            told: Mapping[int, Told] = {each: self._told[who, each] for each in asked}
            if len(asked) < len(epochs):
                told = await self._learn(schedule, who, epochs)
            return await self._piece(schedule, span, told)

    async def _learn(self, schedule: Schedule, who: frozenset[str], epochs: Sequence[int]) -> Mapping[int, Told]:
        """What some epochs paid: of the first of them, as many as go at once."""
        if len(self._told) > KEPT:
            self._told.clear()
        owners = await self._owners(sorted(who))
        none: Told = None if owners is None else ()
        told = await self._asked(schedule, owners, epochs) if owners else dict.fromkeys(epochs, none)
        top = self.chain.node.finalized
        self._told |= {
            (who, epoch): each for epoch, each in told.items() if all(one.reward.slot <= top for one in each or ())
        }
        return told

    async def _asked(self, schedule: Schedule, owners: Mapping[str, str], epochs: Sequence[int]) -> dict[int, Told]:
        """What some stake accounts earned, epoch by epoch."""
        slots = await asyncio.gather(*map(self._birth, owners))
        born = dict(zip(owners, slots, strict=True))
        idle = sum(schedule.first(each + 1) <= min(slots) for each in epochs)
        epochs = epochs[: idle + EPOCHS]
        stakes = [[stake for stake in sorted(owners) if born[stake] < schedule.first(each + 1)] for each in epochs]
        paid = await asyncio.gather(*(self._epoch(schedule, *each) for each in zip(epochs, stakes, strict=True)))
        return {
            epoch: None if told is None else tuple(Earned(stake, owners[stake], each) for stake, each in told)
            for epoch, told in zip(epochs, paid, strict=True)
        }

    async def _owners(self, accounts: Sequence[str]) -> Mapping[str, str] | None:
        """By stake account which of some accounts may withdraw from it; None where nobody lists them."""
        node, found = self.chain.node, dict[str, str]()
        if not self.chain.settings.stake_accounts:
            return None
        try:
            for account in accounts:
                listed = await node.with_any(partial(stakes_of, node, account), kind="rewards")
                found |= dict.fromkeys(listed, account)
        except BadAnswer:  # it is refused, or cannot be
            return None
        return found

    async def _birth(self, stake: str) -> int:
        """When a stake account was first named: before that it earned nothing. 0 where nobody knows it."""
        if stake not in self._born:
            try:
                self._born[stake] = await self.chain.node.with_any(partial(_first_slot, stake), kind="rewards")
            except BadAnswer:
                self._born[stake] = 0
        return self._born[stake]

    async def _epoch(self, schedule: Schedule, epoch: int, stakes: Sequence[str]) -> list[tuple[str, Reward]] | None:
        """What some stake accounts earned in an epoch; None where no node tells it, or what is told cannot be."""
        node, begin = self.chain.node, schedule.first(epoch + 1)
        found: dict[RewardRead, Reward | None] = {}
        for first in range(0, len(stakes), PAGE):
            try:
                found |= await of_epoch(node, [RewardRead(each, epoch) for each in stakes[first : first + PAGE]])
            except (NotServed, BadAnswer):
                return None
            except Dropped:
                if begin > node.finalized - LATELY:  # it is behind
                    raise
                return None
        paid = [(read.stake, each) for read, each in found.items() if each is not None]
        return paid if all(begin <= each.slot < schedule.first(epoch + 2) for _, each in paid) else None

    async def _piece(self, schedule: Schedule, span: Span, told: Mapping[int, Told]) -> Collected:
        """The first epochs of a span as rows, as far as they are told, or as far as they are not."""
        if not told:
            return self._collected(span, [], is_told=True)
        is_told = next(iter(told.values())) is not None
        some = list(takewhile(lambda epoch: (told[epoch] is not None) == is_told, told))
        if not is_told and span.first < schedule.first(1):  # nothing is paid before an epoch is over
            return self._collected(Span(span.first, schedule.first(1) - 1), [], is_told=True)
        piece = Span(span.first, min(span.last, schedule.first(some[-1] + 2) - 1))
        paid = [each for epoch in some for each in told[epoch] or () if each.reward.slot in piece]
        blocks = await self.chain.node.blocks(sorted({each.reward.slot for each in paid}))
        known = {block.height: block for block in blocks}
        if lost := {each.reward.slot for each in paid} - known.keys():
            raise BadAnswer(self.chain.key, f"says that slot {min(lost)} paid rewards, which has no block")
        rows = [(known[each.reward.slot], each.stake, each.owner, each.reward.lamports) for each in paid]
        return replace(self._collected(piece, rows, is_told=is_told), chain=blocks)

    def _collected(self, piece: Span, rows: Sequence[Rewarded], *, is_told: bool) -> Collected:
        table = reward_table(self.chain.key, rows)
        return Collected(piece, {TRANSFERS.name: table}, None, [], len(table), ways={REWARDS: WAY} if is_told else {})


async def _first_slot(stake: str, endpoint: Endpoint) -> int:
    """The same by one endpoint, which cannot know it where it has dropped blocks."""
    served = slot_of(endpoint.name, await endpoint.one(Request("getFirstAvailableBlock")))
    listed = await signatures(endpoint, stake, 0) if served <= 1 else []
    return listed[-1].slot if listed else 0


async def _schedule(endpoint: Endpoint) -> Schedule:
    found = typed(endpoint.name, await endpoint.one(Request("getEpochSchedule")), Schedule)
    found.check(endpoint.name)
    return found


def _paid_in(schedule: Schedule, span: Span) -> list[int]:
    """The epochs whose rewards the slots of a span may have paid."""
    first, last = schedule.epoch(span.first), schedule.epoch(span.last)
    return [epoch - 1 for epoch in range(max(first, 1), last + 1)]
