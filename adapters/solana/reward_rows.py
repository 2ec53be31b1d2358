"""Table rows of staking rewards, in the name of the withdrawer although the stake account keeps them.

The rewards of an epoch are paid in the first blocks of the next epoch. So they belong to the slots of the next epoch,
and a span is read epoch by epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, NamedTuple

from chainfolio.adapters.solana.datasets import REWARDS
from chainfolio.adapters.solana.epochs import Schedule, schedule_of
from chainfolio.adapters.solana.node import Node
from chainfolio.adapters.solana.reads import Reward, RewardRead
from chainfolio.adapters.solana.rewards import PAGE, NoRewardBlock, RewardsNotServed, read_epoch_rewards
from chainfolio.adapters.solana.rows import StakeReward, reward_table
from chainfolio.adapters.solana.stake_histories import StakeAccounts, StakeHistories, TooManyReads
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.tables import TRANSFERS
from chainfolio.transport import metering

METHOD: Final = "epochs"  # how the rows were found, as tables record it
MAX_EPOCHS: Final = 64  # per piece of a span
RECENT_SLOTS: Final = 10_000  # about an hour: a node without so recent a block is behind
MAX_CACHED: Final = 10_000  # epochs of sets of accounts


class OwnedReward(NamedTuple):
    """A reward of a stake account, and the owner who could withdraw it."""

    stake: str
    owner: str
    reward: Reward


EpochRewards = tuple[OwnedReward, ...] | None  # None: no node can tell them


@dataclass(slots=True)
class RewardRows:
    """Reads staking rewards of accounts, and caches them: the next piece may be in the same epoch.

    Attributes:
        stake_histories: Reads stake accounts; None if the settings disable that.
    """

    node: Node
    stake_histories: StakeHistories | None
    _schedule: Schedule | None = None
    _cache: dict[tuple[frozenset[str], int], EpochRewards] = field(default_factory=dict)

    async def collect(
        self, span: Span, accounts: Sequence[str], before: Block | None, budget: Budget | None
    ) -> SpanTables:
        """Read the first epochs of a span, as `AccountHistoryReader.collect_accounts` defines it.

        If no node knows the rewards, the piece has no rows and its dataset counts as unread.

        Raises:
            OverBudget: The budget ends before anything was read.
            SourceError: The nodes are behind or do not answer.
        """
        with metering.charge_to(budget):
            node = self.node
            if before is None:
                span = Span(span.first, max(span.first, min(span.last, node.finalized)))
            if self._schedule is None:
                try:
                    self._schedule = await node.with_any(schedule_of, kind="rewards")
                except BadAnswer:
                    return self._tables(span, [], is_known=False)
            schedule, owners = self._schedule, frozenset(accounts)
            epochs = _paid_epochs(schedule, span)
            # A follower reads block by block, and must not ask again for rewards that no node could tell.
            cached = [
                epoch
                for epoch in epochs
                if (owners, epoch) in self._cache and (before or self._cache[owners, epoch] is not None)
            ]
            rewards: Mapping[int, EpochRewards] = {epoch: self._cache[owners, epoch] for epoch in cached}
            if len(cached) < len(epochs):
                rewards = await self._read_epochs(schedule, owners, epochs)
            return await self._first_piece(schedule, span, rewards)

    async def _read_epochs(
        self, schedule: Schedule, owners: frozenset[str], epochs: Sequence[int]
    ) -> Mapping[int, EpochRewards]:
        """Read the rewards of the first epochs, up to `MAX_EPOCHS` with stake accounts, and cache final ones.

        None for epochs whose rewards are unknown; all are None if the stake accounts are. Rewards are final if the
        slots that paid them were final before, and if nothing was paid, the first slot after the epoch.
        """
        finalized = self.node.finalized
        if len(self._cache) > MAX_CACHED:
            self._cache.clear()
        stake_accounts = await self._stake_accounts(owners, schedule.first(epochs[0] + 1))
        if stake_accounts is None:
            rewards: dict[int, EpochRewards] = dict.fromkeys(epochs, None)
        else:
            rewards = await self._read_stake_rewards(schedule, owners, stake_accounts, epochs)
        self._cache |= {
            (owners, epoch): owned_rewards
            for epoch, owned_rewards in rewards.items()
            if owned_rewards is None
            or max([schedule.first(epoch + 1), *(each.reward.slot for each in owned_rewards)]) <= finalized
        }
        return rewards

    async def _read_stake_rewards(
        self, schedule: Schedule, owners: Collection[str], stake_accounts: StakeAccounts, epochs: Sequence[int]
    ) -> dict[int, EpochRewards]:
        """Read the rewards of stake accounts with lamports that no transaction explains, by epoch.

        Epochs after the first `MAX_EPOCHS` with such stake accounts are left out. If nodes lack transactions of some of
        the epochs, only these are returned, with None.
        """
        if missing_epochs := [epoch for epoch in epochs if schedule.first(epoch + 1) < stake_accounts.first_slot]:
            return dict.fromkeys(missing_epochs, None)
        stakes_by_epoch: dict[int, list[str]] = {}
        for epoch in epochs:
            first_slot, last_slot = schedule.first(epoch + 1), schedule.first(epoch + 2) - 1
            stakes_by_epoch[epoch] = stake_accounts.earning(first_slot, last_slot)
            if sum(map(bool, stakes_by_epoch.values())) >= MAX_EPOCHS:
                break
        results = await asyncio.gather(*(self._read_epoch(schedule, *each) for each in stakes_by_epoch.items()))
        return {
            epoch: None if rewards is None else self._of_owners(owners, stake_accounts, rewards)
            for epoch, rewards in zip(stakes_by_epoch, results, strict=True)
        }

    def _of_owners(
        self, owners: Collection[str], stake_accounts: StakeAccounts, rewards: Sequence[tuple[str, Reward]]
    ) -> EpochRewards:
        """Return the rewards that some owners could withdraw; None if the owner of a reward is unknown."""
        owned_rewards = []
        for stake, reward in rewards:
            owner = stake_accounts.histories[stake].owner(reward.slot - 1)
            if owner is None:
                return None
            if owner in owners:
                owned_rewards.append(OwnedReward(stake, owner, reward))
        return tuple(owned_rewards)

    async def _stake_accounts(self, owners: Collection[str], slot: int) -> StakeAccounts | None:
        """Read the stake accounts of owners since a slot; None if they are disabled or not served."""
        if self.stake_histories is None:
            return None
        try:
            return await self.stake_histories.read_since(owners, slot)
        except (BadAnswer, HistoryUnavailable, TooManyReads):  # refused, not recorded, or too many
            return None

    async def _read_epoch(
        self, schedule: Schedule, epoch: int, stakes: Sequence[str]
    ) -> list[tuple[str, Reward]] | None:
        """Read the rewards that stake accounts got for an epoch; None if they are not known.

        Accounts without a reward are left out. None if no endpoint serves rewards or has the old block that paid them,
        or if an answer is wrong.

        Raises:
            NoRewardBlock: No endpoint has the block that paid them, which is so recent that the node may be behind.
        """
        node, first_slot = self.node, schedule.first(epoch + 1)
        results: dict[RewardRead, Reward | None] = {}
        for first in range(0, len(stakes), PAGE):
            page = [RewardRead(stake, epoch) for stake in stakes[first : first + PAGE]]
            try:
                results |= await read_epoch_rewards(node, page)
            except (RewardsNotServed, BadAnswer):
                return None
            except NoRewardBlock:
                if first_slot > node.finalized - RECENT_SLOTS:  # the node is behind
                    raise
                return None
        rewards = [(read.stake, reward) for read, reward in results.items() if reward is not None]
        is_valid = all(first_slot <= reward.slot < schedule.first(epoch + 2) for _, reward in rewards)
        return rewards if is_valid else None

    async def _first_piece(self, schedule: Schedule, span: Span, rewards: Mapping[int, EpochRewards]) -> SpanTables:
        """Return the rows of the first epochs of a span whose rewards are all known, or all unknown.

        Raises BadAnswer for rewards in a slot without a block.
        """
        if not rewards:
            return self._tables(span, [], is_known=True)
        is_known = next(iter(rewards.values())) is not None
        epochs = list(takewhile(lambda epoch: (rewards[epoch] is not None) == is_known, rewards))
        if not is_known and span.first < schedule.first(1):  # nothing is paid before an epoch is over
            return self._tables(Span(span.first, schedule.first(1) - 1), [], is_known=True)
        piece = Span(span.first, min(span.last, schedule.first(epochs[-1] + 2) - 1))
        owned_rewards = [each for epoch in epochs for each in rewards[epoch] or () if each.reward.slot in piece]
        blocks = await self.node.blocks(sorted({each.reward.slot for each in owned_rewards}))
        block_by_slot = {block.height: block for block in blocks}
        if missing := {each.reward.slot for each in owned_rewards} - block_by_slot.keys():
            raise BadAnswer(self.node.key, f"says that slot {min(missing)} paid rewards, which has no block")
        rows = [
            StakeReward(block_by_slot[each.reward.slot], each.stake, each.owner, each.reward.lamports)
            for each in owned_rewards
        ]
        return replace(self._tables(piece, rows, is_known=is_known), blocks=blocks)

    def _tables(self, piece: Span, rewards: Sequence[StakeReward], *, is_known: bool) -> SpanTables:
        table = reward_table(self.node.key, rewards)
        methods = {REWARDS: METHOD} if is_known else {}
        return SpanTables(piece, {TRANSFERS.name: table}, None, [], len(table), read_methods=methods)


def _paid_epochs(schedule: Schedule, span: Span) -> list[int]:
    """Return the epochs whose rewards may have been paid in the slots of a span."""
    first, last = schedule.epoch(span.first), schedule.epoch(span.last)
    return [epoch - 1 for epoch in range(max(first, 1), last + 1)]
