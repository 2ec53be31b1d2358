"""Stakes of validators as positions of their owners' portfolios on the execution chain.

The index of the beacon chain has the validators that may belong to an account. The node has their balances, in the
state that belongs to the portfolio's block. A stake that cannot be read is an issue, not a position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, require_capability
from chainfolio.contracts import Issue
from chainfolio.engine.rows import in_tail
from chainfolio.errors import SourceError, Unavailable
from chainfolio.positions import OpenPosition
from chainfolio.staking_tables import DEPOSITS, VALIDATORS, WITHDRAWALS
from chainfolio.table import Table
from chainfolio.validators import GWEI, Stake

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

WITHDRAWALS_DATASET: Final = "withdrawals"  # of chains to which validators withdraw
PROTOCOL: Final = "beacon"
TYPE: Final = "STAKED"
SECOND_US: Final = 1_000_000
MAX_INDEX_LAG: Final = 4  # epochs that the index may be behind the last settled one
TIMEOUT_S: Final = 15.0  # after which the portfolio goes on without a beacon node that hangs
STAKED, LEAVING, WITHDRAWABLE, WAITING = "Staked", "Leaving", "Withdrawable", "Deposits not credited yet"
PARTS: Final = {
    "active_ongoing": STAKED,
    "pending_initialized": STAKED,
    "pending_queued": STAKED,
    "withdrawal_possible": WITHDRAWABLE,
    "withdrawal_done": WITHDRAWABLE,
}
ADDRESS_START: Final = 26  # of the address in withdrawal credentials


@dataclass(frozen=True, slots=True)
class Stakes:
    """The stakes of accounts of one execution chain.

    Attributes:
        coin: The native coin of the chain.
        beacon: Its beacon chain; None if not configured.
    """

    coin: Asset
    beacon: Chain | None
    lake: Lake
    tail: Tail

    async def of(self, accounts: Sequence[str], block: Block) -> tuple[list[OpenPosition], list[Issue]]:
        """Read the positions of accounts at a block, and the issues of stakes that are not known.

        Raise nothing. Without a beacon chain, an index or an answer within TIMEOUT_S there are no positions, and one
        issue.
        """
        beacon = self.beacon
        if beacon is None:
            reason = "no beacon chain is configured: what validators have is not in it"
            return [], [_issue("", reason, is_partial=False)]
        validators = require_capability(beacon, Capability.VALIDATORS)
        unindexed = [each for each in accounts if not self._is_indexed(beacon, each)]
        if len(unindexed) == len(accounts) and not self._has_any(beacon):
            return [], [_issue(beacon.key, f"what validators have is not known: {beacon.key} is not indexed")]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                candidates = await asyncio.to_thread(self._candidates, beacon, accounts)
                stakes = await validators.stakes(accounts, candidates, block)
                lag_issues = await self._lag_issues(beacon, block)
        except TimeoutError:
            return [], [_unread(beacon, Unavailable(beacon.key, f"its nodes did not answer within {TIMEOUT_S:g} s"))]
        except SourceError as error:
            return [], [_unread(beacon, error)]
        reason = f"{beacon.key} is indexed of some validators only: others of this account are not looked for"
        scope_issues = [_issue(each, reason, account=each, is_partial=False) for each in unindexed]
        positions = [position for each in accounts for position in self._positions(each, stakes)]
        return positions, [*lag_issues, *scope_issues]

    async def withdrawing_validators(
        self, accounts: Collection[str], times_us: Collection[int]
    ) -> dict[tuple[str, int], list[int]]:
        """Return the indexes of the validators whose withdrawals reached accounts at some times.

        By account and time (microseconds), in the order of payment, as far as the beacon chain is indexed. Empty
        without a beacon chain.
        """
        if self.beacon is None or not times_us:
            return {}
        return await asyncio.to_thread(self._read_withdrawing, self.beacon.key, sorted(accounts), times_us)

    def _read_withdrawing(
        self, key: str, accounts: Sequence[str], times_us: Collection[int]
    ) -> dict[tuple[str, int], list[int]]:
        """Return the validators of payments by account and time in microseconds, in the order of payments.

        They come from the tail and the lake. Payments at other times are left out.
        """
        import polars as pl

        ids = [int(each) for each in self._values_of(key, VALIDATORS, "validator", accounts)]
        time_us = pl.col("time").dt.epoch("us")
        is_withdrawal = pl.col("address").is_in(accounts) & time_us.is_in(sorted(times_us))
        columns = ["number", "address", "time", "validator"]
        fresh = in_tail(self.tail, key, WITHDRAWALS).select(columns)
        stored = self.lake.of_accounts(WITHDRAWALS, key, ids, columns).collect()
        rows = pl.concat([fresh, stored]).filter(is_withdrawal).unique("number").sort("number")
        validators_by_payment: dict[tuple[str, int], list[int]] = {}
        for address, paid_us, validator in rows.select("address", time_us, "validator").iter_rows():
            validators_by_payment.setdefault((address, paid_us), []).append(validator)
        return validators_by_payment

    def _positions(self, account: str, stakes: Sequence[Stake]) -> list[OpenPosition]:
        """Return an account's positions in wei, one per stage of its stakes; a stage without balance has none."""
        gwei: dict[str, int] = {}
        count: dict[str, int] = {}
        for each in stakes:
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

    async def _lag_issues(self, beacon: Chain, block: Block) -> list[Issue]:
        """Return an issue if the index lacks over MAX_INDEX_LAG settled epochs: newer validators are missing."""
        validators = require_capability(beacon, Capability.VALIDATORS)
        clock, top = await validators.slot_clock(), self.tail.top(beacon.key) or self.tail.anchor(beacon.key)
        indexed = top.height if top is not None else -1
        slot = (block.time_us // SECOND_US - clock.genesis_s) // clock.slot_s
        if clock.epoch(slot) - clock.epoch(indexed) <= validators.settled_after + MAX_INDEX_LAG:
            return []
        reason = f"{beacon.key} is indexed up to slot {indexed}: who became a validator later may be missing"
        return [_issue(beacon.key, reason)]

    def _is_indexed(self, beacon: Chain, account: str) -> bool:
        """Return True if all validators of an account are indexed."""
        names = ("", account)
        return any(self.tail.indexed_ranges(beacon.key, VALIDATORS.name, name) for name in names)

    def _has_any(self, beacon: Chain) -> bool:
        """Return True if some validators are indexed."""
        chosen = beacon.settings.chosen
        return any(self.tail.indexed_ranges(beacon.key, VALIDATORS.name, each) for each in chosen)

    def _candidates(self, beacon: Chain, accounts: Sequence[str]) -> set[str]:
        """Return the indexes and public keys of validators that had an account's address at any time.

        The node decides which of them belong to the account.
        """
        return {
            str(each)
            for table, name in ((VALIDATORS, "validator"), (DEPOSITS, "pubkey"))
            for each in self._values_of(beacon.key, table, name, accounts)
        }

    def _values_of(self, key: str, table: Table, name: str, accounts: Sequence[str]) -> list[int | str]:
        """Return a column's values of a table for rows whose credentials are those of the accounts.

        They are from the tail and the lake, and may repeat.
        """
        import polars as pl

        is_own = pl.col("credentials").str.slice(ADDRESS_START).is_in([each.removeprefix("0x") for each in accounts])
        values = in_tail(self.tail, key, table).filter(is_own)[name].to_list()
        if self.lake.exists(table):
            values += self.lake.scan(table, chain=key).filter(is_own).select(name).unique().collect()[name].to_list()
        return values


def _issue(subject: str, reason: str, *, account: str = "", is_partial: bool = True) -> Issue:
    """Return an issue about the stakes of one account, or of all if `account` is empty."""
    return Issue("validators", subject, reason, makes_partial=is_partial, account=account)


def _unread(beacon: Chain, error: SourceError) -> Issue:
    return _issue(beacon.key, f"what validators have could not be read: {error.reason}")
