"""Reward buckets: epochs, UTC days, ISO weeks or calendar months, clipped to the range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from chainfolio.engine.validators.block_income import Income
from chainfolio.engine.validators.results import Granularity, Ratio, Rows, ValidatorReward, Window
from chainfolio.validators import GWEI, SlotClock, ValidatorNow

if TYPE_CHECKING:
    import polars as pl

NOT_AVAILABLE: Final = "N/A"
NEVER: Final = 2**62
DIGITS: Final = 18
DAY_S: Final = 86_400
UNIX_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday, three days after a Monday
EffectiveBalance = Callable[[int, int | None, int | None], str]  # of a bucket's end and its last row
REWARD_PARTS: Final = ("source", "target", "head", "inactivity", "sync", "proposals", "slashing")
# The columns of `validator_rewards` that buckets need.
REWARD_COLUMNS: Final = (
    "validator",
    "epoch",
    *REWARD_PARTS,
    "ideal",
    "sync_ideal",
    "sync_hits",
    "sync_misses",
    "proposed",
    "missed",
    "effective",
)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Epochs from `begin` to `end`, cut into buckets; `all` is one bucket."""

    clock: SlotClock
    granularity: Granularity | Literal["all"]
    begin: int
    end: int

    def bounds(self, window: Window) -> list[tuple[int, int]]:
        """Return the first and the last epoch of each bucket in a window."""
        starts = self.starts()
        firsts = starts[window.offset : window.offset + window.limit]
        lasts = [each - 1 for each in starts[window.offset + 1 : window.offset + window.limit + 1]]
        return list(zip(firsts, lasts if len(lasts) == len(firsts) else [*lasts, self.end], strict=True))

    def starts(self) -> Sequence[int]:
        """Return the first epoch of each bucket; the first bucket begins at `begin`, also within a day."""
        if self.granularity == "epoch":
            return range(self.begin, self.end + 1)
        if self.granularity == "all":
            return [self.begin]
        starts, epoch = [], self.begin
        while epoch <= self.end:
            starts.append(epoch)
            epoch = max(epoch + 1, self.clock.first_from(self._next_s(self.clock.begins_s(epoch))))
        return starts

    def _next_s(self, moment_s: int) -> int:
        """Return when the day, week (from Monday) or month (UTC) after a time begins, in Unix seconds."""
        day = moment_s // DAY_S
        if self.granularity == "day":
            return (day + 1) * DAY_S
        if self.granularity == "week":
            return (day - (day + UNIX_WEEKDAY) % 7 + 7) * DAY_S
        now = datetime.fromtimestamp(moment_s, UTC)
        year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
        return int(datetime(year, month, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class RewardHistory:
    """Rewards of a validator, effective balances of the registry, and incomes of its blocks."""

    validator: ValidatorNow
    clock: SlotClock
    rows: pl.DataFrame
    registry: pl.DataFrame
    incomes: Sequence[tuple[int, Income]] = ()  # by rising epoch

    def incomes_between(self, begin: int, end: int) -> list[Income]:
        """Return the incomes of the blocks in some epochs."""
        first = bisect_left(self.incomes, begin, key=itemgetter(0))
        last = bisect_right(self.incomes, end, lo=first, key=itemgetter(0))
        return [each for _, each in self.incomes[first:last]]


def reward_buckets(history: RewardHistory, buckets: Buckets, window: Window) -> Rows[ValidatorReward]:
    """Return the buckets in a window, in order, and the total number of buckets."""
    total, bounds = len(buckets.starts()), buckets.bounds(window)
    if not bounds:
        return Rows((), total)
    effective = _effective_balance(history)
    pairs = zip(bounds, _sums(history, [begin for begin, _ in bounds], bounds[-1][1]), strict=True)
    return Rows([_bucket(history, begin, end, sums, effective) for (begin, end), sums in pairs], total)


def _sums(history: RewardHistory, starts: Sequence[int], end: int) -> list[dict[str, Any]]:
    """Return sums, counts of duties and unknown values, and the last row's values, of each bucket.

    A bucket without rows has zeros, and None as last values.

    Args:
        starts: The first epoch of each bucket, ascending and not empty.
        end: The last epoch of the last bucket, included.
    """
    import polars as pl

    firsts = pl.DataFrame({"start": starts}, schema={"start": pl.Int64})
    exit_epoch = history.validator.exited
    on_duty = pl.col("epoch") < (NEVER if exit_epoch is None else exit_epoch)
    missed = on_duty & (pl.col("source") < 0) & (pl.col("target") < 0)
    sums = (
        history.rows.filter(pl.col("epoch").is_between(starts[0], end))
        .join_asof(firsts, left_on="epoch", right_on="start")
        .group_by("start")
        .agg(
            pl.sum_horizontal(REWARD_PARTS).sum().alias("reward"),
            (pl.col("ideal") + pl.col("sync_ideal") + pl.col("proposals")).sum().alias("potential"),
            pl.col("ideal").null_count().alias("unknown_ideal"),
            pl.col("missed").null_count().alias("unknown_missed"),
            pl.col("missed", "proposed", "sync_hits", "sync_misses").sum(),
            on_duty.sum().alias("duties"),
            missed.sum().alias("attestations_missed"),
            pl.col("epoch", "effective").last().name.prefix("last_"),
        )
    )
    sums = firsts.join(sums, on="start", how="left", maintain_order="left")
    return sums.with_columns(pl.exclude("last_epoch", "last_effective").fill_null(0)).to_dicts()


def _bucket(
    history: RewardHistory, begin: int, end: int, sums: Mapping[str, Any], effective: EffectiveBalance
) -> ValidatorReward:
    """Return the reward of a span of epochs from its sums.

    Potential, execution reward and missed blocks are unknown if a part of them is: they are not sums of the rest.
    """
    clock = history.clock
    start_s, end_s = clock.begins_s(begin), clock.begins_s(end + 1) - 1
    potential = None if sums["unknown_ideal"] else sums["potential"]
    incomes = history.incomes_between(begin, end)
    knows_blocks = len(incomes) == sums["proposed"]
    return ValidatorReward(
        epoch_start=begin,
        epoch_end=end,
        timestamp_start=start_s,
        timestamp_end=end_s,
        date_start=_date(start_s),
        date_end=_date(end_s),
        consensus_reward=str(sums["reward"] * GWEI),
        consensus_potential_reward=NOT_AVAILABLE if potential is None else str(potential * GWEI),
        consensus_efficiency=efficiency(sums["reward"], potential),
        execution_reward=str(sum(each.fees + each.payment for each in incomes)) if knows_blocks else NOT_AVAILABLE,
        end_effective_balance=effective(end, sums["last_epoch"], sums["last_effective"]),
        attestations_included=sums["duties"] - sums["attestations_missed"],
        attestations_missed=sums["attestations_missed"],
        sync_participations=sums["sync_hits"],
        sync_missed=sums["sync_misses"],
        proposed_blocks=sums["proposed"],
        missed_blocks=None if sums["unknown_missed"] else sums["missed"],
        mev_blocks=sum(each.is_built for each in incomes) if knows_blocks else None,
    )


def efficiency(reward: int, potential: int | None) -> Ratio | None:
    """Return reward / potential between 0 and 1, cut after 18 digits; None without a potential."""
    if potential is None or potential <= 0:
        return None
    scaled = max(0, min(reward, potential)) * 10**DIGITS // potential
    integer, fraction = divmod(scaled, 10**DIGITS)
    digits = f"{fraction:0{DIGITS}d}".rstrip("0")
    return msgspec.Raw(f"{integer}.{digits}".encode() if digits else str(integer).encode())


def _effective_balance(history: RewardHistory) -> EffectiveBalance:
    """Return a function that finds the effective balance at the end of a bucket, in wei as text.

    The bucket's last row counts if it is of the last epoch, else the registry; NOT_AVAILABLE if neither knows it.
    """
    epochs, balances = history.registry["epoch"].to_list(), history.registry["effective"].to_list()

    def at_end(end: int, last_epoch: int | None, last_balance: int | None) -> str:
        index = bisect_right(epochs, end)
        balance = last_balance if last_epoch == end or not index else balances[index - 1]
        return NOT_AVAILABLE if balance is None else str(balance * GWEI)

    return at_end


def _date(moment_s: int) -> str:
    return datetime.fromtimestamp(moment_s, UTC).date().isoformat()
