"""Values of many portfolios from stored snapshots and prices, equal from every executor."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.engine.recompute.executors import RETRIES, Executor
from chainfolio.engine.recompute.partitions import MAX_ACCOUNT_DAYS, Partition, Task, partitions
from chainfolio.engine.recompute.values import compute
from chainfolio.errors import BadRequest, Unavailable
from chainfolio.storage import lake_reader
from chainfolio.storage.history import read_history
from chainfolio.storage.parquet import LakeFile
from chainfolio.table import Table, bucket
from tests.engine.recomputed import (
    BARE,
    CHAIN,
    FIRST,
    NATIVE,
    THIN,
    USDC,
    Snap,
    SnapshotAsset,
    wallet,
    write_prices,
    write_snapshots,
)

ONE, TWO = wallet(1), wallet(2)
COIN = 10**18


def at_block(folder: Path, block: int, *accounts: str) -> list[dict[str, object]]:
    """The rows of accounts at a block."""
    return compute(Partition(Task(str(folder), CHAIN, block), accounts)).to_dicts()


def by_day(folder: Path, days: int, *accounts: str) -> list[dict[str, object]]:
    """The rows of accounts on the first days."""
    last = FIRST + timedelta(days=days - 1)
    return compute(Partition(Task(str(folder), CHAIN, None, FIRST, last), accounts, FIRST, last)).to_dicts()


# --- what counts -----------------------------------------------------------------------------------------------------


def test_holdings_are_valued_by_the_prices_of_the_snapshot(tmp_path: Path) -> None:
    holdings = [
        SnapshotAsset(NATIVE, 2 * COIN, value="1"),
        SnapshotAsset(USDC, 5, 6, value="1"),
        SnapshotAsset(BARE, 7),
    ]
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, holdings)])
    write_prices(tmp_path, [(100, NATIVE, "3000.5", None), (100, USDC, "1", None), (99, BARE, "9", None)])
    (row,) = by_day(tmp_path, 1, ONE)
    assert (row["value_usd"], row["valued"], row["unpriced"]) == ("6001.000005", 2, 1)
    assert (row["account"], row["height"], row["completeness"]) == (ONE, 100, "complete")


def test_at_a_block_the_newest_price_up_to_it_counts(tmp_path: Path) -> None:
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, [SnapshotAsset(NATIVE, COIN, value="1")]), Snap(ONE, 1, 200, [])])
    write_prices(tmp_path, [(90, NATIVE, "1", None), (120, NATIVE, "2", None), (130, NATIVE, "3", None)])
    assert [row["value_usd"] for block in (99, 100, 125, 199, 200) for row in at_block(tmp_path, block, ONE)] == [
        *("1", "2", "3"),
        "0",
    ]


def test_without_a_stored_price_the_value_of_the_snapshot_stays(tmp_path: Path) -> None:
    holdings = [
        SnapshotAsset(USDC, 5, 6, value="4.5"),
        SnapshotAsset(THIN, COIN, value="2", side="borrowed", name="Loan"),
    ]
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, holdings)])
    assert by_day(tmp_path, 1, ONE)[0]["value_usd"] == "2.5"


def test_debts_spam_and_unverified_positions(tmp_path: Path) -> None:
    holdings = [
        SnapshotAsset(NATIVE, 3 * COIN, value="1", side="supplied", name="Loan"),
        SnapshotAsset(USDC, 2_000_000, 6, value="1", side="borrowed", name="Loan"),
        SnapshotAsset(USDC, 9_000_000, 6, value="1", spam=True),
        SnapshotAsset(NATIVE, COIN, value=None, name="Unverified"),
        SnapshotAsset(NATIVE, None, None),
        SnapshotAsset(NATIVE, 0),
    ]
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, holdings)])
    write_prices(tmp_path, [(100, NATIVE, "10", None), (100, USDC, "1", "0.5")])
    (row,) = by_day(tmp_path, 1, ONE)
    assert (row["value_usd"], row["valued"], row["unpriced"]) == ("28", 2, 2), "a debt is not limited by its market"


def test_a_thin_market_pays_once_for_all_holdings_of_an_account(tmp_path: Path) -> None:
    holdings = [
        SnapshotAsset(THIN, 3 * COIN, value="3"),
        SnapshotAsset(THIN, 4 * COIN, value="2", side="supplied", name="Vault"),
    ]
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, holdings), Snap(TWO, 0, 100, holdings[:1])])
    write_prices(tmp_path, [(100, THIN, "1", "5")])
    assert [row["value_usd"] for row in by_day(tmp_path, 1, ONE, TWO)] == ["5", "3"]


def test_the_last_attempt_counts_and_an_unreadable_day_has_no_value(tmp_path: Path) -> None:
    first, second = [SnapshotAsset(USDC, 1, 0, value="1")], [SnapshotAsset(USDC, 2, 0, value="2")]
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, first), Snap(ONE, 0, 100, second, 1)])
    write_snapshots(tmp_path, [Snap(ONE, 1, 200, [], completeness="unreadable")], 1)
    assert [row["value_usd"] for row in by_day(tmp_path, 2, ONE)] == ["2", None]
    assert [row["value_usd"] for row in at_block(tmp_path, 300, ONE)] == ["2"], "the last readable day"


def test_an_empty_lake_and_an_unknown_account_have_no_rows(tmp_path: Path) -> None:
    assert at_block(tmp_path, 10, ONE) == []
    write_snapshots(tmp_path, [Snap(ONE, 0, 100, [SnapshotAsset(USDC, 1, 0, value="1")])])
    assert at_block(tmp_path, 10**9, TWO) == []


ASSETS = (NATIVE, USDC, THIN, BARE)
HOLDINGS = st.fixed_dictionaries({asset: st.sampled_from([None, 0, 6, 18, 77]) for asset in ASSETS}).flatmap(
    lambda decimals: st.lists(  # an asset has the same decimals in a whole snapshot
        st.builds(
            lambda asset, raw, *rest: SnapshotAsset(asset, raw, decimals[asset], *rest),
            st.sampled_from(ASSETS),
            st.one_of(st.none(), st.integers(0, 2**256 - 1), st.integers(0, 10**20)),
            st.sampled_from([None, "0.1", "7E+3"]),
            st.sampled_from(["owned", "borrowed", "reward"]),
            st.sampled_from(["", "Position"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
USD = st.builds(lambda digits, places: str(Decimal(digits).scaleb(-places)), st.integers(0, 10**30), st.integers(0, 36))
QUOTES = st.dictionaries(st.sampled_from([NATIVE, USDC, THIN]), st.tuples(USD, st.one_of(st.none(), USD)))


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@settings(max_examples=40, deadline=None)
@given(holdings=HOLDINGS, quotes=QUOTES)
def test_columns_equal_fractions_computed_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, holdings: list[SnapshotAsset], quotes: dict[str, tuple[str, str | None]]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    write_snapshots(folder, [Snap(ONE, 0, 100, holdings)])
    write_prices(folder, [(100, contract, *quote) for contract, quote in quotes.items()])
    (row,) = at_block(folder, 100, ONE)
    assert Fraction(str(row["value_usd"])) == _one_by_one(holdings, quotes)


def _one_by_one(holdings: list[SnapshotAsset], quotes: dict[str, tuple[str, str | None]]) -> Fraction:
    total, by_market = Fraction(0), dict[tuple[str, int], Fraction]()
    for each in holdings:
        if each.spam or not each.raw or each.decimals is None:
            continue
        usd, depth = quotes.get(each.asset, ("0", None))
        if Fraction(usd) == 0 or (each.value is None and each.name):
            signed = Fraction(each.value or 0)
            total += -signed if each.side == "borrowed" else signed
            continue
        value = Fraction(each.raw, 10**each.decimals) * Fraction(usd)
        if each.side == "borrowed":
            total -= value
        elif depth is None:
            total += value
        else:
            by_market[each.asset, 0] = by_market.get((each.asset, 0), Fraction(0)) + value
    return total + sum(min(value, Fraction(quotes[asset][1] or 0)) for (asset, _), value in by_market.items())


def test_files_of_other_days_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(3):
        write_snapshots(
            tmp_path, [Snap(ONE, day, 100 + day, [SnapshotAsset(USDC, day + 1, 0, value=f"{day + 1}")])], day
        )
    read = list[str]()

    def note(table: Table, files: Sequence[LakeFile], *more: Any) -> pa.Table:
        read.extend(f"{table.name} {file.first}" for file in files)
        return read_history(table, files, *more)

    monkeypatch.setattr(lake_reader, "read_history", note)
    (row,) = by_day(tmp_path, 1, ONE)
    assert (row["value_usd"], row["height"]) == ("1", 100)
    assert [each for each in read if each.startswith("snapshot_holdings")] == ["snapshot_holdings 100"]


# --- partitions ------------------------------------------------------------------------------------------------------


def test_partitions_have_each_account_and_day_once() -> None:
    task = Task("lake", CHAIN, None, FIRST, FIRST + timedelta(days=400))
    accounts = [wallet(number) for number in range(1_300)]
    parts = partitions(task, accounts, 2)
    pairs = [
        (account, part.first + timedelta(days=day))
        for part in parts
        if part.first and part.last
        for account in part.accounts
        for day in range((part.last - part.first).days + 1)
    ]
    assert len(pairs) == len(set(pairs)) == 1_300 * 401
    assert (
        max(len(part.accounts) * ((part.last - part.first).days + 1) for part in parts if part.first and part.last)
        <= MAX_ACCOUNT_DAYS
    )
    firsts = [part.accounts[0] for part in parts]
    assert [bucket(each) for each in firsts] == sorted(bucket(each) for each in firsts)
    assert partitions(task, []) == []


def test_a_partition_of_a_block_has_no_days() -> None:
    (part,) = partitions(Task("lake", CHAIN, 5), [TWO, ONE, ONE])
    assert (part.first, part.last, set(part.accounts)) == (None, None, {ONE, TWO})
    assert part.name.startswith("buckets ")


# --- executors -------------------------------------------------------------------------------------------------------


def write_many(folder: Path, accounts: int = 120, days: int = 2) -> list[Partition]:
    """Partitions of a lake with some accounts and days."""
    wallets = [wallet(number) for number in range(1, accounts + 1)]
    holdings = [SnapshotAsset(NATIVE, 3 * COIN, value="1"), SnapshotAsset(USDC, 10**9 + 1, 6, value="1")]
    snapshots = [Snap(each, day, 100 + day, holdings) for day in range(days) for each in wallets]
    write_snapshots(folder, snapshots)
    write_prices(folder, [(100 + day, NATIVE, f"300{day}.123", None) for day in range(days)])
    return partitions(Task(str(folder), CHAIN, None, FIRST, FIRST + timedelta(days=days)), wallets, 2)


def die_once(partition: Partition) -> pl.DataFrame:
    """End the process of the first call on a lake, as a lack of memory would; compute in later ones."""
    mark = Path(partition.task.lake_uri, "died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(partition)


def die(partition: Partition) -> pl.DataFrame:
    """End the process."""
    os._exit(1)


def refuse(partition: Partition) -> pl.DataFrame:
    """Fail with an error of ours."""
    raise BadRequest("partition", "refused")


def parquet_bytes(results: list[pl.DataFrame], file: Path) -> bytes:
    """The results as the bytes of a file."""
    pl.concat(results).write_parquet(file)
    return file.read_bytes()


def test_processes_give_the_bytes_of_inline_although_one_dies(tmp_path: Path) -> None:
    parts, reported = write_many(tmp_path), list[Partition]()
    inline = Executor().run(parts, lambda part: None)
    pooled = Executor("processes", 2, compute=die_once).run(parts, reported.append)
    assert len(parts) > 2
    assert (tmp_path / "died").exists()
    assert sorted(part.accounts for part in reported) == sorted(part.accounts for part in parts)
    assert parquet_bytes(pooled, tmp_path / "b.parquet") == parquet_bytes(inline, tmp_path / "a.parquet")
    assert sum(map(len, inline)) == 240
    assert set(pl.concat(inline)["value_usd"].unique()) == {"9001.369", "9004.369"}


@pytest.mark.slow("starts a pool of processes four times")
def test_a_partition_that_always_kills_its_worker_ends_the_run(tmp_path: Path) -> None:
    part = Partition(Task(str(tmp_path), CHAIN, 5), (ONE,))
    with pytest.raises(Unavailable, match=f"died {RETRIES + 1} times, last in one of: buckets"):
        Executor("processes", 1, compute=die).run([part], lambda part: None)


@pytest.mark.slow("starts Ray on this machine, which takes ten seconds")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_ray_gives_the_bytes_of_inline_although_a_worker_dies(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    parts = write_many(tmp_path)
    inline = Executor().run(parts, lambda part: None)
    try:
        on_ray = Executor("ray", 2, compute=die_once).run(parts, lambda part: None)
    except Unavailable as error:
        if "local:" not in str(error):
            raise
        pytest.skip(f"Ray does not start here: {error}")  # a busy machine exceeds its limits
    assert (tmp_path / "died").exists()
    assert parquet_bytes(on_ray, tmp_path / "b.parquet") == parquet_bytes(inline, tmp_path / "a.parquet")
    with pytest.raises(BadRequest, match="refused"):
        Executor("ray", 1, compute=refuse).run(parts[:1], lambda part: None)
