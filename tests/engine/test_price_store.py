"""The prices that answers used are kept for ever: first in the tail, then in the lake, each once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block, Span
from chainfolio.contracts import Price
from chainfolio.engine.stored_prices.past_prices import PastPrices
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.reads import ReadResult
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.tables import PRICES

ETH, USDC = asset("eip155:1/slip44:60"), asset(f"eip155:1/erc20:0x{'a0' * 20}")
LONG = Decimal("1234567890.123456789012345678901234567890123456789")


def block(height: int, fork: str = "a") -> Block:
    return Block(height, f"0x{fork}{height}", f"0x{fork}{height - 1}", 1_700_000_000_123_456 + height * 1_000_000)


def price(of: Asset, usd: str | int | Decimal, source: str = "feed", **more: Any) -> Price:
    return Price(of, Decimal(usd), source, 1_700_000_000_654_321, Decimal("0.95"), **more)


def store_at(folder: Path) -> PriceStore:
    return PriceStore("a", Lake(str(folder / "lake")), Tail(folder / "tail.sqlite"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PriceStore]:
    price_store = store_at(tmp_path)
    yield price_store
    price_store.tail.close()


def test_a_price_comes_back_from_the_tail_and_from_the_lake_to_the_last_digit(store: PriceStore) -> None:
    call = ReadResult(Call(f"0x{'f1' * 20}", "latestRoundData()(uint80,int256)", ()), (7, -5, b"\x01", [1, "x"]))
    original = price(
        ETH,
        LONG,
        detail="feed 0xf1 → round 7",
        depth_usd=Decimal("5.10"),
        calls=(call,),
        alternatives=(price(ETH, "1.00", "vendor"),),
    )
    (added,) = store.add(block(5), [original], final=True).values()
    for stored in (added, store.at(block(5))[ETH]):
        assert replace(stored, calls=()) == replace(original, calls=())
        assert str(stored.usd) == str(LONG)
        (stored_call,) = stored.calls
        assert stored_call.read.label[:3] == call.read.label[:3]
        assert stored_call.result == ("7", "-5", "0x01", "[1, 'x']")
    assert store.move_final(5) == (1, [])
    assert not store.has_waiting()
    assert store.at(block(5)) == {ETH: added}
    assert store.at(block(5))[ETH].calls == added.calls


def test_what_was_said_of_a_block_first_stays_whatever_is_said_later(store: PriceStore) -> None:
    store.add(block(5), [price(ETH, "2000")], final=True)
    assert store.add(block(5), [price(ETH, "3000"), price(USDC, "1")], final=True) == {
        ETH: price(ETH, "2000"),
        USDC: price(USDC, "1"),
    }
    store.move_final(5)
    assert store.add(block(5), [price(ETH, "4000")], final=True) == {ETH: price(ETH, "2000")}
    store.move_final(5)
    assert store.lake.count(PRICES) == 2


def test_prices_of_blocks_that_are_not_final_wait_and_go_to_the_lake_when_they_are(store: PriceStore) -> None:
    store.add(block(7), [price(ETH, "2000")], final=False)
    assert store.move_final(6) == (0, [])
    assert store.at(block(7)) == {ETH: price(ETH, "2000")}
    assert store.at(block(7, "b")) == {}
    assert store.move_final(7) == (0, [7])  # its block is not in the tail yet
    store.tail.put("a", [TailBlock(block(7), {})])
    assert store.move_final(7) == (1, [])
    assert store.lake.scan(PRICES).collect()["usd"].to_list() == ["2000"]


def test_prices_of_a_block_that_has_left_the_chain_go_with_it(store: PriceStore) -> None:
    store.tail.put("a", [TailBlock(block(6), {}), TailBlock(block(7), {})])
    for height in (6, 7):
        store.add(block(height), [price(ETH, str(height))], final=False)
    store.tail.rollback("a", 6)
    assert store.at(block(7)) == {}
    store.add(block(6, "b"), [price(ETH, "66")], final=False)  # of a fork that a node told and the index never had
    assert store.move_final(6) == (1, [])
    assert store.lake.scan(PRICES).collect()["usd"].to_list() == ["6"]
    assert not store.has_waiting()


def test_prices_of_a_fork_are_dropped_by_the_hashes_of_a_node_where_nothing_is_indexed(store: PriceStore) -> None:
    store.add(block(7), [price(ETH, "7")], final=False)
    store.add(block(7, "b"), [price(ETH, "77")], final=False)
    assert store.move_final(9) == (0, [7])
    assert store.move_final(9, {7: block(7, "b").hash}) == (1, [])
    assert store.lake.scan(PRICES).collect()["usd"].to_list() == ["77"]


class Killed(BaseException):
    """A process that ends there."""


@pytest.mark.parametrize("method", ["append", "drop_prices"])
def test_a_process_that_is_killed_on_the_way_to_the_lake_loses_and_doubles_nothing(
    store: PriceStore, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for height in (1, 2, 3):
        store.add(block(height), [price(ETH, str(height)), price(USDC, "1")], final=True)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store.lake if method == "append" else store.tail, method, killed)
        with pytest.raises(Killed):
            store.move_final(3)
    store.add(block(4), [price(ETH, "4")], final=True)
    store.move_final(4)
    rows = store.lake.scan(PRICES).collect()
    assert sorted(zip(rows["height"], rows["asset"], strict=True)) == sorted(
        [(height, str(of)) for height in (1, 2, 3) for of in (ETH, USDC)] + [(4, str(ETH))]
    )
    assert not store.has_waiting()


def test_a_row_that_becomes_final_after_later_ones_were_moved_is_moved_too(store: PriceStore) -> None:
    store.add(block(9), [price(ETH, "9")], final=False)
    store.add(block(3), [price(ETH, "3")], final=True)
    assert store.move_final(3) == (1, [])
    assert store.move_final(9, {9: block(9).hash}) == (1, [])
    assert sorted(store.lake.scan(PRICES).collect()["usd"]) == ["3", "9"]


@dataclass(frozen=True)
class Work:
    folder: Path
    name: str


GATE: list[Any] = []  # of a process: where it waits until both have seen that nothing is kept


def gated(barrier: Any) -> None:
    """Give a process the barrier: it cannot come with the work."""
    GATE.append(barrier)


def keep_many(work: Work) -> dict[int, str]:
    """Return the source used for each block by one of two processes that store prices at the same time.

    Both processes see an empty store first, so each reads its own source.
    """
    store = store_at(work.folder)
    used = {}
    for height in range(1, 41):
        assert store.at(block(height)) == {}
        GATE[0].wait(20)
        added = store.add(block(height), [price(ETH, height, work.name)], final=True)
        assert store.at(block(height)) == added
        used[height] = added[ETH].source
        GATE[0].wait(20)  # the other has kept its own by now: what is used has to be what stays
        assert store.at(block(height))[ETH].source == used[height]
        if height % 10 == 0:
            store.move_final(height)
    store.move_final(40)
    store.tail.close()
    return used


def test_two_processes_that_ask_different_sources_use_and_keep_the_same_prices(tmp_path: Path) -> None:
    store_at(tmp_path).tail.close()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, initializer=gated, initargs=(spawn.Barrier(2),)) as pool:
        first, second = pool.map(keep_many, [Work(tmp_path, "one"), Work(tmp_path, "two")])
    assert first == second
    last = store_at(tmp_path)
    last.move_final(40)
    rows = last.lake.scan(PRICES).sort("height").collect()
    assert dict(zip(rows["height"], rows["source"], strict=True)) == first
    assert len(rows) == 40
    last.tail.close()


def test_the_last_price_before_a_block_is_found_in_both_places_and_not_from_long_ago(store: PriceStore) -> None:
    def price_at(of: Asset, height: int) -> Price:
        return replace(price(of, height), time_us=block(height).time_us)

    store.add(block(3), [price_at(ETH, 3), price_at(USDC, 3)], final=True)
    store.move_final(3)
    store.add(block(8), [price_at(ETH, 8)], final=False)
    for next_height in (3, 4, 9, 8):
        fresh = PriceStore("a", store.lake, store.tail)
        usd_by_asset = {of: int(quote.usd) for of, quote in fresh.recent(block(next_height), 7).items()}
        assert usd_by_asset == {3: {}, 4: {ETH: 3, USDC: 3}, 8: {ETH: 3, USDC: 3}, 9: {ETH: 8, USDC: 3}}[next_height]
    assert fresh.recent(block(8 * 86_400), 7) == {}
    fresh.add(block(9), [price_at(USDC, 9)], final=False)
    assert {of: int(quote.usd) for of, quote in fresh.recent(block(10), 7).items()} == {ETH: 3, USDC: 9}
    assert {of: int(quote.usd) for of, quote in fresh.recent(block(4), 7).items()} == {ETH: 3, USDC: 3}


async def test_stored_prices_of_final_blocks_are_given_without_a_node(store: PriceStore) -> None:
    for height in (5, 6):
        store.add(block(height), [price(ETH, height)], final=True)
    past = PastPrices(SimpleNamespace(key="a"), (), store)
    prices, issues = await past.stored({block(5): [ETH, USDC], block(6): [ETH]}, final=5)
    assert {height: {of: each.usd for of, each in block_prices.items()} for height, block_prices in prices.items()} == {
        5: {ETH: Decimal(5)},
        6: {},
    }
    assert [each.reason for each in issues] == ["2 prices of these blocks are not stored, and the node does not answer"]
    assert (await past.stored({block(5): [ETH]}, final=5))[1] == []


def test_the_lake_gives_kept_prices_to_other_engines(store: PriceStore) -> None:
    store.add(block(5), [price(ETH, LONG)], final=True)
    store.move_final(5)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql(
            f"SELECT asset, usd, epoch_us(observed), epoch_us(time) FROM read_parquet({store.lake.files(PRICES)!r})"
        ).fetchall()
    assert rows == [(str(ETH), str(LONG), 1_700_000_000_654_321, block(5).time_us)]


def test_a_deep_reorg_forgets_the_prices_above_it(store: PriceStore) -> None:
    for height in (3, 5):
        store.add(block(height), [price(ETH, str(height))], final=True)
    store.move_final(5)
    store.lake.delete_span("a", Span(4, 2**62))
    store.tail.rewind("a", 3, None)
    assert (store.at(block(5)), store.at(block(3))) == ({}, {ETH: price(ETH, "3")})


def test_a_price_that_is_added_while_the_newest_ones_are_read_is_one_of_them(
    store: PriceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(block(1), [price(ETH, 1)], final=True)
    original = PriceStore._last_before
    with ThreadPoolExecutor(1) as pool:

        def read_slowly(self: PriceStore, at: Block, since_us: int) -> dict[Asset, Price]:
            prices = original(self, at, since_us)
            wait([pool.submit(store.add, block(3), [price(ETH, 3)], final=True)], timeout=0.2)
            return prices

        with monkeypatch.context() as patched:
            patched.setattr(PriceStore, "_last_before", read_slowly)
            assert {of: each.usd for of, each in store.recent(block(2), 7).items()} == {ETH: 1}
    assert {of: each.usd for of, each in store.recent(block(4), 7).items()} == {ETH: 3}
