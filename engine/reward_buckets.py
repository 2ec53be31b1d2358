"""Rewards in buckets: epochs, UTC days, ISO weeks or calendar months, clipped to the range. Pure: rows in, rows out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from chainfolio.validators import GWEI, SlotClock, ValidatorNow
from engine.validators import Granularity, Ratio, Rows, ValidatorReward, Window

if TYPE_CHECKING:
    import polars as pl

UNKNOWN: Final = "N/A"
DIGITS: Final = 18
DAY_S: Final = 86_400
EPOCH_DAY: Final = 3  # 1970-01-01 was a Thursday: the Monday before is three days earlier
OWN: Final = ("source", "target", "head", "inactivity", "sync", "proposals", "slashing")


@dataclass(frozen=True, slots=True)
class Buckets:
    """Epochs from `begin` to `end`, cut; `all` leaves them in one piece."""

    clock: SlotClock
    granularity: Granularity | Literal["all"]
    begin: int
    end: int

    def starts(self) -> list[int]:
        """The first epoch of each bucket."""
        if self.granularity == "epoch":
            return list(range(self.begin, self.end + 1))
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
    """What is known of a validator: its rows by rising epoch, and what the registry told of its effective balance."""

    validator: ValidatorNow
    clock: SlotClock
    rows: pl.DataFrame
    told: pl.DataFrame


def bucketed(known: Known, buckets: Buckets, window: Window) -> Rows[ValidatorReward]:
    """The buckets in a window, and how many there are."""
    starts = buckets.starts()
    ends = [*(each - 1 for each in starts[1:]), buckets.end]
    wanted = list(zip(starts, ends, strict=True))[window.offset : window.offset + window.limit]
    return Rows([_bucket(known, begin, end) for begin, end in wanted], len(starts))


def _bucket(known: Known, begin: int, end: int) -> ValidatorReward:
    import polars as pl

    clock, rows = known.clock, known.rows
    first, last = rows["epoch"].search_sorted(begin), rows["epoch"].search_sorted(end + 1)
    own = rows.slice(first, last - first)
    sums = {name: int(own[name].sum()) for name in (*OWN, "sync_ideal", "sync_hits", "sync_misses", "proposed")}
    reward = sum(sums[name] for name in OWN)
    potential = None
    if not own["ideal"].null_count():
        potential = int(own["ideal"].sum()) + sums["sync_ideal"] + sums["proposals"]
    start_s, end_s = clock.begins_s(begin), clock.begins_s(end + 1) - 1
    left = known.validator.exited
    duties = own.filter(pl.col("epoch") < left) if left is not None else own
    missed = int(((duties["source"] < 0) & (duties["target"] < 0)).sum())
    has_blocks = sums["proposed"] > 0
    return ValidatorReward(
        epoch_start=begin, epoch_end=end, timestamp_start=start_s, timestamp_end=end_s,
        date_start=_date(start_s), date_end=_date(end_s),
        consensus_reward=str(reward * GWEI),
        consensus_potential_reward=UNKNOWN if potential is None else str(potential * GWEI),
        consensus_efficiency=efficiency(reward, potential),
        execution_reward=UNKNOWN if has_blocks else "0",
        end_effective_balance=_effective(known, own, end),
        attestations_included=len(duties) - missed, attestations_missed=missed,
        sync_participations=sums["sync_hits"], sync_missed=sums["sync_misses"],
        proposed_blocks=sums["proposed"],
        missed_blocks=None if own["missed"].null_count() else int(own["missed"].sum()),
        mev_blocks=None if has_blocks else 0,
    )  # fmt: skip


def efficiency(reward: int, potential: int | None) -> Ratio | None:
    """What was earned of what could have been, between 0 and 1, cut after 18 digits; None where nothing could."""
    if potential is None or potential <= 0:
        return None
    scaled = max(0, min(reward, potential)) * 10**DIGITS // potential
    whole, rest = divmod(scaled, 10**DIGITS)
    digits = f"{rest:0{DIGITS}d}".rstrip("0")
    return msgspec.Raw(f"{whole}.{digits}".encode() if digits else str(whole).encode())


def _effective(known: Known, own: pl.DataFrame, end: int) -> str:
    """The effective balance at the end of a bucket: of its last row, else as the registry last told it."""
    if len(own) and own["epoch"][-1] == end:
        return str(own["effective"][-1] * GWEI)
    at = known.told["epoch"].search_sorted(end + 1)
    told: Any = known.told["effective"][at - 1] if at else None
    if told is None and len(own):
        told = own["effective"][-1]
    return UNKNOWN if told is None else str(told * GWEI)


def _date(moment_s: int) -> str:
    return datetime.fromtimestamp(moment_s, UTC).date().isoformat()
