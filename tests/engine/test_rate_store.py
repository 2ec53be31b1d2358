"""Reference rates are kept once for ever, whichever process was told of them first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from chainfolio.engine.prices.rate_store import EPOCH, MIN_MERGED_FILES, RateStore
from chainfolio.errors import CorruptFile
from chainfolio.pricing.ecb import CURRENCIES, Days, Rates
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import FIAT_RATES

DAY, ASKED = date(2024, 3, 28), datetime(2024, 5, 2, 12, tzinfo=UTC)
LONG = Decimal("1.08110000000000000000000000000000000000001")


@contextmanager
def store_at(folder: Path) -> Iterator[RateStore]:
    rate_store = RateStore(Lake(str(folder / "lake")), Tail(folder / "tail.sqlite"))
    try:
        yield rate_store
    finally:
        rate_store.tail.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RateStore]:
    with store_at(tmp_path) as rate_store:
        yield rate_store


def rates(usd: str | Decimal) -> Rates:
    return dict.fromkeys(CURRENCIES, Decimal(usd))


def days(count: int, usd: str | Decimal = "1.1") -> Days:
    return {DAY + timedelta(days=later): rates(usd) for later in range(count)}


def test_what_was_told_of_a_day_first_stays_and_comes_back_to_the_last_digit(store: RateStore) -> None:
    assert store.load() == {}
    holiday = DAY + timedelta(days=1)
    first_rates = {DAY: rates(LONG), holiday: {}}
    assert store.add(first_rates, ASKED) == first_rates
    assert store.add({DAY: rates("2"), holiday: rates("2")}, ASKED) == first_rates
    assert store.load() == first_rates
    assert str(store.load()[DAY]["USD"]) == str(LONG)
    assert store.lake.count(FIAT_RATES) == 2 * len(CURRENCIES)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_many_small_commits_are_merged_and_nothing_is_lost(store: RateStore) -> None:
    rates_by_day = days(MIN_MERGED_FILES + 1)
    for day in rates_by_day:
        stored = store.add({day: rates_by_day[day]}, ASKED)
    assert stored == store.load() == rates_by_day
    assert len(store.lake.entries(FIAT_RATES)) < MIN_MERGED_FILES


class Killed(BaseException):
    """A process that ends there."""


@pytest.mark.parametrize("position", ["before", "after"])
def test_a_process_that_is_killed_while_it_keeps_rates_loses_and_doubles_nothing(
    store: RateStore, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = store.lake.append

    def killed(*given: Any, **more: Any) -> None:
        if position == "after":
            append(*given, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store.lake, "append", killed)
        with pytest.raises(Killed):
            store.add(days(3, "1.1"), ASKED)
    stored = store.add(days(3, "1.2"), ASKED)
    assert stored == store.load() == days(3, "1.1" if position == "after" else "1.2")
    assert store.lake.count(FIAT_RATES) == 3 * len(CURRENCIES)


def test_a_damaged_file_is_an_error_that_names_it_and_no_day_without_rates(store: RateStore) -> None:
    store.add(days(300), ASKED)
    (path,) = store.lake.files(FIAT_RATES)
    with Path(path).open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 0xFF]))
    with pytest.raises(CorruptFile) as caught:
        store.load()
    assert caught.value.table == FIAT_RATES.name


# --- two processes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    folder: Path
    usd: str


GATE: list[Any] = []  # of a process: where it waits until both have seen that nothing is kept


def gated(barrier: Any) -> None:
    """Give a process the barrier: it cannot come with the work."""
    GATE.append(barrier)


def keep_many(work: Work) -> list[Decimal]:
    """Return the rate used for each day by one of two processes with different rates.

    Both processes see an empty store first.
    """
    used = []
    with store_at(work.folder) as rate_store:
        for day, day_rates in days(20, work.usd).items():
            assert day not in rate_store.load()
            GATE[0].wait(20)
            used.append(rate_store.add({day: day_rates}, ASKED)[day]["USD"])
            GATE[0].wait(20)  # the other has kept its own by now: what is used has to be what stays
            assert rate_store.load()[day]["USD"] == used[-1]
    return used


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_two_processes_that_are_told_different_rates_use_and_keep_the_same(tmp_path: Path) -> None:
    with store_at(tmp_path):
        pass
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, initializer=gated, initargs=(spawn.Barrier(2),)) as pool:
        first, second = pool.map(keep_many, [Work(tmp_path, "1.1"), Work(tmp_path, "1.2")])
    assert first == second
    with store_at(tmp_path) as last:
        assert [each["USD"] for each in last.load().values()] == first
        assert last.lake.count(FIAT_RATES) == 20 * len(CURRENCIES)


# --- other engines ----------------------------------------------------------------------------------------------------


def test_three_engines_read_the_same_rates_and_holidays(store: RateStore) -> None:
    store.add({DAY: rates(LONG), DAY + timedelta(days=1): {}}, ASKED)
    files = store.lake.files(FIAT_RATES)
    columns = ["height", "day", "currency", "per_euro"]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.sql(f"SELECT {', '.join(columns)} FROM read_parquet({files!r})").pl()
    by_polars = pl.scan_parquet(files).select(columns).collect()
    by_arrow = pl.from_arrow(pq.ParquetDataset(files).read(columns))
    assert isinstance(by_arrow, pl.DataFrame)
    expected = [
        ((date(2024, 3, day) - EPOCH).days, datetime(2024, 3, day, tzinfo=UTC), currency, value)
        for day, value in ((28, str(LONG)), (29, None))
        for currency in sorted(CURRENCIES)
    ]
    for frame in (by_duckdb, by_polars, by_arrow):
        in_utc = frame.with_columns(pl.col("day").dt.convert_time_zone("UTC"))
        assert sorted(in_utc.rows(), key=lambda row: (row[1], row[2])) == expected
