"""What the validators of accounts have, as positions of their portfolios on the execution chain.

The index of the beacon chain says which validators may be an account's; the node says what they have, in the state that
belongs to the portfolio's block. What cannot be read is an issue, and nothing in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.engine.rows import in_tail
from chainfolio.errors import SourceError, Unavailable
from chainfolio.positions import OpenPosition
from chainfolio.table import Table
from chainfolio.tables import DEPOSITS, VALIDATORS, WITHDRAWALS
from chainfolio.validators import GWEI, HasValidators, Stake

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

PAID: Final = "withdrawals"  # the dataset of a chain to which validators withdraw
PROTOCOL: Final = "beacon"
TYPE: Final = "STAKED"
SECOND_US: Final = 1_000_000
KEEPS_UP: Final = 4  # epochs that the index may lie behind what is settled
WAIT_S: Final = 15.0  # seconds: a beacon node that hangs does not keep the portfolio waiting any longer
STAKED, LEAVING, WITHDRAWABLE, WAITING = "Staked", "Leaving", "Withdrawable", "Deposits not credited yet"
PARTS: Final = {
    "active_ongoing": STAKED,
    "pending_initialized": STAKED,
    "pending_queued": STAKED,
    "withdrawal_possible": WITHDRAWABLE,
    "withdrawal_done": WITHDRAWABLE,
}
ADDRESS_AT: Final = 26  # where the address begins in withdrawal credentials


@dataclass(frozen=True, slots=True)
class Stakes:
    """The validators of the accounts of one execution chain, whose native coin is `coin`; `beacon` None where no beacon
    chain of it is configured."""

    coin: Asset
    beacon: Chain | None
    lake: Lake
    tail: Tail

    async def of(self, accounts: Sequence[str], block: Block) -> tuple[list[OpenPosition], list[Issue]]:
        """The positions of some accounts at a block, and what is not known of them."""
        beacon = self.beacon
        if beacon is None:
            reason = "no beacon chain is configured: what validators have is not in it"
            return [], [_issue("", reason, is_partial=False)]
        assert isinstance(beacon, HasValidators)
        unindexed = [each for each in accounts if not self._is_indexed(beacon, each)]
        if len(unindexed) == len(accounts) and not self._has_any(beacon):
            return [], [_issue(beacon.key, f"what validators have is not known: {beacon.key} is not indexed")]
        try:
            async with asyncio.timeout(WAIT_S):
                candidates = await asyncio.to_thread(self._candidates, beacon, accounts)
                found = await beacon.stakes(accounts, candidates, block)
                late = await self._late(beacon, block)
        except TimeoutError:
            return [], [_unread(beacon, Unavailable(beacon.key, f"its nodes did not answer within {WAIT_S:g} s"))]
        except SourceError as error:
            return [], [_unread(beacon, error)]
        reason = f"{beacon.key} is indexed of some validators only: others of this account are not looked for"
        some = [_issue(each, reason, account=each, is_partial=False) for each in unindexed]
        return [position for each in accounts for position in self._positions(each, found)], [*late, *some]

    async def withdrew(self, accounts: Collection[str], times_us: Collection[int]) -> dict[tuple[str, int], list[int]]:
        """Whose withdrawals reached accounts at some moments, by account and moment, as far as the beacon chain is
        indexed: the indexes of the validators, in the order in which the protocol paid."""
        if self.beacon is None or not times_us:
            return {}
        return await asyncio.to_thread(self._withdrew, self.beacon.key, sorted(accounts), times_us)

    def _withdrew(
        self, key: str, accounts: Sequence[str], times_us: Collection[int]
    ) -> dict[tuple[str, int], list[int]]:
        import polars as pl

        validators = [int(each) for each in self._named(key, VALIDATORS, "validator", accounts)]
        time_us = pl.col("time").dt.epoch("us")
        own = pl.col("address").is_in(accounts) & time_us.is_in(sorted(times_us))
        columns = ["number", "address", "time", "validator"]
        fresh = in_tail(self.tail, key, WITHDRAWALS).select(columns)
        stored = self.lake.of_accounts(WITHDRAWALS, key, validators, columns).collect()
        rows = pl.concat([fresh, stored]).filter(own).unique("number").sort("number")
        found: dict[tuple[str, int], list[int]] = {}
        for address, moment, validator in rows.select("address", time_us, "validator").iter_rows():
            found.setdefault((address, moment), []).append(validator)
        return found

    def _positions(self, account: str, found: Sequence[Stake]) -> list[OpenPosition]:
        """What an account has, by what can be done with it."""
        gwei: dict[str, int] = {}
        count: dict[str, int] = {}
        for each in found:
            part = PARTS.get(each.status, LEAVING)
            for name, amount in ((part, each.balance), (WAITING, each.waiting)):
                if each.owner == account and amount:
                    gwei[name] = gwei.get(name, 0) + amount
                    count[name] = count.get(name, 0) + 1
        return [
            OpenPosition(
                account,
                PROTOCOL,
                TYPE,
                f"{name} ({count[name]} validator{'s' if count[name] > 1 else ''})",
                {self.coin: gwei[name] * GWEI},
                {},
                {},
                has_trusted_assets=True,
            )
            for name in (STAKED, LEAVING, WITHDRAWABLE, WAITING)
            if name in gwei
        ]

    async def _late(self, beacon: Chain, block: Block) -> list[Issue]:
        """An issue where the index ends long before a block: who became a validator since then is not looked for."""
        assert isinstance(beacon, HasValidators)
        clock, top = await beacon.slot_clock(), self.tail.top(beacon.key) or self.tail.anchor(beacon.key)
        indexed = top.height if top is not None else -1
        slot = (block.time_us // SECOND_US - clock.genesis_s) // clock.slot_s
        if clock.epoch(slot) - clock.epoch(indexed) <= beacon.settled_after + KEEPS_UP:
            return []
        reason = f"{beacon.key} is indexed up to slot {indexed}: who became a validator later may be missing"
        return [_issue(beacon.key, reason)]

    def _is_indexed(self, beacon: Chain, account: str) -> bool:
        """Whether all validators of an account are looked for."""
        names = ("", account)
        return any(self.tail.indexed_ranges(beacon.key, VALIDATORS.name, name) for name in names)

    def _has_any(self, beacon: Chain) -> bool:
        """Whether some validators are indexed."""
        chosen = beacon.settings.chosen
        return any(self.tail.indexed_ranges(beacon.key, VALIDATORS.name, each) for each in chosen)

    def _candidates(self, beacon: Chain, accounts: Sequence[str]) -> set[str]:
        """The indexes and public keys that have, or once had, the address of one of the accounts; whose they are the
        node says."""
        return {
            str(each)
            for table, name in ((VALIDATORS, "validator"), (DEPOSITS, "pubkey"))
            for each in self._named(beacon.key, table, name, accounts)
        }

    def _named(self, key: str, table: Table, name: str, accounts: Sequence[str]) -> list[int | str]:
        import polars as pl

        own = pl.col("credentials").str.slice(ADDRESS_AT).is_in([each.removeprefix("0x") for each in accounts])
        found = in_tail(self.tail, key, table).filter(own)[name].to_list()
        if self.lake.exists(table):
            found += self.lake.scan(table, chain=key).filter(own).select(name).unique().collect()[name].to_list()
        return found


def _issue(subject: str, reason: str, *, account: str = "", is_partial: bool = True) -> Issue:
    """An issue about the stakes of an account, or of all; the subject of what is not known names the beacon chain."""
    return Issue("validators", subject, reason, makes_partial=is_partial, account=account)


def _unread(beacon: Chain, error: SourceError) -> Issue:
    return _issue(beacon.key, f"what validators have could not be read: {error.reason}")
