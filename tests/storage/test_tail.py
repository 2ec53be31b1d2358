"""The tail stays consistent through any puts, rollbacks and drops."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import Locked, StorageFull, StoreError
from chainfolio.scopes import account_filter
from chainfolio.storage.endpoint_tables import RESPONSE_TTL_US
from chainfolio.storage.sqlite import translate_errors
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.storage.tail_schema import VERSION
from chainfolio.storage.tail_sqlite import SqliteTail
from chainfolio.storage.watches import OwnedWatch, WatchedAccount, WatchLimits
from tests.depth import IS_DEEP
from tests.storage.stores import KINDS, Stores


@pytest.fixture
def tail(tail_place: str) -> Iterator[Tail]:
    opened = Tail(tail_place)
    yield opened
    opened.close()


def block(height: int, fork: str = "", below: str = "") -> Block:
    return Block(height, f"{height}{fork}", f"{height - 1}{below}", height * 12_000_000)


def entry(height: int, fork: str = "", below: str = "") -> TailBlock:
    return TailBlock(block(height, fork, below), {"transfers": f"transfers of {height}{fork}".encode(), "logs": b""})


def test_blocks_stand_on_each_other(tail: Tail) -> None:
    tail.put("a", [entry(5), entry(6)])
    tail.put("a", [entry(7)])
    tail.put("b", [entry(90)])
    assert tail.blocks("a") == [block(5), block(6), block(7)]
    assert tail.top("a") == block(7)
    assert tail.rows("a", "transfers", 6, 9) == [(6, b"transfers of 6"), (7, b"transfers of 7")]
    assert tail.rows("a", "approvals", 0, 9) == []
    assert tail.lowest("a") == tail.blocks("a")[0]
    assert (tail.top("nowhere"), tail.lowest("nowhere")) == (None, None)


@pytest.mark.parametrize("wrong", [entry(9), entry(8, below="x"), entry(7), entry(6)])
def test_a_block_that_stands_on_nothing_is_refused_with_all_that_came_with_it(tail: Tail, wrong: TailBlock) -> None:
    tail.put("a", [entry(7)])
    with pytest.raises(StoreError, match="does not stand on 7 7"):
        tail.put("a", [wrong])
    with pytest.raises(StoreError, match="does not stand on"):
        tail.put("a", [entry(8), entry(10)], datasets=["transfers"])
    assert tail.blocks("a") == [block(7)]
    assert not tail.indexed_ranges("a", "transfers")


def test_the_lowest_block_stands_on_the_anchor(tail: Tail) -> None:
    tail.set_anchor("a", block(7))
    for wrong in (entry(8, below="x"), entry(7), entry(3)):
        with pytest.raises(StoreError, match="does not stand on 7 7"):
            tail.put("a", [wrong])
    tail.put("a", [entry(8)])
    assert tail.anchor("a") == block(7)
    tail.put("b", [entry(1000)])
    tail.set_anchor("c", block(7))
    tail.put("c", [entry(1000)])  # the blocks between are indexed backwards, later
    assert tail.top("c") == block(1000)


def test_a_reorganisation_forgets_blocks_rows_and_cover(tail: Tail) -> None:
    tail.put("a", [entry(height) for height in range(1, 10)], datasets=["transfers", "logs"])
    tail.rollback("a", 6)
    assert tail.top("a") == block(6)
    assert tail.indexed_ranges("a", "logs") == Spans([Span(1, 6)])
    assert [height for height, _ in tail.rows("a", "transfers", 0, 99)] == [1, 2, 3, 4, 5, 6]
    tail.put("a", [entry(7, "x"), entry(8, "x", "x")], datasets=["transfers"])
    assert tail.top("a") == block(8, "x", "x")
    assert tail.indexed_ranges("a", "transfers") == Spans([Span(1, 8)])


def test_what_is_final_is_not_rolled_back(tail: Tail) -> None:
    tail.set_anchor("a", block(7))
    tail.put("a", [entry(8)])
    with pytest.raises(StoreError, match="block 7 is final"):
        tail.rollback("a", 6)
    tail.rollback("a", 7)
    assert tail.top("a") is None


def test_mending_forgets_final_blocks_too(tail: Tail) -> None:
    tail.close_batch(tail.open_batch("a", Span(1, 7), ["blocks"]), anchor=block(7))
    tail.put("a", [entry(8)], datasets=["blocks"])
    batch = tail.open_batch("a", Span(3, 9), ["blocks"])
    tail.rewind("a", 4, block(4))
    assert (tail.top("a"), tail.anchor("a"), tail.open_batches("a")) == (None, block(4), [])
    assert tail.indexed_ranges("a", "blocks") == Spans([Span(1, 4)])
    tail.close_batch(batch)
    assert tail.indexed_ranges("a", "blocks") == Spans([Span(1, 4)]), "an intent of before has nothing to say any more"
    assert tail.open_batch("a", Span(5, 5), ["blocks"]).number == 3


def test_a_batch_is_open_until_its_cover_stands(tail: Tail) -> None:
    first = tail.open_batch("a", Span(0, 9), ["transfers", "logs"], ["0xaa", "0xbb"])
    second = tail.open_batch("a", Span(10, 19), ["blocks"])
    assert (first.number, second.number, tail.open_batch("b", Span(0, 0), []).number) == (1, 2, 1)
    assert tail.open_batches("a") == [first, second]
    for _ in range(2):
        tail.close_batch(first, anchor=block(9))
        assert tail.open_batches("a") == [second]
        assert (
            tail.indexed_ranges("a", "logs", "0xbb")
            == tail.indexed_ranges("a", "transfers", "0xaa")
            == Spans([Span(0, 9)])
        )
        tail.set_anchor("a", block(12))
    assert tail.anchor("a") == block(12), "closing again moves nothing"
    assert list(tail.ranges_by_filter("a", "logs")) == ["0xaa", "0xbb"]
    assert not tail.indexed_ranges("a", "logs"), "some contracts are not everything"
    assert tail.open_batch("a", Span(0, 9), ["logs"], after=40).number == 41


def test_everything_outlives_the_process(tail: Tail) -> None:
    tail.put("a", [entry(5)], datasets=["blocks"])
    batch = tail.open_batch("a", Span(0, 4), ["blocks"])
    tail.learn("http://node", "max_span", 500)
    tail.learn("http://node", "max_span", 250)
    reopened = Tail(tail.place)
    assert reopened.top("a") == block(5)
    assert reopened.open_batches("a") == [batch]
    assert reopened.capabilities("http://node") == {"max_span": 250}
    assert reopened.capabilities("http://else") == {}
    reopened.close()


def test_a_reader_sees_everything_and_writes_nothing(tail: Tail) -> None:
    tail.put("a", [entry(5)])
    reader = Tail(tail.place, reader=True)
    assert reader.top("a") == block(5)
    tail.put("a", [entry(6)])
    assert reader.top("a") == block(6)
    with pytest.raises(StoreError, match=r"read-?only"):
        reader.drop("a", 9)
    reader.close()


def test_one_process_writes_a_chain(tail: Tail) -> None:
    reason = f"chain a is held by process {os.getpid()}"
    with tail.lock("a"), tail.lock("b"), pytest.raises(Locked, match=reason), tail.lock("a"):
        pass
    with tail.lock("a"):
        pass


def test_a_process_that_dies_lets_go_of_its_chain(tail: Tail) -> None:
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    child = context.Process(target=hold, args=(tail.place, child_end))
    child.start()
    assert parent_end.recv() == "held"
    with pytest.raises(Locked, match=f"held by process {child.pid}"), tail.lock("a"):
        pass
    child.kill()
    child.join()
    ended_s = time.monotonic()
    while True:  # a server of PostgreSQL notices a moment later that its client is gone
        try:
            with tail.lock("a"):
                break
        except Locked:
            assert time.monotonic() < ended_s + 10
            time.sleep(0.05)


def hold(location: str, pipe: Any) -> None:
    with Tail(location).lock("a"):
        pipe.send("held")
        pipe.recv()


@pytest.mark.parametrize("version", [VERSION + 1, 8])
def test_a_file_of_another_format_version_is_refused_with_the_fix(tmp_path: Path, version: int) -> None:
    path = tmp_path / "tail.db"
    Tail(path).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(StoreError, match=f"has format version {version}, this release reads version 1") as caught:
        Tail(path)
    assert "index into an empty one" in caught.value.remedy


def test_a_damaged_file_is_said_to_be_damaged_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "tail.db"
    path.write_bytes(b"not a database" * 500)
    with pytest.raises(StoreError, match="is damaged") as caught:
        Tail(path)
    assert "backup" in caught.value.remedy


@pytest.mark.parametrize(
    ("error", "kind"),
    [(apsw.FullError, StorageFull), (apsw.BusyError, Locked), (apsw.LockedError, Locked), (apsw.IOError, StoreError)],
)
def test_errors_of_sqlite_have_their_own_cures(error: type[apsw.Error], kind: type[StoreError], tmp_path: Path) -> None:
    with pytest.raises(kind) as caught, translate_errors("tail", tmp_path):
        raise error("as SQLite says it")
    assert type(caught.value) is kind


def test_a_full_file_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "tail.db")
    tail.put("a", [entry(1)])
    assert isinstance(tail._database, SqliteTail)
    connection = tail._database._connection
    pages: Any = connection.pragma("page_count")
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFull):
        tail.put("a", [TailBlock(block(2), {"logs": b"x" * 100_000})])
    assert tail.top("a") == block(1)
    connection.execute("PRAGMA max_page_count = 100000")
    tail.put("a", [entry(2)])


heights = st.integers(0, 60)


class TailModel(RuleBasedStateMachine):
    """A tail beside a dictionary of blocks and a set of covered heights."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self.tail = Tail(location)
        self.blocks: dict[int, Block] = {}
        self.covered: set[int] = set()
        self.final: Block | None = None
        self.forks = 0

    def teardown(self) -> None:
        self.tail.close()

    @rule(first=heights, count=st.integers(1, 5), honest=st.booleans())
    def put(self, first: int, count: int, honest: bool) -> None:
        top = self.blocks[max(self.blocks)] if self.blocks else None
        below = top or (self.final if self.final and first <= self.final.height + 1 else None)
        self.forks += 1
        at = below.height + 1 if honest and below else first
        parent = below.hash if honest and below else "nobody"
        new = []
        for height in range(at, at + count):
            new.append(Block(height, f"{height}/{self.forks}", parent, height))
            parent = new[-1].hash
        entries = [TailBlock(each, {"logs": each.hash.encode()}) for each in new]
        if below and not honest:
            with pytest.raises(StoreError):
                self.tail.put("a", entries, datasets=["logs"])
            return
        self.tail.put("a", entries, datasets=["logs"])
        self.blocks |= {each.height: each for each in new}
        self.covered |= {each.height for each in new}

    @rule(height=heights)
    def rollback(self, height: int) -> None:
        if self.final and height < self.final.height:
            with pytest.raises(StoreError):
                self.tail.rollback("a", height)
            return
        self.tail.rollback("a", height)
        self.blocks = {at: each for at, each in self.blocks.items() if at <= height}
        self.covered = {at for at in self.covered if at <= height}

    @rule(part=st.integers(1, 5))
    def finalise(self, part: int) -> None:
        finished = sorted(self.blocks)[:part]
        if not finished:
            return
        batch = self.tail.open_batch("a", Span(finished[0], finished[-1]), ["logs"])
        self.tail.close_batch(batch, self.blocks[finished[-1]])
        self.final = self.blocks[finished[-1]]
        self.tail.drop("a", finished[-1])
        self.blocks = {at: each for at, each in self.blocks.items() if at > finished[-1]}

    @rule(first=heights, size=st.integers(0, 9))
    def indexed_ranges(self, first: int, size: int) -> None:
        self.tail.add_ranges("a", [("logs", "")], Span(first, first + size))
        self.covered |= set(range(first, first + size + 1))

    @rule()
    def reopen(self) -> None:
        self.tail.close()
        self.tail = Tail(self.tail.place)

    @invariant()
    def agrees(self) -> None:
        assert self.tail.blocks("a") == [self.blocks[at] for at in sorted(self.blocks)]
        assert dict(self.tail.rows("a", "logs", 0, 999)) == {at: b.hash.encode() for at, b in self.blocks.items()}
        assert self.tail.indexed_ranges("a", "logs") == Spans(Span(at, at) for at in self.covered)
        assert self.tail.anchor("a") == self.final


@pytest.mark.parametrize("kind", KINDS)
def test_the_tail_does_what_a_dictionary_of_blocks_does(stores: Stores, kind: str) -> None:
    class Model(TailModel):
        def __init__(self) -> None:
            super().__init__(stores.tail(kind))

    examples = 30 if kind == "sqlite" else 10
    if IS_DEEP:
        examples *= 10
    run_state_machine_as_test(Model, settings=settings(max_examples=examples, stateful_step_count=20))


def test_a_batch_that_the_tail_does_not_have_is_not_closed(tail: Tail) -> None:
    batch = tail.open_batch("a", Span(0, 9), ["logs"])
    with pytest.raises(StoreError, match="a: batch 2 is not stored"):
        tail.close_batch(replace(batch, number=2))
    assert not tail.indexed_ranges("a", "logs")


def test_places_end_by_themselves_and_are_bounded_by_owner_and_together(tail: Tail) -> None:

    def sync(owner: str, *accounts: str, now_us: int) -> list[str]:
        return tail.add_synced_watches("a", 7, owner, accounts, WatchLimits(now_us, now_us + 100, 5, 3))

    tail.watch("a", [WatchedAccount("0xoperator", 1)])
    assert sync("one", "0x1", "0x2", "0x1", now_us=0) == []
    assert sync("one", "0x3", "0x4", "0x2", now_us=50) == ["0x4"], "three of one owner; an old one is extended"
    assert sync("two", "0x3", "0x5", "0x6", now_us=50) == ["0x6"], "five of all; an account of two owners is two"
    assert sync("other", "0x7", now_us=99) == ["0x7"]
    assert tail.watches("a", 99) == [WatchedAccount(each, 7) for each in ("0x1", "0x2", "0x3", "0x5")] + [
        WatchedAccount("0xoperator", 1)
    ]
    assert [each.account for each in tail.watches("a", 100)] == ["0x2", "0x3", "0x5", "0xoperator"]
    assert sync("other", "0x7", now_us=100) == [], "the first place has ended"
    assert [each.account for each in tail.watches("a", 1000)] == ["0xoperator"]
    assert tail.owned_watches("a", 1000) == tail.owned_watches("b", 0) == []


def test_sold_places_need_no_room_and_outlive_synced_ones(tail: Tail) -> None:
    terms = WatchLimits(now_us=0, expires_us=100, max_count=2, max_per_owner=2)
    assert tail.add_synced_watches("a", 7, "one", ["0x1", "0x2"], terms) == []
    sold = [OwnedWatch(account, "one", True, 500) for account in ("0x2", "0x3", "0x4")]
    for _ in range(2):
        tail.add_sold_watches("a", 7, sold)
    assert tail.owned_watches("a", 0) == [OwnedWatch("0x1", "one", False, 100), *sold]
    assert tail.add_synced_watches("a", 7, "one", ["0x3", "0x5"], replace(terms, expires_us=900)) == []
    assert tail.owned_watches("a", 100) == [*sold, OwnedWatch("0x5", "one", False, 900)], "a sync extends no sold place"
    assert [tail.unwatch("a", each) for each in ("0x4", "0x5")] == [False, True], "what is sold stays"
    tail.add_sold_watches("a", 7, [OwnedWatch("0x4", "one", True, 700)])
    assert [each.account for each in tail.watches("a", 600)] == ["0x4"]


def test_a_comparison_of_an_account_stands_until_a_block_of_its_range_goes(tail: Tail) -> None:
    blocks = [Block(at, f"0x{at}", f"0x{at - 1}", at) for at in range(10, 14)]
    tail.put("a", [TailBlock(block, {}) for block in blocks], datasets=["logs"])
    with pytest.raises(StoreError, match="block 12 is 0x12 now"):
        tail.store_reconciliation("a", "0xa", Span(5, 12), "0xother", b"gone")
    for account, last in (("0xa", 12), ("0xb", 11), ("0xc", 13)):
        tail.store_reconciliation("a", account, Span(5, last), f"0x{last}", b"1")
    tail.store_reconciliation("a", "0xa", Span(6, 12), "0x12", b"2")
    assert tail.reconciliations("a") == [("0xa", b"2"), ("0xb", b"1"), ("0xc", b"1")]
    tail.rollback("a", 12)
    assert [account for account, _ in tail.reconciliations("a")] == ["0xa", "0xb"]
    tail.forget_batch(tail.open_batch("a", Span(5, 5), ["logs"]))
    assert [account for account, _ in tail.reconciliations("a")] == ["0xa"]
    tail.rewind("a", 11, None)
    assert tail.reconciliations("a") == []
    for account in ("0xa", "0xb"):
        tail.store_reconciliation("a", account, Span(5, 9), "0x9", b"3")
    tail.add_ranges("a", [("logs", account_filter("0xb"))], Span(10, 20))
    assert len(tail.reconciliations("a")) == 2
    tail.add_ranges("a", [("logs", account_filter("0xb"))], Span(9, 9))
    assert [account for account, _ in tail.reconciliations("a")] == ["0xa"]
    tail.add_ranges("a", [("logs", "")], Span(2, 5))
    assert tail.reconciliations("a") == []


def test_an_account_is_watched_once_and_all_that_was_ever_wanted_of_it_is_wanted(tail: Tail) -> None:
    tail.watch("a", [WatchedAccount("0xa", 5, 9), WatchedAccount("0xb", 7, 7)])
    tail.watch("a", [WatchedAccount("0xa", 3, 8)])
    tail.watch("b", [WatchedAccount("0xa", 1)])
    assert tail.watches("a") == [WatchedAccount("0xa", 3, 9), WatchedAccount("0xb", 7, 7)]
    tail.watch("a", [WatchedAccount("0xa", 4)])
    tail.watch("a", [WatchedAccount("0xa", 4, 20)])
    assert tail.watches("a") == [WatchedAccount("0xa", 3), WatchedAccount("0xb", 7, 7)], "without an end it has none"
    assert [tail.unwatch("a", "0xa"), tail.unwatch("a", "0xa")] == [True, False]
    assert (tail.watches("a"), tail.watches("b")) == ([WatchedAccount("0xb", 7, 7)], [WatchedAccount("0xa", 1)])


def test_lookups_are_stored_once_and_go_with_their_blocks(tail: Tail) -> None:
    tail.add_lookups("a", [("0x1", 5, None, b"one"), ("0x2", 6, None, b"two")])
    tail.add_lookups("a", [("0x1", 5, None, b"other")])
    tail.add_lookups("b", [("0x1", 5, None, b"of b")])
    assert tail.lookups("a", ["0x1", "0x2", "0x3"]) == {"0x1": b"one", "0x2": b"two"}
    assert tail.lookups("a", []) == {}
    tail.rewind("a", 5, None)
    assert tail.lookups("a", ["0x1", "0x2"]) == {"0x1": b"one"}
    assert tail.lookups("b", ["0x1"]) == {"0x1": b"of b"}


def test_a_lookup_in_a_block_of_the_tail_is_stored_only_while_that_block_is_there(tail: Tail) -> None:
    tail.put("a", [TailBlock(Block(7, "0xa7", "0xa6", 7), {})])
    tail.add_lookups("a", [("0x1", 7, "0xa7", b"one"), ("0x2", 7, "0xb7", b"replaced"), ("0x3", 7, "", b"unknown")])
    assert tail.lookups("a", ["0x1", "0x2", "0x3"]) == {"0x1": b"one"}
    tail.rollback("a", 6)
    assert tail.lookups("a", ["0x1"]) == {}


def test_answers_are_read_within_their_time_and_go_with_new_blocks(tail: Tail) -> None:
    tail.add_answers("one", {"head": b"5", "state": b"7"}, 1_000)
    assert tail.recent_answers("one", ["head", "other"], 1_000, 2_000) == {"head": b"5"}
    assert tail.recent_answers("two", ["head"], 0, 2_000) == {}
    assert tail.recent_answers("one", ["head"], 1_001, 2_000) == {}, "too old"
    assert tail.recent_answers("one", ["head"], 0, 999) == {}, "the clock was set back"
    tail.add_answers("one", {"head": b"6"}, 1_001 + RESPONSE_TTL_US)
    assert tail.recent_answers("one", ["head", "state"], 0, 2**62) == {"head": b"6"}
    tail.add_answers("two", {"head": b"6"}, 1_002 + RESPONSE_TTL_US)
    tail.drop_answers("one")
    assert tail.recent_answers("one", ["head"], 0, 2**62) == {}
    assert tail.recent_answers("two", ["head"], 0, 2**62) == {"head": b"6"}
    tail.put("a", [TailBlock(Block(7, "0xa7", "0xa6", 7), {})])
    assert tail.recent_answers("two", ["head"], 0, 2**62) == {}
