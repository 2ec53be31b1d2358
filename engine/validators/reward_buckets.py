"""Rewards in buckets: epochs, UTC days, ISO weeks or calendar months, clipped to the range. Pure: rows in, rows out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from chainfolio.engine.validators.answers import Granularity, Ratio, Rows, ValidatorReward, Window
from chainfolio.engine.validators.block_income import Income
from chainfolio.validators import GWEI, SlotClock, ValidatorNow

if TYPE_CHECKING:
    import polars as pl

UNKNOWN: Final = "N/A"
NEVER: Final = 2**62
DIGITS: Final = 18
DAY_S: Final = 86_400
EPOCH_DAY: Final = 3  # 1970-01-01 was a Thursday: the Monday before is three days earlier
Effective = Callable[[int, int | None, int | None], str]  # from the end of a bucket and its last row
OWN: Final = ("source", "target", "head", "inactivity", "sync", "proposals", "slashing")
# The columns of `validator_rewards` that buckets are made of.
READ: Final = (
    "validator",
    "epoch",
    *OWN,
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
    """Epochs from `begin` to `end`, cut; `all` leaves them in one piece."""

    clock: SlotClock
    granularity: Granularity | Literal["all"]
    begin: int
    end: int

    def shown(self, window: Window) -> list[tuple[int, int]]:
        """The first and the last epoch of each bucket in a window."""
        starts = self.starts()
        shown = starts[window.offset : window.offset + window.limit]
        ends = [each - 1 for each in starts[window.offset + 1 : window.offset + window.limit + 1]]
        return list(zip(shown, ends if len(ends) == len(shown) else [*ends, self.end], strict=True))

    def starts(self) -> Sequence[int]:
        """The first epoch of each bucket."""
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
        """When the day, week or month after a moment begins."""
        day = moment_s // DAY_S
        if self.granularity == "day":
            return (day + 1) * DAY_S
        if self.granularity == "week":
            return (day - (day + EPOCH_DAY) % 7 + 7) * DAY_S
        now = datetime.fromtimestamp(moment_s, UTC)
        year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
        return int(datetime(year, month, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a validator: its rows by rising epoch, what the registry told of its effective balance, and what
    the blocks that it proposed brought on the execution chain, each with its epoch."""

    validator: ValidatorNow
    clock: SlotClock
    rows: pl.DataFrame
    told: pl.DataFrame
    incomes: Sequence[tuple[int, Income]] = ()  # by rising epoch

    def brought(self, begin: int, end: int) -> list[Income]:
        """What the blocks of some epochs brought."""
        first = bisect_left(self.incomes, begin, key=itemgetter(0))
        last = bisect_right(self.incomes, end, lo=first, key=itemgetter(0))
        return [each for _, each in self.incomes[first:last]]


def bucketed(known: Known, buckets: Buckets, window: Window) -> Rows[ValidatorReward]:
    """The buckets in a window, and how many there are."""
    total, shown = len(buckets.starts()), buckets.shown(window)
    if not shown:
        return Rows((), total)
    effective = _effective(known)
    rows = zip(shown, _sums(known, [begin for begin, _ in shown], shown[-1][1]), strict=True)
    return Rows([_bucket(known, begin, end, own, effective) for (begin, end), own in rows], total)


def _sums(known: Known, starts: Sequence[int], end: int) -> list[dict[str, Any]]:
    """What the rows from each start to the next one add up to: all buckets in one pass."""
    import polars as pl

    firsts = pl.DataFrame({"start": starts}, schema={"start": pl.Int64})
    left = known.validator.exited
    on_duty = pl.col("epoch") < (NEVER if left is None else left)
    missed = on_duty & (pl.col("source") < 0) & (pl.col("target") < 0)
    found = (
        known.rows.filter(pl.col("epoch").is_between(starts[0], end))
        .join_asof(firsts, left_on="epoch", right_on="start")
        .group_by("start")
        .agg(
            pl.sum_horizontal(OWN).sum().alias("reward"),
            (pl.col("ideal") + pl.col("sync_ideal") + pl.col("proposals")).sum().alias("potential"),
            pl.col("ideal").null_count().alias("unknown_ideal"),
            pl.col("missed").null_count().alias("unknown_missed"),
            pl.col("missed", "proposed", "sync_hits", "sync_misses").sum(),
            on_duty.sum().alias("duties"),
            missed.sum().alias("attestations_missed"),
            pl.col("epoch", "effective").last().name.prefix("last_"),
        )
    )
    found = firsts.join(found, on="start", how="left", maintain_order="left")
    return found.with_columns(pl.exclude("last_epoch", "last_effective").fill_null(0)).to_dicts()


def _bucket(known: Known, begin: int, end: int, own: Mapping[str, Any], effective: Effective) -> ValidatorReward:
    clock = known.clock
    start_s, end_s = clock.begins_s(begin), clock.begins_s(end + 1) - 1
    potential = None if own["unknown_ideal"] else own["potential"]
    brought = known.brought(begin, end)
    knows_blocks = len(brought) == own["proposed"]
    return ValidatorReward(
        epoch_start=begin,
        epoch_end=end,
        timestamp_start=start_s,
        timestamp_end=end_s,
        date_start=_date(start_s),
        date_end=_date(end_s),
        consensus_reward=str(own["reward"] * GWEI),
        consensus_potential_reward=UNKNOWN if potential is None else str(potential * GWEI),
        consensus_efficiency=efficiency(own["reward"], potential),
        execution_reward=str(sum(each.fees + each.payment for each in brought)) if knows_blocks else UNKNOWN,
        end_effective_balance=effective(end, own["last_epoch"], own["last_effective"]),
        attestations_included=own["duties"] - own["attestations_missed"],
        attestations_missed=own["attestations_missed"],
        sync_participations=own["sync_hits"],
        sync_missed=own["sync_misses"],
        proposed_blocks=own["proposed"],
        missed_blocks=None if own["unknown_missed"] else own["missed"],
        mev_blocks=sum(each.is_built for each in brought) if knows_blocks else None,
    )


def efficiency(reward: int, potential: int | None) -> Ratio | None:
    """What was earned of what could have been, between 0 and 1, cut after 18 digits; None where nothing could."""
    if potential is None or potential <= 0:
        return None
    scaled = max(0, min(reward, potential)) * 10**DIGITS // potential
    whole, rest = divmod(scaled, 10**DIGITS)
    digits = f"{rest:0{DIGITS}d}".rstrip("0")
    return msgspec.Raw(f"{whole}.{digits}".encode() if digits else str(whole).encode())


def _effective(known: Known) -> Effective:
    """The effective balance at the end of a bucket: of its last row, else as the registry last told it."""
    epochs, told = known.told["epoch"].to_list(), known.told["effective"].to_list()

    def at_end(end: int, last_epoch: int | None, last: int | None) -> str:
        at = bisect_right(epochs, end)
        found = last if last_epoch == end or not at else told[at - 1]
        return UNKNOWN if found is None else str(found * GWEI)

    return at_end


def _date(moment_s: int) -> str:
    return datetime.fromtimestamp(moment_s, UTC).date().isoformat()
