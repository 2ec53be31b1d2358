"""One chain on several workers of the queue: one follows the head, others index older ranges, rows are stored once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import Locked
from chainfolio.indexer import arrow_ipc, queue_follower, queue_worker
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.job_queue import opened
from chainfolio.indexer.queue_worker import QueueWorker
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.settings_file import load
from chainfolio.storage import tail_postgres
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.tables import TABLES
from tests.chains.index import FETCHED
from tests.conftest import PROFILE
from tests.indexer.queue_process import FROZEN_S
from tests.storage.stores import NO_POSTGRES, Server, own_server

pytestmark = pytest.mark.node
KEY = "local"
ROUNDS = 60 if PROFILE == "deep" else 9
LIMIT_S = 300.0
OLD = 400  # blocks before the workers start


@pytest.fixture(scope="module")
def machine() -> Iterator[Server]:
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        yield server


class LiveChain:
    """A chain with a history, which grows."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.deployment: Deployment = deploy(node)
        trade(node, self.deployment, 100)
        node.mine(OLD - node.height)

    def grow(self, empty: int = 1) -> None:
        """Mine a block with a transfer, and empty ones."""
        sender, recipient = self.deployment.accounts["alice"], self.deployment.accounts["bob"]
        token = self.deployment.tokens["USDC"].address
        self.node.send(tx(sender, token, "transfer(address,uint256)", recipient, self.node.height))
        self.node.mine(empty)


@pytest.fixture
def live() -> Iterator[LiveChain]:
    with LocalNode(slots_in_an_epoch=8) as node:
        yield LiveChain(node)


@pytest.fixture
def config(machine: Server, live: LiveChain, tmp_path: Path) -> Path:
    """Settings of the chain with the tail in PostgreSQL."""
    return settings(tmp_path / "shared", live, machine.new_database("follow"))


def settings(folder: Path, live: LiveChain, tail: str = "") -> Path:
    folder.mkdir()
    file = folder / "c.toml"
    chain = f'[chains.{KEY}]\nrpc = ["{live.node.url}"]\nspan = 10\n'
    file.write_text(f'data = "d"\n{f"""[tail]{chr(10)}url = "{tail}"{chr(10)}""" if tail else ""}{chain}')
    return file


@asynccontextmanager
async def system(config: Path) -> AsyncIterator[System]:
    index_system = System(load(config))
    try:
        yield index_system
    finally:
        await index_system.close()


def rows(index_system: System, last: int) -> dict[str, Counter[str]]:
    """Count the rows of lake and tail up to a height, as text, by table."""
    row_counts = {}
    for name in FETCHED:
        final = index_system.lake.window(TABLES[name], KEY, Span(0, last))
        fresh = arrow_ipc.load((stream for _, stream in index_system.tail.rows(KEY, name, 0, last)), TABLES[name])
        row_counts[name] = Counter(repr(sorted(row.items())) for row in pa.concat_tables([final, fresh]).to_pylist())
    return row_counts


def is_indexed(index_system: System, last: int) -> bool:
    """Return True if all blocks up to a height are indexed."""
    return not Spans([Span(0, last)]) - index_system.tail.indexed_ranges(KEY, "transfers")


def holder(index_system: System) -> tuple[int, int]:
    """Return how many followers began, and the process of the last one; zeros before the first."""
    holders = index_system.tail._read("SELECT epoch, holder FROM holders WHERE name = ?", f"{KEY}.follow")
    return (int(holders[0][0]), int(str(holders[0][1]).split()[1])) if holders else (0, 0)


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_true():  # noqa: ASYNC110 - stores that other processes write
            await asyncio.sleep(0.1)


async def assert_equal_to_an_undisturbed_index(shared: System, live: LiveChain, folder: Path) -> None:
    """Compare the rows up to the head with those of one process that indexes alone."""
    command = [sys.executable, "-m", "chainfolio", "index", KEY, "--config"]
    alone = settings(folder, live)
    await asyncio.to_thread(subprocess.run, [*command, str(alone)], check=True, capture_output=True)
    async with system(alone) as undisturbed:
        last = (await undisturbed.chain(KEY).heads()).finalized
        assert rows(shared, last) == rows(undisturbed, last)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_worker, "RANGE_BLOCKS", 100)
    monkeypatch.setattr(queue_follower, "FINALISE_BLOCKS", 20)
    monkeypatch.setattr(queue_follower, "TAKE_EVERY_S", 0.2)


@asynccontextmanager
async def worker(config: Path, url: str) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker of the queue with separate stores, in this process."""
    async with system(config) as index_system, opened(url) as queue:
        running = asyncio.create_task(QueueWorker(index_system, queue, look_every_s=0.2).run())
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_the_head_is_followed_while_older_ranges_are_indexed(
    config: Path, live: LiveChain, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, goes_on = asyncio.Event(), asyncio.Event()
    index = QueueWorker._index

    async def wait(self: QueueWorker, chain: str, first: int, last: int) -> None:
        reading.set()
        await goes_on.wait()
        await index(self, chain, first, last)

    monkeypatch.setattr(QueueWorker, "_index", wait)
    async with system(config) as shared:
        url = shared.settings.tail_url
        async with worker(config, url) as first, worker(config, url):
            await wait_until(lambda: (top := shared.tail.top(KEY)) is not None and top.height == live.node.height)
            assert not is_indexed(shared, 10), "older ranges wait"
            await asyncio.wait_for(reading.wait(), LIMIT_S)
            live.grow(5)
            await wait_until(lambda: (top := shared.tail.top(KEY)) is not None and top.height == live.node.height)
            goes_on.set()
            await wait_until(lambda: is_indexed(shared, live.node.height))
            first.cancel()  # whichever of the two follows
            await asyncio.gather(first, return_exceptions=True)
            live.grow(30)
            await wait_until(lambda: is_indexed(shared, live.node.height))
        await assert_equal_to_an_undisturbed_index(shared, live, tmp_path / "alone")


async def test_a_reorganisation_of_final_blocks_is_undone_by_the_worker_that_follows(
    config: Path, live: LiveChain, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_follower, "RECOVER_AFTER_S", 0.1)
    before = live.node.rpc("evm_snapshot")
    live.grow(60)
    async with system(config) as shared, worker(config, shared.settings.tail_url):
        await wait_until(lambda: is_indexed(shared, live.node.height))
        live.node.rpc("evm_revert", before)
        for _ in range(40):
            live.grow()
        head = live.node.height
        hash_ = live.node.rpc("eth_getBlockByNumber", hex(head), False)["hash"]
        await wait_until(lambda: (top := shared.tail.top(KEY)) is not None and top.hash == hash_)
        await wait_until(lambda: is_indexed(shared, head))
        await assert_equal_to_an_undisturbed_index(shared, live, tmp_path / "alone")


class IdleFollower:
    """Replace the steps of followers by steps that read and write nothing, as if another worker were always faster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0

        async def count(_: Follower) -> None:
            self.steps += 1

        async def do_nothing(*_: object) -> None:
            pass

        for name, work in (("step", count), ("finalise_all", do_nothing)):
            monkeypatch.setattr(Follower, name, work)
        monkeypatch.setattr(Follower, "pause_s", 0.01)
        monkeypatch.setattr(QueueWorker, "_new_collector", do_nothing)
        monkeypatch.setattr(queue_follower, "TAKE_EVERY_S", 0.01)
        monkeypatch.setattr(queue_worker, "LOCK_WAIT_S", 0.0)

    async def until_next_step(self) -> None:
        """Wait for one more step."""
        count = self.steps
        await wait_until(lambda: self.steps > count)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> IdleFollower:
    return IdleFollower(monkeypatch)


@pytest.fixture
def offline(machine: Server, tmp_path: Path) -> Path:
    """Settings of a chain whose node is down, with the tail in PostgreSQL."""
    file = tmp_path / "c.toml"
    chain = f'[chains.{KEY}]\nrpc = ["http://127.0.0.1:9"]\ndatasets = ["blocks"]\n'
    file.write_text(f'data = "d"\n[tail]\nurl = "{machine.new_database("offline")}"\n{chain}')
    return file


def take_the_lock_of_a_frozen_process(stack: ExitStack, tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the lock of the worker of this process, whose loop does not run meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(tail_postgres, "FROZEN_S", 0)
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            with suppress(Locked):
                stack.enter_context(tail.hold(f"{KEY}.follow", "the head"))
                return
    raise AssertionError("the lock was not free")


async def test_a_worker_that_was_frozen_leaves_the_chain_to_the_one_that_took_it(
    offline: Path, idle: IdleFollower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with system(offline) as second, worker(offline, second.settings.tail_url):
        await idle.until_next_step()
        with ExitStack() as stack:
            take_the_lock_of_a_frozen_process(stack, second.tail, monkeypatch)
            count = idle.steps
            await wait_until(
                lambda: "not followed: tail: the lock local.follow was lost" in caplog.text or idle.steps > count
            )
            assert idle.steps == count, "it reads the chain no more"
            with second.tail.lock(KEY):
                second.tail.put(KEY, [TailBlock(Block(1, "0x1", "0x0", 1), {})], datasets=["blocks"])
        await idle.until_next_step()


async def test_a_follower_that_waits_for_its_store_says_why_once(
    machine: Server, offline: Path, idle: IdleFollower, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker(offline, load(offline).tail_url):
        await idle.until_next_step()
        assert "not followed" not in caplog.text
        await asyncio.to_thread(machine.stop)
        try:
            await wait_until(lambda: "local: not followed: tail: " in caplog.text)
        finally:
            await asyncio.to_thread(machine.start)
        await idle.until_next_step()
        says = [text for each in caplog.records if (text := each.getMessage()).startswith("local: not followed: ")]
        assert all(first != second for first, second in pairwise(says)), "a second text is another reason"


@pytest.mark.slow("kills and freezes worker processes many times while the chain grows")
@pytest.mark.timeout(1200)
async def test_killed_and_frozen_workers_lose_and_double_nothing(
    config: Path, live: LiveChain, tmp_path: Path, machine: Server
) -> None:
    dice = random.Random(seed := 28 if PROFILE in ("here", "quick") else random.randrange(2**32))
    print(f"seed {seed}")
    log = (tmp_path / "log").open("ab")
    command = [sys.executable, "-m", "tests.indexer.queue_process", str(config)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ | {"POLARS_MAX_THREADS": "1"}, stderr=log)

    workers = [start() for _ in range(3)]
    try:
        async with system(config) as shared:
            for round_ in range(ROUNDS):
                await asyncio.sleep(dice.uniform(1, 5))
                for _ in range(dice.randint(1, 30)):
                    live.grow(dice.randint(0, 3))
                _, follower = holder(shared)
                victim = next((each for each in workers if each.pid == follower), workers[0])
                victim = dice.choice((victim, *workers))
                if round_ % 3:
                    victim.send_signal(signal.SIGSTOP)
                    await asyncio.sleep((0.5, 3 * FROZEN_S)[round_ % 3 - 1])
                    victim.send_signal(signal.SIGCONT)
                else:
                    victim.kill()
                    victim.wait()
                    workers[workers.index(victim)] = start()
            assert holder(shared)[0] > 1, "another worker followed"
            assert all(each.poll() is None for each in workers), "a worker that wakes up goes on"
            live.grow(40)
            await wait_until(lambda: is_indexed(shared, live.node.height))
            await assert_equal_to_an_undisturbed_index(shared, live, tmp_path / "alone")
    finally:
        for each in workers:
            each.kill()
            each.wait()
        log.close()
        print((tmp_path / "log").read_text()[-8000:])
