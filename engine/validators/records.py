"""Records of validators: details from the node, everything else from the tables.

Unindexed rows never count as zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, get_args

from chainfolio.blocks import Span, Spans
from chainfolio.capabilities import Capability, require_capability
from chainfolio.engine.rows import in_tail
from chainfolio.engine.validators.block_income import MAX_BLOCKS, BlockIncome, Income
from chainfolio.engine.validators.results import (
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
    no_beacon_chain,
    validator_not_found,
)
from chainfolio.engine.validators.reward_buckets import REWARD_COLUMNS, Buckets, RewardHistory, reward_buckets
from chainfolio.errors import BadAnswer, NotFound, NotIndexed
from chainfolio.staking_tables import DEPOSITS, PROPOSALS, VALIDATOR_REWARDS, VALIDATORS, WITHDRAWALS
from chainfolio.table import Table
from chainfolio.validators import ADDRESS, GWEI, HasValidators, SlotClock, ValidatorNow, address_of

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import IndexedChains
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

NO_INCOME: Final = Income(0, 0, is_built=False)  # a block without a payload
DEFAULT_CHAIN: Final = "beacon"
DAY_S: Final = 86_400
MAX_INDEX_LAG: Final = 4  # epochs that the index may be behind the head before newer ones count as missing


@dataclass(frozen=True, slots=True)
class ValidatorRecords:
    """The validators of one beacon chain."""

    lake: Lake
    tail: Tail
    chain: Chain
    source: HasValidators
    income: BlockIncome | None = None  # None without the execution chain

    async def state(self, validator: ValidatorId) -> ValidatorNow:
        """Read one validator from the node.

        Raises:
            NotFound: The chain has no such validator.
            SourceError: The node does not answer.
        """
        try:
            return await self.source.validator(validator)
        except NotFound:
            raise validator_not_found(validator) from None

    async def details(self, validator: ValidatorId) -> ValidatorDetails:
        """Read the current state of a validator; balances are in wei as text, epochs without a value None.

        Errors as of `state`.
        """
        state, clock = await self.state(validator), await self.source.slot_clock()
        return ValidatorDetails(
            validator=ValidatorIdentity(
                index=state.index, pubkey=state.pubkey, slashed=state.slashed, status=_status(self.chain.key, state)
            ),
            lifecycle=ValidatorLifecycle(
                activation_epoch=state.activated,
                activation_timestamp=None if state.activated is None else clock.begins_s(state.activated),
                exit_epoch=state.exited,
                withdrawable_epoch=state.withdrawable,
            ),
            balance=ValidatorBalance(actual=str(state.balance * GWEI), effective=str(state.effective * GWEI)),
            withdrawal_credentials=WithdrawalCredentials(
                prefix=int(state.credentials[2:4], 16), credential=state.credentials, address=state.address
            ),
        )

    async def rewards(self, validator: ValidatorId, epochs: Range, window: Window) -> Rows[ValidatorReward]:
        """Return the reward buckets of a range in `window`, earliest first, and the number of all buckets.

        Empty before activation. Epochs count from the activation up to the last settled one. Execution rewards are
        unknown if a block cannot be read, or for more than `MAX_BLOCKS` blocks. Errors as of `state`.

        Raises:
            NotIndexed: Rewards of the epochs are not indexed.
        """
        state, clock = await self.state(validator), await self.source.slot_clock()
        begin, end = _epochs(clock, epochs)
        begin = max(begin, state.activated if state.activated is not None else end + 1)
        end = min(end, await self._settled_epoch(clock))
        if begin > end:
            return Rows((), 0)
        rows, registry = await asyncio.to_thread(self._reward_rows, state, clock, begin, end)
        buckets = Buckets(clock, epochs.granularity, begin, end)
        epoch_bounds = buckets.bounds(window)
        incomes = await self._incomes(state, epoch_bounds[0][0], epoch_bounds[-1][1]) if epoch_bounds else ()
        history = RewardHistory(state, clock, rows, registry, incomes)
        return await asyncio.to_thread(reward_buckets, history, buckets, window)

    async def _incomes(self, state: ValidatorNow, begin: int, end: int) -> list[tuple[int, Income]]:
        """Return the incomes of the blocks proposed in the epochs, each with its epoch.

        Blocks that cannot be read are left out. Empty without the execution chain, or for more than `MAX_BLOCKS`
        blocks.
        """
        blocks = await asyncio.to_thread(self._proposed, state, begin, end)
        heights = {each["execution_hash"]: each["execution_height"] for each in blocks if each["execution_hash"]}
        if self.income is None or not blocks or len(blocks) > MAX_BLOCKS:
            return []
        incomes = await self.income.of(heights)
        unread = heights.keys() - incomes.keys()
        return [
            (each["epoch"], incomes.get(each["execution_hash"], NO_INCOME))
            for each in blocks
            if each["execution_hash"] not in unread
        ]

    def _proposed(self, state: ValidatorNow, begin: int, end: int) -> list[dict[str, Any]]:
        """Return the rows of the blocks that the validator proposed in the epochs."""
        import polars as pl

        rows = self._rows(PROPOSALS, [state.index], "validator", "height")
        return rows.filter(pl.col("epoch").is_between(begin, end)).sort("height").to_dicts()

    async def recent(self, days: int, granularity: Granularity) -> Range:
        """Return the last `days` that are settled, not before the first slot of the settings."""
        clock = await self.source.slot_clock()
        last_epoch = max(0, await self._settled_epoch(clock))
        indexed_from = -(-self.chain.settings.start_block // clock.slots)
        first = max(0, indexed_from, last_epoch + 1 - days * DAY_S // clock.epoch_s)
        return Range("epoch", min(first, last_epoch), last_epoch, granularity)

    async def resolve(self, identifier: str) -> list[int]:
        """Return the indexes of the validators with an index, a public key or a withdrawal address.

        Raises:
            NotFound: There is no such validator.
        """
        if len(identifier) != ADDRESS:
            return [(await self.state(int(identifier) if identifier.isdecimal() else identifier)).index]
        indexes = await self.source.validators_of([identifier])
        if not indexes:
            raise NotFound(f"no validator withdraws to {identifier}")
        return list(indexes)

    async def _settled_epoch(self, clock: SlotClock) -> int:
        """Return the last epoch whose rewards are settled: in the index if it keeps up, else on the chain."""
        head = clock.epoch((await self.chain.heads()).latest.height)
        top = self.tail.top(self.chain.key) or self.tail.anchor(self.chain.key)
        indexed = -1 if top is None else clock.epoch(top.height)
        return (indexed if head - indexed <= MAX_INDEX_LAG else head) - self.source.settled_after

    def _reward_rows(
        self, state: ValidatorNow, clock: SlotClock, begin: int, end: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the reward rows of the epochs, and the registry's effective balances up to the last one.

        Raises:
            NotIndexed: An epoch with duties has no row. A row lies in the first block after its epoch is settled, and
                the slots of that block may have been missed for long.
        """
        import polars as pl

        after = self.source.settled_after
        slots = Span((begin + after) * clock.slots, (end + after) * clock.slots)
        self._check_indexed(VALIDATOR_REWARDS, state, slots)
        here = pl.col("epoch").is_between(begin, end)
        rows = (
            self._rows(VALIDATOR_REWARDS, [state.index], "validator", "epoch", columns=REWARD_COLUMNS)
            .filter(here)
            .sort("epoch")
        )
        exit_epoch = state.exited if state.exited is not None else end + 1
        duties = range(max(begin, state.activated or 0), min(end + 1, exit_epoch))
        duty_rows = rows.filter(pl.col("epoch").is_between(duties.start, duties.stop - 1)) if duties else rows.clear()
        if len(duty_rows) != len(duties):
            missing = next(iter(set(duties) - set(duty_rows["epoch"].to_list())))
            first = (missing + after) * clock.slots
            raise NotIndexed(self.chain.key, VALIDATOR_REWARDS.name, first, first + clock.slots - 1)
        registry = self._rows(
            VALIDATORS, [state.index], "validator", "epoch", columns=("validator", "epoch", "effective")
        )
        return rows, registry.filter(pl.col("epoch") <= end).sort("epoch")

    async def withdrawals(self, validator: ValidatorId, window: Window) -> Rows[ValidatorWithdrawal]:
        """Return the withdrawals of a validator in wei in `window`, latest first, and the number of all.

        Errors as of `state` and NotIndexed.
        """
        state = await self.state(validator)
        rows = await asyncio.to_thread(self._all, WITHDRAWALS, state, state.index, ["height", "number"])
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
                for each in _window(rows, window)
            ],
            len(rows),
        )

    async def deposits(self, validator: ValidatorId, window: Window) -> Rows[ValidatorDeposit]:
        """Return the deposits of a validator in wei in `window`, latest first, and the number of all.

        Errors as of `state` and NotIndexed.
        """
        state = await self.state(validator)
        rows = await asyncio.to_thread(self._all, DEPOSITS, state, state.pubkey, ["height", "item"])
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
                for each in _window(rows, window)
            ],
            len(rows),
        )

    def _all(self, table: Table, state: ValidatorNow, key: int | str, order: Sequence[str]) -> pl.DataFrame:
        """Return all rows of a validator in a table, latest first.

        Raises:
            NotIndexed: Rows may be missing since the first slot of the settings.
        """
        top = self.tail.top(self.chain.key) or self.tail.anchor(self.chain.key)
        first = self.chain.settings.start_block
        self._check_indexed(table, state, Span(first, max(first, top.height if top else first)))
        rows = self._rows(table, [key], "pubkey" if isinstance(key, str) else "validator", *order)
        return rows.sort(order, descending=True)

    def _rows(
        self, table: Table, keys: Sequence[Any], name: str, *unique: str, columns: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Return each row of the tail and the lake once, in no order.

        Args:
            keys: Values of the column `name`.
            unique: Columns that, with `name`, make a row unique.
            columns: The columns to read; all by default.
        """
        import polars as pl

        selected = list(columns or table.names)
        fresh = in_tail(self.tail, self.chain.key, table).filter(pl.col(name).is_in(keys)).select(selected)
        stored = self.lake.of_accounts(table, self.chain.key, keys, selected).collect()
        if fresh.is_empty():
            return stored
        return pl.concat([fresh, stored.select(fresh.columns)]).unique([name, *unique])

    def _check_indexed(self, table: Table, state: ValidatorNow, slots: Span) -> None:
        """Raise NotIndexed if `slots` of a table are not indexed under any identifier of the validator."""
        names = ["", str(state.index), state.pubkey, *([state.address] if state.address else [])]
        ranges: Iterable[Spans] = (self.tail.indexed_ranges(self.chain.key, table.name, each) for each in names)
        indexed = reduce(lambda a, b: a | b, ranges)
        if missing := list(Spans([slots]) - indexed):
            raise NotIndexed(self.chain.key, table.name, missing[0].first, missing[0].last)


def records(system: IndexedChains) -> ValidatorRecords:
    """Return the records of the configured beacon chain; of several that of DEFAULT_CHAIN, else the first.

    Without its execution chain in the settings, income of blocks is not read.

    Raises:
        NotSupported: No beacon chain is configured.
    """
    chains = [chain for chain in system.chains if Capability.VALIDATORS in chain.capabilities]
    if not chains:
        raise no_beacon_chain()
    chain = next((each for each in chains if each.key == DEFAULT_CHAIN), chains[0])
    validators = require_capability(chain, Capability.VALIDATORS)
    income = None
    if validators.execution in system.settings.chains:
        income = BlockIncome(system.chain(validators.execution), system.environment.clock)
    return ValidatorRecords(system.lake, system.tail, chain, validators, income)


def _epochs(clock: SlotClock, bounds: Range) -> tuple[int, int]:
    """Return the first and the last epoch that begin within a range."""
    if bounds.type == "epoch":
        return bounds.first, bounds.last
    return clock.first_from(bounds.first), clock.last_until(bounds.last)


def _window(rows: pl.DataFrame, window: Window) -> list[dict[str, Any]]:
    return rows.slice(min(window.offset, len(rows)), window.limit).to_dicts()


def _status(chain: str, state: ValidatorNow) -> Status:
    """Return the validator's status as the API names it: the two `pending_…` ones are one.

    Raises:
        BadAnswer: The node returned another status.
    """
    status = "pending" if state.status in ("pending_initialized", "pending_queued") else state.status
    for status_name in get_args(Status):
        if status == status_name:
            return status_name  # type: ignore[no-any-return]
    raise BadAnswer(chain, f"validator {state.index} has a status that is none")
