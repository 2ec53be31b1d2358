"""The trend of the lake: growth of the newest day, days until the disk is full, and a warning before that."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from bench.follow import generated
from chainfolio.blocks import Span
from chainfolio.errors import StoreError
from chainfolio.indexer.disk_trend import DiskTrend, LakeMetrics, disk_trend, free_bytes_at
from chainfolio.storage.lake import Lake
from chainfolio.table import Table
from chainfolio.tables import BALANCES, TABLES, TRANSFERS

PER_DAY = 100


def chains(*keys: str) -> Any:
    """Chains with a hundred blocks a day."""
    return [SimpleNamespace(key=key, info=SimpleNamespace(blocks_in=lambda seconds: PER_DAY)) for key in keys]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three days of one chain in files of half a day, and balances."""
    lake = Lake(str(tmp_path / "lake"))
    for batch in range(6):
        span = Span(batch * 50, batch * 50 + 49)
        lake.append(TRANSFERS, generated(TRANSFERS, span, 4, Random(batch)), stream="local/test", batch=batch)
    lake.replace(BALANCES, "local", generated(BALANCES, Span(299, 299), 500, Random(7)))
    return lake


def test_growth_is_that_of_the_newest_day(lake: Lake) -> None:
    files = lake.entries(TRANSFERS)
    trend = disk_trend(lake, chains("local", "other"), lambda folder: 10**6)
    assert trend.file_counts == {TRANSFERS.name: 6, BALANCES.name: 1}
    assert trend.day_bytes == sum(file.size for file in files[-2:])
    assert trend.days_left == 10**6 // trend.day_bytes
    assert disk_trend(lake, chains("other"), lambda folder: 10**6).days_left is None


def test_a_merged_file_counts_in_proportion(lake: Lake) -> None:
    lake.compact(TRANSFERS, "local")
    (file,) = lake.entries(TRANSFERS)
    assert disk_trend(lake, chains("local"), lambda folder: 1).day_bytes == file.size // 3


def test_a_disk_that_fills_gives_a_warning_with_its_remedy_in_time(lake: Lake) -> None:
    day_bytes = disk_trend(lake, chains("local"), lambda folder: 0).day_bytes
    free = iter(range(50, -1, -1))  # one day after the other
    warnings = [disk_trend(lake, chains("local"), lambda folder: next(free) * day_bytes).warning for _ in range(51)]
    assert not any(warnings[:21])
    assert all("add space, move the lake with `lake.uri`" in each for each in warnings[21:])
    assert "full in about 0 days" in warnings[-1]


def test_a_table_of_another_release_is_left_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, BALANCES.name, replace(BALANCES, revision=BALANCES.revision + 1))
    assert disk_trend(lake, chains("local"), lambda folder: 10**6).file_counts == {TRANSFERS.name: 6}


def test_each_table_is_listed_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_newest = lake._open_newest

    def count_and_open(handles: Any, table: Table) -> Any:
        opened.append(table.name)
        return open_newest(handles, table)

    monkeypatch.setattr(lake, "_open_newest", count_and_open)
    disk_trend(lake, chains("local"), lambda folder: 10**6)
    assert sorted(opened) == sorted(TABLES)


def test_a_table_that_cannot_be_read_takes_no_other_metrics_away(lake: Lake) -> None:
    log = Path(lake.uri, TRANSFERS.name, "_delta_log")
    for entry in log.glob("*.json"):
        entry.write_text("{")
    with pytest.raises(StoreError, match=TRANSFERS.name):
        disk_trend(Lake(lake.uri), chains("local"))
    registry = CollectorRegistry()
    registry.register(cast("Any", LakeMetrics(lambda: disk_trend(Lake(lake.uri), chains("local")))))
    Gauge("other", "another metric", registry=registry).set(7)
    metrics = generate_latest(registry).decode()
    assert "other 7.0" in metrics
    assert "chainfolio_" not in metrics


def test_metrics_leave_out_what_is_unknown() -> None:
    for trend, present in (
        (DiskTrend({"blocks": 3}, 5, None), False),
        (DiskTrend({"blocks": 3}, 5, 100), True),
    ):
        registry = CollectorRegistry()
        registry.register(cast("Any", LakeMetrics(partial(copy, trend))))
        metrics = generate_latest(registry).decode()
        assert 'chainfolio_lake_files{table="blocks"} 3.0' in metrics
        assert ("chainfolio_disk_days_left 20.0" in metrics) is present


def test_free_space_of_a_folder_that_does_not_exist_yet_is_that_of_its_disk(tmp_path: Path) -> None:
    assert free_bytes_at(tmp_path / "a" / "b") > 0
