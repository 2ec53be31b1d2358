"""Stake accounts at a past slot, exactly: their lamports by transactions and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from chainfolio.adapters.solana.accounts import stake_position
from chainfolio.adapters.solana.epochs import Schedule, schedule_of
from chainfolio.adapters.solana.node import Node
from chainfolio.adapters.solana.reads import Reward, RewardRead, WalletStake
from chainfolio.adapters.solana.rewards import read_rewards
from chainfolio.adapters.solana.stake_histories import StakeAccounts, StakeHistories, TooManyReads
from chainfolio.adapters.solana.stake_lives import AccountStakeHistory
from chainfolio.adapters.solana.state import stakes_of
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.errors import SourceError
from chainfolio.plans import Unknown
from chainfolio.positions import OpenPosition

ADAPTER: Final = "solana"
MAX_TRANSACTIONS: Final = 500  # of an account that are read for one answer
MAX_EPOCHS: Final = 100  # whose rewards are read
NOT_FINAL: Final = "stake accounts that have changed since the newest final block are not told of one that may still go"


@dataclass(frozen=True, slots=True)
class PastStakes:
    """Reads the stake accounts of one chain at a block."""

    node: Node
    stake_histories: StakeHistories
    block: Block

    async def of(self, account: str) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        """Return the stake accounts of an account as positions, and issues about those that are not known.

        An error, or more than MAX_TRANSACTIONS transactions, gives an issue alone.
        """
        slot = self.block.height
        try:
            if slot > self.node.finalized and slot > (final := (await self.node.connect()).finalized):
                return await self._unchanged_since(account, final)
            stake_accounts = await self.stake_histories.of(account, slot, MAX_TRANSACTIONS)
            return await self._positions(account, stake_accounts)
        except (SourceError, TooManyReads) as error:
            reason = error.reason if isinstance(error, SourceError) else str(error)
            return (), [self._issue(account, account, f"stake accounts of that block are not known: {reason}")]

    async def _unchanged_since(self, account: str, final_slot: int) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        """Return the stake accounts at a block that is not final.

        They are known if they are the same at the newest final slot and now. Otherwise an issue says that they are not.
        """
        positions, issues = await replace(self, block=replace(self.block, height=final_slot)).of(account)
        current = await self.node.with_any(partial(stakes_of, self.node, account, self.block.height), kind="state")
        native = self.node.facts.info.native.asset
        final_lamports = {position.pool: position.supplied[native] for position in positions}
        if issues or final_lamports == {address: stake.lamports for address, stake in current.items()}:
            return positions, issues
        return (), [self._issue(account, account, NOT_FINAL)]

    async def _positions(
        self, account: str, stake_accounts: StakeAccounts
    ) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        """Return the account's stake positions at the block, and issues.

        A stake whose owner or balance at the block is unknown gives an issue and no position.
        """
        positions, issues = [], []
        for address, history in sorted(stake_accounts.histories.items()):
            owner = history.owner(self.block.height)
            if owner not in (account, None):
                continue
            raw = await self._lamports(history)
            if isinstance(raw, Unknown):
                reason = f"what the stake account {address} held at that block is not known: {raw.reason}"
                issues.append(self._issue(account, address, reason))
            elif raw and owner is None:
                reason = f"who could withdraw from the stake account {address} at that block is not known"
                issues.append(self._issue(account, address, reason))
            elif raw:
                positions.append(self._position(account, history, raw))
        return positions, issues

    def _position(self, account: str, history: AccountStakeHistory, lamports: int) -> OpenPosition:
        """Return a stake account as it was at the block, with its last voter and lock."""
        slot = self.block.height
        voter = history.last_value(slot, lambda call: call.voter) or ""
        unlock_s = max(0, history.last_value(slot, lambda call: call.unlock_s) or 0)
        stake = WalletStake(history.address, lamports, 0, 0, voter, "", unlock_s)
        return stake_position(account, stake, self.node.facts.info.native.asset)

    async def _lamports(self, history: AccountStakeHistory) -> int | Unknown:
        """Return the lamports at the block: those at one end of its gap, corrected by the rewards in between.

        The end with fewer slots in between is tried first. Unknown if the rewards are not known, or contradict the
        transactions.
        """
        gap, slot = history.gap(self.block.height), self.block.height
        start, end = gap.start_lamports, gap.end_lamports
        if start == end:
            return end
        if start is not None and start > end:
            return Unknown("it has less than transactions left in it")
        schedule = await self.node.with_any(schedule_of, kind="rewards")
        sides = [(slot, gap.last_slot, end, -1)] + ([] if start is None else [(gap.first_slot, slot, start, 1)])
        raw: int | Unknown = Unknown("nothing tells it")
        for after_slot, last_slot, lamports, sign in sorted(sides, key=lambda side: side[1] - side[0]):
            rewards = await self._rewards(schedule, history.address, after_slot, last_slot)
            raw = rewards if isinstance(rewards, Unknown) else lamports + sign * rewards
            if isinstance(raw, int):
                break
        return raw if isinstance(raw, Unknown) else _within(raw, start or 0, end)

    async def _rewards(self, schedule: Schedule, stake: str, after_slot: int, last_slot: int) -> int | Unknown:
        """Return the lamports paid after `after_slot`, up to `last_slot`.

        Unknown if one cannot be read, or if there are more than MAX_EPOCHS epochs.
        """
        epochs = range(max(1, schedule.epoch(after_slot)), schedule.epoch(last_slot) + 1)
        if len(epochs) > MAX_EPOCHS:
            return Unknown(f"rewards of {len(epochs)} epochs would have to be asked for")
        results = await read_rewards(self.node, [RewardRead(stake, epoch - 1) for epoch in epochs])
        unknown = next((each for each in results.values() if isinstance(each, Unknown)), None)
        rewards = [each for each in results.values() if isinstance(each, Reward)]
        return unknown or sum(reward.lamports for reward in rewards if after_slot < reward.slot <= last_slot)

    def _issue(self, account: str, subject: str, reason: str) -> Issue:
        return Issue(ADAPTER, subject, reason, account=account)


def _within(raw: int, minimum: int, maximum: int) -> int | Unknown:
    """Return an amount; Unknown if rewards and transactions contradict each other."""
    return raw if minimum <= raw <= maximum else Unknown("its reported rewards do not fit its transactions")
