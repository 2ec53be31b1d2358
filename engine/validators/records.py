"""The records of validators: details from the node, the rest from the tables. What nobody indexed is never zero."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, get_args

from chainfolio.blocks import Span, Spans
from chainfolio.engine.rows import in_tail
from chainfolio.engine.validators.answers import (
    Granularity,
    Range,
    Rows,
    Status,
    ValidatorBalance,
    ValidatorDeposit,
    ValidatorDetails,
    ValidatorId,
    ValidatorIdentity,
    ValidatorLifecycle,
    ValidatorReward,
    ValidatorWithdrawal,
    Window,
    WithdrawalCredentials,
    unknown,
    unserved,
)
from chainfolio.engine.validators.block_income import MAX_BLOCKS, BlockIncome, Income
from chainfolio.engine.validators.reward_buckets import READ, Buckets, Known, bucketed
from chainfolio.errors import BadAnswer, NotFound, NotIndexed
from chainfolio.table import Table
from chainfolio.tables import DEPOSITS, PROPOSALS, VALIDATOR_REWARDS, VALIDATORS, WITHDRAWALS
from chainfolio.validators import ADDRESS, GWEI, HasValidators, SlotClock, ValidatorNow, address_of

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

NOTHING: Final = Income(0, 0, is_built=False)  # of a block without a payload
MAIN: Final = "beacon"
DAY_S: Final = 86_400
KEEPS_UP: Final = 4  # epochs that the index may lie behind the head before newer ones count as missing


@dataclass(frozen=True, slots=True)
class ValidatorRecords:
    """The validators of one beacon chain."""

    system: System
    chain: Chain
    source: HasValidators
    income: BlockIncome | None = None  # of the blocks of its execution chain

    async def now(self, validator: ValidatorId) -> ValidatorNow:
        """One validator as the node tells it; NotFound in the words of the service."""
        try:
            return await self.source.validator(validator)
        except NotFound:
            raise unknown(validator) from None

    async def details(self, validator: ValidatorId) -> ValidatorDetails:
        """The validator now."""
        found, clock = await self.now(validator), await self.source.slot_clock()
        return ValidatorDetails(
            validator=ValidatorIdentity(
                index=found.index, pubkey=found.pubkey, slashed=found.slashed, status=_status(self.chain.key, found)
            ),
            lifecycle=ValidatorLifecycle(
                activation_epoch=found.activated,
                activation_timestamp=None if found.activated is None else clock.begins_s(found.activated),
                exit_epoch=found.exited,
                withdrawable_epoch=found.withdrawable,
            ),
            balance=ValidatorBalance(actual=str(found.balance * GWEI), effective=str(found.effective * GWEI)),
            withdrawal_credentials=WithdrawalCredentials(
                prefix=int(found.credentials[2:4], 16), credential=found.credentials, address=found.address
            ),
        )

    async def rewards(self, validator: ValidatorId, within: Range, window: Window) -> Rows[ValidatorReward]:
        """Its buckets within a range, the earliest first."""
        found, clock = await self.now(validator), await self.source.slot_clock()
        begin, end = _epochs(clock, within)
        begin = max(begin, found.activated if found.activated is not None else end + 1)
        end = min(end, await self._settled(clock))
        if begin > end:
            return Rows((), 0)
        rows, told = await asyncio.to_thread(self._rewards, found, clock, begin, end)
        buckets = Buckets(clock, within.granularity, begin, end)
        shown = buckets.shown(window)
        incomes = await self._incomes(found, shown[0][0], shown[-1][1]) if shown else ()
        known = Known(found, clock, rows, told, incomes)
        return await asyncio.to_thread(bucketed, known, buckets, window)

    async def _incomes(self, found: ValidatorNow, begin: int, end: int) -> list[tuple[int, Income]]:
        """What the blocks that it proposed in some epochs brought, each with its epoch, without those that cannot be
        read; none of it where the execution chain is not configured."""
        blocks = await asyncio.to_thread(self._proposed, found, begin, end)
        carried = {each["execution_hash"]: each["execution_height"] for each in blocks if each["execution_hash"]}
        if self.income is None or not blocks or len(blocks) > MAX_BLOCKS:
            return []
        brought = await self.income.of(carried)
        unread = carried.keys() - brought.keys()
        return [
            (each["epoch"], brought.get(each["execution_hash"], NOTHING))
            for each in blocks
            if each["execution_hash"] not in unread
        ]

    def _proposed(self, found: ValidatorNow, begin: int, end: int) -> list[dict[str, Any]]:
        """The blocks that it proposed in some epochs."""
        import polars as pl

        rows = self._rows(PROPOSALS, [found.index], "validator", "height")
        return rows.filter(pl.col("epoch").is_between(begin, end)).sort("height").to_dicts()

    async def recent(self, days: int, granularity: Granularity) -> Range:
        """The last days of what can be known, not before the first slot of the settings."""
        clock = await self.source.slot_clock()
        last = max(0, await self._settled(clock))
        indexed_from = -(-self.chain.settings.start_block // clock.slots)
        first = max(0, indexed_from, last + 1 - days * DAY_S // clock.epoch_s)
        return Range("epoch", min(first, last), last, granularity)

    async def named(self, who: str) -> list[int]:
        """The indexes of the validators that an index, a public key or a withdrawal address names; NotFound where there
        is none."""
        if len(who) != ADDRESS:
            return [(await self.now(int(who) if who.isdecimal() else who)).index]
        found = await self.source.validators_of([who])
        if not found:
            raise NotFound(f"no validator withdraws to {who}")
        return list(found)

    async def _settled(self, clock: SlotClock) -> int:
        """The last epoch whose rewards can be known: by the index where it keeps up, else by the chain."""
        head = clock.epoch((await self.chain.heads()).latest.height)
        tail = self.system.tail
        top = tail.top(self.chain.key) or tail.anchor(self.chain.key)
        indexed = -1 if top is None else clock.epoch(top.height)
        return (indexed if head - indexed <= KEEPS_UP else head) - self.source.settled_after

    def _rewards(
        self, found: ValidatorNow, clock: SlotClock, begin: int, end: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of some epochs, and what the registry told up to the last one. NotIndexed where an epoch with duties has
        no row: rows lie in the first block after their epoch is settled, and that may have been missed for long."""
        import polars as pl

        after = self.source.settled_after
        slots = Span((begin + after) * clock.slots, (end + after) * clock.slots)
        self._check(VALIDATOR_REWARDS, found, slots)
        here = pl.col("epoch").is_between(begin, end)
        rows = (
            self._rows(VALIDATOR_REWARDS, [found.index], "validator", "epoch", columns=READ).filter(here).sort("epoch")
        )
        left = found.exited if found.exited is not None else end + 1
        duties = range(max(begin, found.activated or 0), min(end + 1, left))
        have = rows.filter(pl.col("epoch").is_between(duties.start, duties.stop - 1)) if duties else rows.clear()
        if len(have) != len(duties):
            missing = next(iter(set(duties) - set(have["epoch"].to_list())))
            first = (missing + after) * clock.slots
            raise NotIndexed(self.chain.key, VALIDATOR_REWARDS.name, first, first + clock.slots - 1)
        told = self._rows(VALIDATORS, [found.index], "validator", "epoch", columns=("validator", "epoch", "effective"))
        return rows, told.filter(pl.col("epoch") <= end).sort("epoch")

    async def withdrawals(self, validator: ValidatorId, window: Window) -> Rows[ValidatorWithdrawal]:
        """Its withdrawals, the latest first."""
        found = await self.now(validator)
        rows = await asyncio.to_thread(self._all, WITHDRAWALS, found, found.index, ["height", "number"])
        return Rows(
            [
                ValidatorWithdrawal(
                    slot=each["height"],
                    epoch=each["epoch"],
                    timestamp=int(each["time"].timestamp()),
                    index=each["number"],
                    amount=str(each["gwei"] * GWEI),
                    address=each["address"],
                )
                for each in _shown(rows, window)
            ],
            len(rows),
        )

    async def deposits(self, validator: ValidatorId, window: Window) -> Rows[ValidatorDeposit]:
        """Its deposits, the latest first."""
        found = await self.now(validator)
        rows = await asyncio.to_thread(self._all, DEPOSITS, found, found.pubkey, ["height", "item"])
        return Rows(
            [
                ValidatorDeposit(
                    slot=each["height"],
                    epoch=each["epoch"],
                    timestamp=int(each["time"].timestamp()),
                    deposit_index=each["number"],
                    amount=str(each["gwei"] * GWEI),
                    withdrawal_credentials=each["credentials"],
                    withdrawal_address=address_of(each["credentials"]),
                )
                for each in _shown(rows, window)
            ],
            len(rows),
        )

    def _all(self, table: Table, found: ValidatorNow, key: int | str, order: Sequence[str]) -> pl.DataFrame:
        """All rows that one has in a table, the latest first; NotIndexed where some may be missing since the first slot
        of the settings."""
        tail = self.system.tail
        top = tail.top(self.chain.key) or tail.anchor(self.chain.key)
        first = self.chain.settings.start_block
        self._check(table, found, Span(first, max(first, top.height if top else first)))
        rows = self._rows(table, [key], "pubkey" if isinstance(key, str) else "validator", *order)
        return rows.sort(order, descending=True)

    def _rows(
        self, table: Table, keys: Sequence[Any], name: str, *unique: str, columns: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Rows from the tail, then from the lake, which is the way of a row; each once. `columns`: default all."""
        import polars as pl

        wanted = list(columns or table.names)
        fresh = in_tail(self.system.tail, self.chain.key, table).filter(pl.col(name).is_in(keys)).select(wanted)
        stored = self.system.lake.of_accounts(table, self.chain.key, keys, wanted).collect()
        if fresh.is_empty():
            return stored
        return pl.concat([fresh, stored.select(fresh.columns)]).unique([name, *unique])

    def _check(self, table: Table, found: ValidatorNow, slots: Span) -> None:
        """NotIndexed where a table is not indexed of a validator, by whatever names it, in some slots."""
        names = ["", str(found.index), found.pubkey, *([found.address] if found.address else [])]
        ranges: Iterable[Spans] = (self.system.tail.indexed_ranges(self.chain.key, table.name, each) for each in names)
        have = reduce(lambda one, other: one | other, ranges)
        if left := list(Spans([slots]) - have):
            raise NotIndexed(self.chain.key, table.name, left[0].first, left[0].last)


def records(system: System) -> ValidatorRecords:
    """The validators of the configured beacon chain; Unserved without one."""
    chains = [chain for chain in system.chains if isinstance(chain, HasValidators)]
    if not chains:
        raise unserved()
    chain = next((each for each in chains if each.key == MAIN), chains[0])
    assert isinstance(chain, HasValidators)
    income = None
    if chain.execution in system.settings.chains:
        income = BlockIncome(system.chain(chain.execution), system.environment.clock)
    return ValidatorRecords(system, chain, chain, income)


def _epochs(clock: SlotClock, within: Range) -> tuple[int, int]:
    """The first and the last epoch that begins within a range."""
    if within.type == "epoch":
        return within.first, within.last
    return clock.first_from(within.first), clock.last_until(within.last)


def _shown(rows: pl.DataFrame, window: Window) -> list[dict[str, Any]]:
    return rows.slice(min(window.offset, len(rows)), window.limit).to_dicts()


def _status(chain: str, found: ValidatorNow) -> Status:
    """One of the eight that the service knows: both of `pending` are one."""
    status = "pending" if found.status in ("pending_initialized", "pending_queued") else found.status
    for known in get_args(Status):
        if status == known:
            return known  # type: ignore[no-any-return]
    raise BadAnswer(chain, f"validator {found.index} has a status that is none")
