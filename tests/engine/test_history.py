"""Past days of accounts: stored snapshots and reads of many days at once are equal to the byte."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio import amounts
from chainfolio.adapters.evm import scan
from chainfolio.adapters.evm.prices.chainlink import LATEST
from chainfolio.assets import account
from chainfolio.blocks import Block, Span
from chainfolio.engine.history import snapshot_store
from chainfolio.engine.history.day_blocks import days_from, midnight_us
from chainfolio.engine.history.past_days import ABSENT, PENDING
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot
from chainfolio.engine.service import Engine
from chainfolio.errors import HistoryUnavailable, Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.plans import Unknown
from chainfolio.portfolio.document import encode_one
from chainfolio.portfolio.overview import overview
from chainfolio.settings import Settings
from chainfolio.tables import SNAPSHOT_HOLDINGS, SNAPSHOTS
from tests.e2e.conftest import World, configured, paid_daily
from tests.e2e.test_past import indexed

pytestmark = pytest.mark.node

FIRST = date(2024, 2, 26)
LAST = date(2024, 3, 9)
DAYS = days_from(FIRST, LAST)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A chain that lives through two weeks, 29 February among them; Alice pays Carol every day."""
    with paid_daily(DAYS) as paid_world:
        yield paid_world


@pytest.fixture(scope="module")
def indexed_settings(world: World, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An index of everything."""
    return indexed(world, tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture
async def system(world: World, indexed_settings: Settings) -> AsyncIterator[System]:
    """Everything is indexed, and no snapshot is kept."""
    for table in (SNAPSHOTS, SNAPSHOT_HOLDINGS):
        shutil.rmtree(Path(indexed_settings.lake_uri, table.name), ignore_errors=True)
    running = System(indexed_settings)
    yield running
    await running.close()


@pytest.fixture
def fresh(world: World, tmp_path: Path) -> Settings:
    """An index of everything, with no stored price."""
    return indexed(world, tmp_path / "data")


@pytest.fixture
async def unindexed(world: World, tmp_path: Path) -> AsyncIterator[System]:
    """Yield a system without an index."""
    running = System(configured(world, tmp_path / "data"))
    yield running
    await running.close()


async def all_of(
    system: System, wallets: list[str], days: list[date], *, retry: bool = False
) -> dict[tuple[str, date], DaySnapshot]:
    """Read days of some wallets from an engine's history; each day of each wallet must come once."""
    engine, chain = Engine(system), system.chain("local")
    snapshots = [
        each async for batch in engine.history.read(chain, dict.fromkeys(days, wallets), retry=retry) for each in batch
    ]
    assert len({(each.account, each.day) for each in snapshots}) == len(snapshots)
    return {(each.account, each.day): each for each in snapshots}


def stored_rows(system: System, table: Any = SNAPSHOTS) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = system.lake.scan(table).collect().sort(table.key).to_dicts()
    return rows


async def test_each_day_is_what_the_last_block_before_it_says_and_so_is_29_february(
    world: World, system: System
) -> None:
    carol = world.wallets["carol"]
    snapshots = await all_of(system, [carol], DAYS)
    assert list(snapshots) == [(carol, day) for day in DAYS]
    for (_, day), each in snapshots.items():
        block = world.node.block(each.block.height)
        assert each.block.hash == block["hash"]
        assert int(block["timestamp"], 16) == midnight_us(day) // 1_000_000 - 1
        assert (each.completeness, each.reason) == ("complete", "")
        (row,) = [
            row
            for row in stored_rows(system, SNAPSHOT_HOLDINGS)
            if row["day"] == datetime(day.year, day.month, day.day, tzinfo=UTC) and row["asset"] == "0x" + "0" * 40
        ]
        raw = int(world.node.rpc("eth_getBalance", carol, hex(each.block.height)), 16)
        assert int.from_bytes(row["raw"], "big") == raw


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_day_that_is_read_again_is_the_snapshot_byte_for_byte(world: World, system: System) -> None:
    wallets = [world.wallets[name] for name in ("alice", "bob", "carol")]
    first = await all_of(system, wallets, DAYS)
    for table in (SNAPSHOTS, SNAPSHOT_HOLDINGS):
        shutil.rmtree(Path(system.lake.uri, table.name))
    anew = System(system.settings)
    engine = Engine(anew)
    for day in DAYS:
        documents = await engine.history.portfolios([account(each) for each in wallets], day)
        assert [encode_one(each) for each in documents] == [first[each, day].document for each in wallets]
        before = anew.chain("local").requests
        repeated = await engine.history.portfolios([account(each) for each in wallets], day)
        assert anew.chain("local").requests == before
        assert [encode_one(each) for each in repeated] == [encode_one(each) for each in documents]
    assert len(stored_rows(anew)) == len(first)
    await anew.close()


async def test_an_overview_of_a_kept_day_asks_no_node_and_has_its_pictures(world: World, system: System) -> None:
    wallets = [account(world.wallets[name]) for name in ("alice", "bob")]
    await all_of(system, [each.address for each in wallets], DAYS)
    engine, chain = Engine(system), system.chain("local")
    images = {chain.info.native.asset: {"small": "https://images.example/eth.svg"}}
    engine.facts()["local"] = replace(engine.facts()["local"], tokens=images)
    before = chain.requests
    rows = overview(await engine.historical(wallets, DAYS[-1]), engine.pictures())
    assert chain.requests == before
    assert [row.image for row in rows if row.symbol == "ETH"] == ["https://images.example/eth.svg"]
    assert len(rows) > 1


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_many_days_take_the_requests_of_one_and_what_is_kept_is_never_asked_again(
    world: World, system: System
) -> None:
    wallets = [world.wallets[name] for name in ("alice", "bob", "carol")]
    chain = system.chain("local")
    await chain.heads()
    before = chain.requests
    await all_of(system, wallets[:1], DAYS)
    alone = chain.requests - before
    assert alone <= len(DAYS) * 3
    before = chain.requests
    await all_of(system, wallets, DAYS)
    assert chain.requests - before <= 1.2 * len(DAYS)
    before = chain.requests
    await all_of(system, wallets, DAYS)
    assert chain.requests == before


@pytest.mark.slow("a day that fails is read again in another test too")
async def test_a_day_that_was_read_with_an_unread_feed_is_read_again(
    world: World, fresh: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(fresh)
    alice, chain = world.wallets["alice"], system.chain("local")
    scanned = scan.answer

    async def without_feeds(node: Any, queries: Any, block: Block) -> list[Any]:
        results = await scanned(node, queries, block)
        unread = Unknown("the node could not finish this read")
        return [
            unread if getattr(each, "signature", "") == LATEST else result
            for each, result in zip(queries, results, strict=True)
        ]

    async def each_without_feeds(node: Any, reads: Any) -> list[Any]:
        return [await without_feeds(node, queries, block) for block, queries in reads]

    with monkeypatch.context() as patched:
        patched.setattr(scan, "answer", without_feeds)
        patched.setattr(scan, "answer_each", each_without_feeds)
        (first,) = (await all_of(system, [alice], DAYS[:1])).values()
    assert (first.completeness, first.retry) == ("partial", True)
    assert "could not be read" in first.reason
    before = chain.requests
    (second,) = (await all_of(system, [alice], DAYS[:1], retry=True)).values()
    assert (second.completeness, second.retry) == ("complete", False)
    assert Decimal(second.value or 0) > Decimal(first.value or 0)
    assert chain.requests > before
    await system.close()


async def test_without_an_index_days_are_partial_and_are_not_asked_again_until_the_index_has_grown(
    world: World, unindexed: System
) -> None:
    alice = world.wallets["alice"]
    snapshots = await all_of(unindexed, [alice], DAYS[:3])
    assert {each.completeness for each in snapshots.values()} == {"partial"}
    assert all("not indexed" in each.reason and not each.retry for each in snapshots.values())
    chain = unindexed.chain("local")
    before = chain.requests
    assert await all_of(unindexed, [alice], DAYS[:3]) == snapshots
    assert chain.requests == before
    height = snapshots[alice, DAYS[0]].block.height
    unindexed.tail.add_ranges("local", [("transfers", "")], Span(0, height))
    await all_of(unindexed, [alice], DAYS[:3])
    assert chain.requests > before


async def test_days_before_the_chain_and_days_that_are_not_final_are_named_and_not_kept(
    world: World, system: System
) -> None:
    alice = world.wallets["alice"]
    long_ago, tomorrow = date(1999, 12, 31), LAST + timedelta(days=400)
    snapshots = await all_of(system, [alice], [long_ago, LAST, tomorrow])
    assert [snapshots[alice, day].completeness for day in (long_ago, LAST, tomorrow)] == [ABSENT, "complete", PENDING]
    assert [snapshots[alice, day].value for day in (long_ago, tomorrow)] == [None, None]
    assert len(stored_rows(system)) == 1


class _Killed(BaseException):
    """The process ends here."""


async def test_a_writer_that_dies_between_its_two_commits_costs_no_row_and_no_request(
    world: World, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = world.wallets["alice"], world.wallets["bob"]

    def killed(*_: object) -> None:
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_store.SnapshotStore, "_add_holdings", killed)
        with pytest.raises(_Killed):
            await all_of(system, [alice], DAYS[:4])
    assert (len(stored_rows(system)), len(stored_rows(system, SNAPSHOT_HOLDINGS))) == (4, 0)
    anew = System(system.settings)
    before = anew.chain("local").requests
    snapshots = await all_of(anew, [alice], DAYS[:4])
    assert anew.chain("local").requests == before
    await all_of(anew, [bob], DAYS[:1])  # the next one that writes
    rows = stored_rows(anew, SNAPSHOT_HOLDINGS)
    assert {row["account"] for row in rows} == {alice, bob}
    assert len(stored_rows(anew)) == 5
    for (wallet, day), each in snapshots.items():
        wallet_rows = [row for row in rows if (row["account"], row["day"].date()) == (wallet, day)]
        assert [row["item"] for row in wallet_rows] == list(range(len(wallet_rows)))
        assert {row["symbol"] for row in wallet_rows} >= {"eth"}
        assert each.value == kept_value(wallet_rows)
    await anew.close()


def kept_value(rows: list[dict[str, Any]]) -> str:
    """The net worth by the holdings."""
    valued_rows = [row for row in rows if row["value"] is not None and not row["spam"]]
    values = [(row["side"], Decimal(row["value"])) for row in valued_rows]
    return amounts.text(amounts.total([each.copy_negate() if side == "borrowed" else each for side, each in values]))


async def test_what_two_processes_read_at_once_is_kept_once(world: World, system: System) -> None:
    alice, second_system = world.wallets["alice"], System(system.settings)
    await asyncio.gather(all_of(system, [alice], DAYS[:5]), all_of(second_system, [alice], DAYS[:5]))
    assert [(row["day"].date(), row["attempt"]) for row in stored_rows(system)] == [(day, 0) for day in DAYS[:5]]
    rows = stored_rows(system, SNAPSHOT_HOLDINGS)
    assert len({tuple(row[name] for name in SNAPSHOT_HOLDINGS.key) for row in rows}) == len(rows)
    await second_system.close()


async def test_a_day_that_no_node_has_the_state_of_is_kept_with_its_reason_and_read_the_next_time(
    world: World, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, chain = world.wallets["alice"], system.chain("local")
    real, alone = type(chain).answer_each, type(chain).answer

    def pruned_error(block: Block) -> HistoryUnavailable | None:
        return HistoryUnavailable("local", block.height, "pruned") if block.height < first_readable else None

    async def pruned(self: Any, reads: Any) -> Any:
        errors = [pruned_error(block) for block, _ in reads]
        present_errors = [each for each in errors if each is not None]
        if present_errors and len(present_errors) == len(errors):
            raise present_errors[0]
        results = iter(await real(self, [each for each in reads if pruned_error(each[0]) is None]))
        return [error or next(results) for error in errors]

    async def pruned_alone(self: Any, reads: Any, block: Block) -> Any:
        if (error := pruned_error(block)) is not None:
            raise error
        return await alone(self, reads, block)

    blocks = await Engine(system).history.days.final_before(chain, DAYS)
    first_readable = max(block.height for day, block in blocks.items() if block is not None and day < DAYS[3]) + 1
    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", pruned)
        patched.setattr(type(chain), "answer", pruned_alone)
        snapshots = await all_of(system, [alice], DAYS[:6])
    assert [snapshots[alice, day].completeness for day in DAYS[:6]] == [UNREADABLE] * 3 + ["complete"] * 3
    assert [row["value"] is None for row in stored_rows(system)] == [True] * 3 + [False] * 3
    assert all("no state at block" in row["reason"] for row in stored_rows(system)[:3])
    repeated = await all_of(system, [alice], DAYS[:6])
    assert {each.completeness for each in repeated.values()} == {"complete"}
    assert [row["attempt"] for row in stored_rows(system)] == [0, 1, 0, 1, 0, 1, 0, 0, 0]


async def test_a_node_that_fails_in_a_window_leaves_nothing_half_kept(
    world: World, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, chain = world.wallets["alice"], system.chain("local")
    calls = 0
    real = type(chain).answer_each

    async def failing(self: Any, reads: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("local", "gone")
        return await real(self, reads)

    with monkeypatch.context() as patched:
        patched.setattr(type(chain), "answer_each", failing)
        with pytest.raises(Unavailable):
            await all_of(system, [alice], DAYS)
    assert not system.lake.exists(SNAPSHOTS) or not stored_rows(system)
    assert len(await all_of(system, [alice], DAYS)) == len(DAYS)
