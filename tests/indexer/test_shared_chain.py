"""Processes that index one chain at once: frozen and dead ones, blocks that do not link, a lock that is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, Locked
from chainfolio.indexer import shared_chain
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import rewind
from chainfolio.indexer.shared_chain import SharedChain, WorkerRole
from chainfolio.indexer.work import Work, missing
from chainfolio.scopes import account_filter
from chainfolio.storage.tail import TailBlock
from tests.chains.evm import EvmSubject
from tests.chains.index import EVERYTHING, Index, index
from tests.indexer.test_recovery import subject

__all__ = ["subject"]
pytestmark = pytest.mark.node


@dataclass
class Two:
    """Two processes with stores of their own on one folder."""

    first: Index
    second: Index


@pytest.fixture
async def two(subject: EvmSubject, tmp_path: Path) -> AsyncIterator[Two]:
    async with index(subject, tmp_path, span=5) as first, index(subject, tmp_path, span=5) as second:
        yield Two(first, second)


def collector(indexed: Index, is_stopped: Callable[[], bool] = lambda: False) -> Collector:
    rewinds = indexed.tail.rewinds(indexed.key)
    clock = indexed.environment.clock
    shared = SharedChain(indexed.chain, indexed.lake, indexed.tail, clock, rewinds, is_stopped)
    progress = Progress(indexed.environment.clock, 0)
    role = WorkerRole(0, shared, shared.guard)
    return Collector(indexed.chain, indexed.lake, indexed.tail, indexed.environment, progress, role=role)


def work(indexed: Index, first: int, last: int) -> list[Work]:
    return missing(indexed.tail, indexed.key, Span(first, last), EVERYTHING, ())


async def test_a_range_that_was_taken_over_from_a_frozen_process_is_stored_once(
    subject: EvmSubject, two: Two, tmp_path: Path
) -> None:
    frozen, planned = collector(two.first), work(two.first, 0, 14)
    read = two.first.chain.collect

    async def freeze(span: Span, *arguments: object) -> object:
        if span.first == 10:  # the last chunk before its commit: meanwhile, another process does the job
            await collector(two.second).index(work(two.second, 0, 14))
        return await read(span, *arguments)  # type: ignore[arg-type]

    two.first.chain.collect = freeze  # type: ignore[method-assign, assignment]
    with pytest.raises(Locked, match="another process indexed blocks of blocks 0 to 14"):
        await frozen.index(planned)
    assert work(two.first, 0, 14) == []
    async with index(subject, tmp_path / "alone", span=5) as alone:
        await alone.fill(0, 14)
        assert two.first.read_all() == alone.read_all()


async def test_a_commit_waits_until_the_commit_of_a_dead_process_is_finished(two: Two) -> None:
    two.second.tail.open_batch(two.second.key, Span(20, 24), EVERYTHING)  # it ended before it wrote a row
    collecting = collector(two.first)
    with pytest.raises(Locked, match="ended in the middle of a commit"):
        await collecting.index(work(two.first, 0, 4))
    assert two.first.rows("blocks") == []
    assert await collecting.recover() == 1
    await collecting.index(work(two.first, 0, 4))
    assert sorted(row["height"] for row in two.first.rows("blocks")) == [*range(5), *range(20, 25)]


async def test_a_lock_that_another_process_keeps_ends_the_wait(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_chain, "WAIT_S", 0.1)
    with two.second.tail.lock(two.second.key), pytest.raises(Locked, match="is held by"):
        await collector(two.first).index(work(two.first, 0, 4))
    assert two.first.rows("blocks") == []
    await collector(two.first).index(work(two.first, 0, 4))
    assert len(two.first.rows("blocks")) == 5


async def test_jobs_of_one_process_commit_in_turn(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_chain, "WAIT_S", 0.1)
    clock, tail = two.first.environment.clock, two.first.tail
    shared = SharedChain(two.first.chain, two.first.lake, tail, clock)
    span = Span(0, 4)
    with shared.turn, pytest.raises(Locked, match="other jobs of this process"), shared.guard(span, EVERYTHING, ("",)):
        pass
    with shared.guard(span, EVERYTHING, ("",)):
        assert shared.turn.locked()
    assert not shared.turn.locked()


async def test_a_stopped_process_waits_for_no_lock(two: Two) -> None:
    with two.second.tail.lock(two.second.key), pytest.raises(Locked, match="is held by"):
        await collector(two.first, lambda: True).index(work(two.first, 0, 4))
    assert two.first.rows("blocks") == []


async def test_blocks_that_were_read_before_a_rewind_are_not_stored(two: Two) -> None:
    await two.second.fill(0, 9)
    collecting = collector(two.first)
    rewind(two.second.lake, two.second.tail, two.second.key, 5)
    with pytest.raises(Locked, match="was rewound"):
        await collecting.index(work(two.first, 5, 9))
    await collector(two.first).index(work(two.first, 5, 9))
    assert sorted(row["height"] for row in two.first.rows("blocks")) == list(range(10))


@pytest.mark.parametrize(
    ("span", "message"), [((5, 9), "block 5 does not follow"), ((0, 3), "block 4 does not follow")]
)
async def test_ranges_of_two_processes_that_do_not_link_are_refused(
    two: Two, span: tuple[int, int], message: str
) -> None:
    await two.first.fill(4, 4)
    shared = SharedChain(two.second.chain, two.second.lake, two.second.tail, two.second.environment.clock)
    ends = [await two.second.block(height) for height in span]
    shared.check_boundary(Span(*span), *ends)
    wrong = [Block(each.height, "0x" + "1" * 64, "0x" + "2" * 64, each.time_us) for each in ends]
    with pytest.raises(BadAnswer, match=message):
        shared.check_boundary(Span(*span), wrong[0], wrong[1])
    shared.check_boundary(Span(*span), None, None)
    shared.check_boundary(Span(10, 12), wrong[0], wrong[1])  # no neighbour is stored


async def test_a_range_that_does_not_link_to_the_tail_above_it_is_refused(two: Two) -> None:
    block = await two.first.block(5)
    two.first.tail.put(two.first.key, [TailBlock(block, {})])
    shared = SharedChain(two.second.chain, two.second.lake, two.second.tail, two.second.environment.clock)
    ends = await two.second.block(3), await two.second.block(4)
    shared.check_boundary(Span(3, 4), *ends)
    unlinked = Block(4, "0x" + "1" * 64, ends[0].hash, ends[1].time_us)
    with pytest.raises(BadAnswer, match="block 5 does not follow the block 4"):
        shared.check_boundary(Span(3, 4), ends[0], unlinked)


@pytest.mark.parametrize("filters", [(), (account_filter("0x" + "1" * 40),)])
async def test_blocks_of_the_tail_are_not_committed_by_a_job(two: Two, filters: tuple[str, ...]) -> None:
    """A follower put them there after the job had read the heads: their rows go to the lake later."""
    block = await two.first.block(5)
    two.first.tail.put(two.first.key, [TailBlock(block, {})])
    shared = SharedChain(two.second.chain, two.second.lake, two.second.tail, two.second.environment.clock)
    with pytest.raises(Locked, match="another process follows block 5"), shared.guard(Span(3, 5), (), filters):
        pass
    with shared.guard(Span(3, 4), (), filters):
        pass


async def test_a_stopped_follower_has_the_lock_until_its_thread_ends(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, has_begun, goes_on = two.first.follower(), threading.Event(), threading.Event()

    def finalise(_: int) -> int:
        has_begun.set()
        goes_on.wait(30)
        return 0

    async def stopped() -> None:
        with two.first.tail.lock(two.first.key):
            await follower.finalise_all()

    monkeypatch.setattr(follower, "finalise", finalise)
    task = asyncio.create_task(stopped())
    await asyncio.to_thread(has_begun.wait)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(Locked), two.second.tail.lock(two.second.key):
        pass
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with two.second.tail.lock(two.second.key):
        pass
