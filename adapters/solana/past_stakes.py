"""What stake accounts held at a past slot, exactly: what transactions left in them, and what was paid to them since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.solana.accounts import stake_position
from adapters.solana.epochs import Schedule, schedule_of
from adapters.solana.reads import Reward, RewardRead, Staking
from adapters.solana.rewards import rewards
from adapters.solana.stake_histories import Known, TooMany
from adapters.solana.stake_lives import Life
from adapters.solana.state import stakes_of
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.errors import SourceError
from chainfolio.plans import Unknown
from chainfolio.positions import OpenPosition

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain

ADAPTER: Final = "solana"
MOST_TRANSACTIONS: Final = 500  # of an account that are looked at for an answer
MOST_EPOCHS: Final = 100  # of which rewards are asked for
BEING_MADE: Final = (
    "stake accounts that have changed since the newest final block are not told of one that may still go"
)


@dataclass(frozen=True, slots=True)
class PastStakes:
    """The stake accounts of one chain at a block."""

    chain: SolanaChain
    block: Block

    async def of(self, account: str) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        """Those of an account, and which are not known, or why none is."""
        if not self.chain.settings.stake_accounts:
            return (), ()
        slot = self.block.height
        try:
            if slot > self.chain.node.finalized and slot > (final := (await self.chain.heads()).finalized):
                return await self._between(account, final)
            known = await self.chain.stake_histories.of(account, slot, MOST_TRANSACTIONS)
            return await self._positions(account, known)
        except (SourceError, TooMany) as error:
            reason = error.reason if isinstance(error, SourceError) else str(error)
            return (), [self._issue(account, account, f"stake accounts of that block are not known: {reason}")]

    async def _between(self, account: str, final: int) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        """Those of a block that may still go: what is the same at the newest final slot and now was so between them."""
        positions, issues = await PastStakes(self.chain, replace(self.block, height=final)).of(account)
        now = await self.chain.node.with_any(partial(stakes_of, self.chain.node, account), kind="state")
        native = self.chain.info.native.asset
        then = {each.pool: each.supplied[native] for each in positions}
        if issues or then == {stake: each.lamports for stake, each in now.items()}:
            return positions, issues
        return (), [self._issue(account, account, BEING_MADE)]

    async def _positions(self, account: str, known: Known) -> tuple[Sequence[OpenPosition], Sequence[Issue]]:
        positions, issues = [], []
        for address, life in sorted(known.lives.items()):
            owner = life.owner(self.block.height)
            if owner not in (account, None):
                continue
            raw = await self._lamports(life)
            if isinstance(raw, Unknown):
                reason = f"what the stake account {address} held at that block is not known: {raw.reason}"
                issues.append(self._issue(account, address, reason))
            elif raw and owner is None:
                reason = f"who could withdraw from the stake account {address} at that block is not known"
                issues.append(self._issue(account, address, reason))
            elif raw:
                positions.append(self._position(account, life, raw))
        return positions, issues

    def _position(self, account: str, life: Life, raw: int) -> OpenPosition:
        slot = self.block.height
        voter = life.last(slot, lambda call: call.voter) or ""
        unlock_s = max(0, life.last(slot, lambda call: call.unlock_s) or 0)
        found = Staking(life.address, raw, 0, 0, voter, "", unlock_s)
        return stake_position(account, found, self.chain.info.native.asset)

    async def _lamports(self, life: Life) -> int | Unknown:
        """What lay in it, by the fewer rewards: those before the slot, or those behind it."""
        gap, slot = life.gap(self.block.height), self.block.height
        if gap.had == gap.has:
            return gap.has
        if gap.had is not None and gap.had > gap.has:
            return Unknown("it has less than transactions left in it")
        schedule = await self.chain.node.with_any(schedule_of, kind="rewards")
        sides = [(slot, gap.until, gap.has, -1)] + ([] if gap.had is None else [(gap.since, slot, gap.had, 1)])
        raw: int | Unknown = Unknown("nothing tells it")
        for since, until, rest, sign in sorted(sides, key=lambda side: side[1] - side[0]):
            paid = await self._paid(schedule, life.address, since, until)
            raw = paid if isinstance(paid, Unknown) else rest + sign * paid
            if isinstance(raw, int):
                break
        return raw if isinstance(raw, Unknown) else _checked(raw, gap.had or 0, gap.has)

    async def _paid(self, schedule: Schedule, stake: str, since: int, until: int) -> int | Unknown:
        """What was paid in the slots behind one, up to another."""
        epochs = range(max(1, schedule.epoch(since)), schedule.epoch(until) + 1)
        if len(epochs) > MOST_EPOCHS:
            return Unknown(f"rewards of {len(epochs)} epochs would have to be asked for")
        found = await rewards(self.chain.node, [RewardRead(stake, epoch - 1) for epoch in epochs])
        unknown = next((each for each in found.values() if isinstance(each, Unknown)), None)
        paid = [each for each in found.values() if isinstance(each, Reward)]
        return unknown or sum(each.lamports for each in paid if since < each.slot <= until)

    def _issue(self, account: str, subject: str, reason: str) -> Issue:
        return Issue(ADAPTER, subject, reason, account=account)


def _checked(raw: int, least: int, most: int) -> int | Unknown:
    """An amount; Unknown where rewards and transactions contradict each other."""
    return raw if least <= raw <= most else Unknown("rewards are told that do not fit its transactions")
