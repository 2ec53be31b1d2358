"""One run of `bench.soak`: the product in virtual time, planned events, and a record of each hour."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import apscheduler.executors.base
import apscheduler.schedulers.base
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from bench.soak_chain import CAIP2, KEY, START_US, GeneratedChain, GeneratedLedger
from bench.soak_stores import CountedTail, SimulatedLake, StoredFiles, different_rows, written_at_once
from bench.virtual_time import InlineThreads, virtual_loop
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.api.serve import configure_log
from chainfolio.cli.process import return_freed_memory
from chainfolio.cli.serve import app_of
from chainfolio.environment import Environment
from chainfolio.indexer import materialise
from chainfolio.indexer.wiring import System
from chainfolio.settings import Lake as LakeSettings
from chainfolio.settings import Settings
from chainfolio.storage.state import State
from chainfolio.storage.state.accounts import GRANTS
from chainfolio.storage.state.schema import metadata
from chainfolio.tables import TABLES

CREDITS: Final = 100_000_000
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
SUBSCRIBED: Final = 5  # accounts with daily snapshots
BUSY: Final = 40  # accounts with most of the requests


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run. Equal plans give equal runs."""

    seed: int = 1
    days: float = 1.0
    block_ms: int = 250
    transfers: int = 6
    accounts: int = 50_000
    requests: int = 24  # in an hour
    keep_h: int = 1  # hours for which replaced files stay; the product's readers need less


@dataclass(frozen=True, slots=True)
class HourCounts:
    """Figures of an hour that follow from the plan alone. Counts are since the beginning.

    Attributes:
        files: Data files of the lake, replaced ones included; `log_files` are those of the tables' logs.
        account_files: The most files of one bucket of a history.
        steps_median: Requests to nodes, opened files and reads of the tail, of a request to the server in this hour.
        failed: Responses with status 500; `refused` are those with another error.
    """

    hour: int
    blocks: int
    transfers: int
    files: int
    log_files: int
    account_files: int
    lake_bytes: int
    node_requests: int
    credits: int
    state_rows: int
    lag: int
    reorgs: int
    restarts: int
    answered: int
    refused: int
    failed: int
    steps_median: int
    steps_most: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Figures of an hour that depend on the machine too.

    Attributes:
        memory_mb: The least resident memory after a request of the hour.
        peak_mb: The most of it.
    """

    memory_mb: float
    peak_mb: float
    threads: int
    descriptors: int
    tail_bytes: int
    state_bytes: int
    wal_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Hour:
    """The record of one hour."""

    counted: HourCounts
    machine: Machine


@dataclass(frozen=True, slots=True)
class Result:
    """The hours of a run, and the comparison with a lake that was written at once."""

    hours: list[Hour]
    rows: int
    different_rows: int
    bytes_ratio: float


class VirtualClock:
    """The clock of the run: the loop's time, and a calendar that can be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.step_s = loop, 0.0

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return START_US + int((self._loop.time() + self.step_s) * 1_000_000)

    def monotonic_s(self) -> float:
        """Return the seconds since the run began."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)


@contextmanager
def _scheduled_by(clock: VirtualClock) -> Iterator[None]:
    """Let APScheduler, which reads the machine's clock, read the virtual one during the block."""

    class VirtualDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(clock.now_us() / 1_000_000, tz)

    modules: Sequence[Any] = (apscheduler.schedulers.base, apscheduler.executors.base)
    for module in modules:
        module.datetime = VirtualDatetime
    try:
        yield
    finally:
        for module in modules:
            module.datetime = datetime


def soak(plan: Plan, folder: Path, show: Callable[[Hour], None] = lambda hour: None) -> Result:
    """Run a plan in an empty folder, and return its records. `show` gets each hour."""
    with quiet_loop() as loop:
        return loop.run_until_complete(Run(plan, folder, loop, show).run())


@contextmanager
def quiet_loop() -> Iterator[asyncio.SelectorEventLoop]:
    """Yield a loop in virtual time, in a process that is set as that of `serve`, without a log."""
    return_freed_memory()
    configure_log("critical")
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    loop = virtual_loop()
    try:
        yield loop
    finally:
        loop.close()
        logging.disable(level)


@dataclass
class Run:
    """The state of a run."""

    plan: Plan
    folder: Path
    loop: Any
    show: Callable[[Hour], None]
    hours: list[Hour] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    restarts: int = 0
    reorgs: int = 0

    def __post_init__(self) -> None:
        plan, self.clock = self.plan, VirtualClock(self.loop)
        self.random = random.Random(plan.seed)
        self.ledger = GeneratedLedger(
            plan.seed, self.loop.time, plan.transfers, plan.accounts, plan.block_ms, max(12.5, plan.block_ms / 1000)
        )
        self.files = StoredFiles(self.clock.monotonic_s)
        prices = self.folder / "prices.toml"
        prices.write_text(f'[fixed]\n"{CAIP2}/slip44:60" = "2000"\n')
        self.chain_settings = EvmSettings(adapter="evm", rpc=["http://generated.test"])
        self.settings = Settings(
            data=str(self.folder / "data"),
            prices_file=str(prices),
            chains={KEY: self.chain_settings},
            lake=LakeSettings(keep_replaced_h=plan.keep_h),
        )
        self.key = ""
        self.cpu_s = time.process_time()

    def _opened(self) -> tuple[System, State]:
        """Open the stores as a new process does."""
        environment = Environment(clock=self.clock, random=random.Random(self.random.random()))
        lake, tail = SimulatedLake(self.settings.lake_uri, self.files), CountedTail(self.settings.data_dir / "tail.db")
        chain: Any = GeneratedChain(self.ledger, self.chain_settings)
        system = System(self.settings, environment, _lake=lake, _tail=tail, _chains={KEY: chain})
        state = State.open(self.settings.state_url, b"p" * 32, self.clock, environment.random, time=self.clock.now_us)
        database: Any = state.database
        database._thread.shutdown()
        database._thread = InlineThreads(1)
        return system, state

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        """Serve as one process does, until the block ends."""
        self.system, self.state = self._opened()
        if not self.key:
            _, self.key = self.state.create_account("soak", "PRO", CREDITS, GRANTS)
        self.app = app_of(self.system, self.state, work=True)
        async with AsyncExitStack() as stack:
            for lifespan in self.app.lifespan:
                await stack.enter_async_context(lifespan())
            yield
        del self.system, self.state, self.app
        gc.collect()  # as if the process had ended

    async def run(self) -> Result:
        """Run the plan, and compare the lake with one that is written at once."""
        await self.perform(self._events())
        return self._compared()

    async def perform(self, events: list[tuple[float, str, float]]) -> None:
        """Serve, and perform events in order of time: time in seconds, name of the method, and its argument."""
        with _scheduled_by(self.clock):
            while events:
                async with self._serving():
                    while events:
                        at_s, name, amount = events.pop(0)
                        await asyncio.sleep(max(0.0, at_s - self.loop.time()))
                        if name == "restart":
                            self.restarts += 1
                            break
                        await getattr(self, f"_{name}")(amount)

    # --- events ------------------------------------------------------------------------------------------------------

    def _events(self) -> list[tuple[float, str, float]]:
        """Return the events in order of time: time in seconds, name of the method, and its argument."""
        plan, chance, end_s = self.plan, self.random, self.plan.days * DAY_S
        events: list[tuple[float, str, float]] = []
        events += [(hour * HOUR_S, "record", hour) for hour in range(1, int(end_s // HOUR_S) + 1)]
        count = int(plan.requests * end_s / HOUR_S)
        events += [(end_s * (number + 0.5) / count, "ask", number) for number in range(count)]

        def often(name: str, each_s: float, amount: Callable[[], float]) -> None:
            count = max(1, int(end_s // each_s))
            events.extend((chance.uniform(0.05, 0.9) * end_s, name, amount()) for _ in range(count))

        often("reorganise", 3 * HOUR_S, lambda: chance.randint(1, 100))
        often("cut_off", DAY_S / 2, lambda: chance.uniform(60, min(1800, end_s / 20)))
        often("restart", DAY_S, lambda: 0)
        often("stand_still", 5 * DAY_S, lambda: min(DAY_S, end_s / 20))
        if plan.days >= 1:
            began_s = chance.uniform(0.2, 0.8) * end_s
            events += [(began_s + 60 * minute, "restart", 0) for minute in range(60)]
            often("fall_asleep", 10 * DAY_S, lambda: min(8 * HOUR_S, end_s / 6))
            at_s = chance.uniform(0.2, 0.8) * end_s
            events += [(at_s, "set_clock", DAY_S), (at_s + HOUR_S, "set_clock", -DAY_S)]
        if not int(end_s // HOUR_S):
            events.append((end_s, "record", 1))
        return sorted(each for each in events if each[0] <= end_s)

    async def _reorganise(self, depth: float) -> None:
        self.ledger.reorganise(int(depth))
        self.reorgs += 1

    async def _cut_off(self, seconds: float) -> None:
        """Let no node answer for a while."""
        self.ledger.down_until_s = self.loop.time() + seconds

    async def _stand_still(self, seconds: float) -> None:
        """Pause the chain; the blocks of the pause appear at once afterwards."""
        self.ledger.standing_until_s = self.loop.time() + seconds

    async def _set_clock(self, seconds: float) -> None:
        """Set the calendar of the machine."""
        self.clock.step_s += seconds

    async def _fall_asleep(self, seconds: float) -> None:
        """Advance the time without running anything, as on a suspended machine."""
        self.loop._selector.now_s += seconds

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _ask(self, number: float) -> None:
        """Send one request of the mix to the server, and count its answer and its steps."""
        method, path, body = self._request(int(number))
        before = self._step_count()
        self.answers[await self.send(method, path, body, f"change-{number:g}")] += 1
        self.steps.append(self._step_count() - before)
        self.memory_mb.append(resident_mb())

    async def send(self, method: str, path: str, body: bytes = b"", idempotency_key: str = "") -> int:
        """Send a request to the server, and return the status of its answer."""
        headers = {"Authorization": f"Bearer {self.key}", "Host": "soak.test"}
        content = StreamReader(BaseProtocol(self.loop), 2**16, loop=self.loop)
        if body:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
            headers["Idempotency-Key"] = idempotency_key
            content.feed_data(body)
        content.feed_eof()
        http = make_mocked_request(method, path, headers, payload=content)
        return int((await self.app.serve(http)).status)

    def _step_count(self) -> int:
        tail: Any = self.system.tail
        return int(self.ledger.requests + self.files.opened + tail.read_count)

    def _request(self, number: int) -> tuple[str, str, bytes]:
        """Return method, path and body of a random request; 70 % use the BUSY accounts."""
        chance, addresses = self.random, self.ledger.addresses
        is_busy = chance.random() < 0.7
        index = chance.randrange(BUSY) if is_busy else chance.randrange(len(addresses))
        address = addresses[index].as_py()
        if number < SUBSCRIBED:
            subscribed = addresses[number + 1].as_py()
            return "POST", "/v1/subscribe-snapshot", f'{{"addresses":[{{"address":"{subscribed}"}}]}}'.encode()
        paths = (
            f"/v1/portfolio?addresses={address}",
            f"/v1/portfolio?addresses={address}&waitForSync=true",
            f"/v1/wallet?addresses={address}",
            f"/v1/transactions?addresses={address}&limit=10&offset=0",
            f"/v1/nav?addresses={address}",
            f"/v1/status?addresses={address}",
            "/v1/chains",
        )
        if chance.random() < 0.1:
            return "POST", "/v1/addressbook", f'{{"entries":[{{"address":"{address}"}}]}}'.encode()
        return "GET", chance.choice(paths), b""

    # --- records -----------------------------------------------------------------------------------------------------

    async def _record(self, hour: float) -> None:
        """Record an hour."""
        lake, tail = self.system.lake, self.system.tail
        status = self.app.parts.engine.indexing[KEY]  # type: ignore[attr-defined]
        data, logs, size = self.files.sizes(Path(self.settings.lake_uri))
        indexed = tail.indexed_ranges(KEY, "blocks")
        blocks = sum(each.last - each.first + 1 for each in indexed)
        (rows, credits) = self._state_rows()
        counts = HourCounts(
            hour=int(hour),
            blocks=blocks,
            transfers=blocks * self.plan.transfers,
            files=data,
            log_files=logs,
            account_files=_most_files(lake),
            lake_bytes=size,
            node_requests=self.ledger.requests,
            credits=credits,
            state_rows=rows,
            lag=max(0, self.ledger.head_height - status.indexed),
            reorgs=self.reorgs,
            restarts=self.restarts,
            answered=self.answers[200],
            refused=sum(count for code, count in self.answers.items() if code not in (200, 500)),
            failed=self.answers[500],
            steps_median=int(statistics.median(self.steps or [0])),
            steps_most=max(self.steps, default=0),
        )
        self.steps.clear()
        self.hours.append(Hour(counts, self._machine()))
        self.show(self.hours[-1])

    def _state_rows(self) -> tuple[int, int]:
        """Return the rows of all tables of the state store, and the credits that were spent."""
        database: Any = self.state.database
        connection = database._reader
        counts = [
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in sorted(metadata.tables)
        ]
        ((remaining,),) = connection.execute("SELECT coalesce(sum(available + held), 0) FROM balances").fetchall()
        return sum(counts), CREDITS - remaining

    def _machine(self) -> Machine:
        data, cpu_s = self.settings.data_dir, time.process_time()
        memory_mb, self.memory_mb = [*self.memory_mb, resident_mb()], []
        sizes = {path.name: path.stat().st_size for path in data.glob("*.db*")}
        self.cpu_s, passed_s = cpu_s, cpu_s - self.cpu_s
        return Machine(
            memory_mb=min(memory_mb),
            peak_mb=max(memory_mb),
            threads=threading.active_count(),
            descriptors=len(os.listdir("/proc/self/fd")),
            tail_bytes=sizes.get("tail.db", 0),
            state_bytes=sizes.get("state.db", 0),
            wal_bytes=sum(size for name, size in sizes.items() if name.endswith("-wal")),
            cpu_s=round(passed_s, 2),
        )

    def _compared(self) -> Result:
        """Compare the final blocks in the lake with a lake that is written at once."""
        lake = SimulatedLake(self.settings.lake_uri, self.files)
        tail = CountedTail(self.settings.data_dir / "tail.db")
        try:
            materialise.materialise(lake, tail, KEY, tuple(materialise.HISTORIES))
            anchor = tail.anchor(KEY)
            assert anchor is not None, "final blocks have moved to the lake"
            clean = written_at_once(self.folder / "once", self.ledger, anchor.height, self.files)
            rows, different = different_rows(lake, clean, anchor.height)
            return Result(self.hours, rows, different, lake.total_bytes() / clean.total_bytes())
        finally:
            tail.close()


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def _most_files(lake: Any) -> int:
    """Return the most files of one bucket of a history."""
    tables = [TABLES[name] for name in materialise.HISTORIES if lake.exists(TABLES[name])]
    counts = [Counter(file.bucket for file in lake.entries(table)) for table in tables]
    return max((count for each in counts for count in each.values()), default=0)
