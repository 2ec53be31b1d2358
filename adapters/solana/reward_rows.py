"""Rows of what stake accounts earned: in the name of whoever may withdraw it, though the stake keeps it.

An epoch is paid by the first blocks of the next one. So what an epoch paid belongs to the slots of the next epoch, and
a span is read epoch by epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from adapters.solana.datasets import REWARDS
from adapters.solana.epochs import Schedule, schedule_of
from adapters.solana.reads import Reward, RewardRead
from adapters.solana.rewards import PAGE, Dropped, NotServed, of_epoch
from adapters.solana.rows import Rewarded, reward_table
from adapters.solana.stake_histories import Known, TooMany
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import Collected
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.tables import TRANSFERS
from transport import metering

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain

WAY: Final = "epochs"
EPOCHS: Final = 64  # of one piece
LATELY: Final = 10_000  # slots, about an hour: whoever lacks a block of then is behind
KEPT: Final = 10_000  # epochs of accounts that are remembered


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
                    self._schedule = await node.with_any(schedule_of, kind="rewards")
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
        stakes = await self._stakes(who, schedule.first(epochs[0] + 1))
        told = dict.fromkeys(epochs, None) if stakes is None else await self._asked(schedule, who, stakes, epochs)
        top = self.chain.node.finalized
        self._told |= {
            (who, epoch): each for epoch, each in told.items() if all(one.reward.slot <= top for one in each or ())
        }
        return told

    async def _asked(
        self, schedule: Schedule, who: Collection[str], known: Known, epochs: Sequence[int]
    ) -> dict[int, Told]:
        """What the stake accounts of some accounts earned, epoch by epoch; only those are asked about that have more
        than transactions left in them."""
        asked: dict[int, list[str]] = {}
        if lost := [epoch for epoch in epochs if schedule.first(epoch + 1) < known.begun]:
            return dict.fromkeys(lost, None)
        for epoch in epochs:
            span = schedule.first(epoch + 1), schedule.first(epoch + 2) - 1
            asked[epoch] = known.earning(*span)
            if sum(map(bool, asked.values())) >= EPOCHS:
                break
        paid = await asyncio.gather(*(self._epoch(schedule, *each) for each in asked.items()))
        return {
            epoch: None if told is None else self._earned(who, known, told)
            for epoch, told in zip(asked, paid, strict=True)
        }

    def _earned(self, who: Collection[str], known: Known, told: Sequence[tuple[str, Reward]]) -> Told:
        """Of what was paid, that of some accounts: of whoever could withdraw then. None where that is not known."""
        found = []
        for stake, reward in told:
            owner = known.lives[stake].owner(reward.slot - 1)
            if owner is None:
                return None
            if owner in who:
                found.append(Earned(stake, owner, reward))
        return tuple(found)

    async def _stakes(self, who: Collection[str], slot: int) -> Known | None:
        """The stake accounts that some accounts have, or had since a slot; None where nobody tells."""
        if not self.chain.settings.stake_accounts:
            return None
        try:
            return await self.chain.stake_histories.since(who, slot)
        except (BadAnswer, HistoryUnavailable, TooMany):  # it is refused, lost, or cannot be
            return None

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


def _paid_in(schedule: Schedule, span: Span) -> list[int]:
    """The epochs whose rewards the slots of a span may have paid."""
    first, last = schedule.epoch(span.first), schedule.epoch(span.last)
    return [epoch - 1 for epoch in range(max(first, 1), last + 1)]
