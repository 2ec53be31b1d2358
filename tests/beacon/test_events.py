"""A follower indexes heads, reorganisations and finality as its node announces them, and those it missed, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from chainfolio.adapters.beacon import events as announcements
from chainfolio.adapters.beacon.chain import BeaconChain
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.errors import BadAnswer, Unavailable, UnsupportedMethod
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.metrics import WorkerMetrics
from chainfolio.indexer.wiring import System
from chainfolio.indexer.worker import Worker
from chainfolio.localchain.beacon import BeaconRuntime
from chainfolio.settings import Settings
from chainfolio.staking_tables import BEACON
from chainfolio.tables import BLOCKS
from chainfolio.transport.sse import OPEN, Event, events
from tests.beacon.conftest import chain_at, started, stored
from tests.speaking import speaking

pytestmark = pytest.mark.node
PATIENCE_S = 60.0


@pytest.fixture
def node() -> Iterator[BeaconRuntime]:
    running = started(slots=40)
    try:
        yield running
    finally:
        running.__exit__(None, None, None)


class Line:
    """A way to a node that can be cut: every connection on it breaks off at once."""

    def __init__(self, node_url: str) -> None:
        self._there = urlsplit(node_url)
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the bytes of one connection, both ways."""
        upstream_writer, upstream_reader = await asyncio.open_connection(self._there.hostname, self._there.port)
        self._open |= {writer, upstream_reader}
        try:
            await asyncio.gather(_carry(reader, upstream_reader), _carry(upstream_writer, writer))
        finally:
            upstream_reader.transport.abort()

    def cut(self) -> None:
        """Hang up."""
        for each in self._open:
            each.transport.abort()
        self._open.clear()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[Line]:
    line = Line(url)
    async with speaking(line.carry) as line.url:
        yield line


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another task brings about."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def following(url: str, folder: Path) -> AsyncIterator[tuple[System, Follower]]:
    settings = BeaconSettings(adapter="beacon", rpc=[url], datasets=["blocks", *(t.name for t in BEACON)])
    system = System(Settings(data=str(folder), chains={"own": settings}))
    follower = system.follower(system.chain("own"))
    task = asyncio.ensure_future(follower.run())
    try:
        yield system, follower
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await system.close()


async def test_a_follower_that_is_hung_up_on_misses_nothing(node: BeaconRuntime, tmp_path: Path) -> None:
    async with line_to(node.url) as line, following(line.url, tmp_path / "one") as (system, follower):
        chain = system.chain("own")
        assert isinstance(chain, BeaconChain)
        await wait_until(lambda: follower.status.indexed == 40)
        for connections, (depth, slots) in enumerate(((0, 3), (5, 7), (1, 2)), 1):
            await heard_by(chain, connections, node)
            await wait_until(lambda: follower.status.indexed == slot_of(node))
            line.cut()  # so that the next events are announced to no listener
            if depth:
                await asyncio.to_thread(node.do, "rewind", slot=slot_of(node) - depth)
                await asyncio.to_thread(node.do, "offline", validators=list(range(depth)))
            await asyncio.to_thread(node.advance, slots)
        await wait_until(lambda: follower.status.indexed == slot_of(node) and not follower.status.problem)
        assert (follower.status.reorgs, follower.status.halted) == (2, "")
        fresh = System(Settings(data=str(tmp_path / "two"), chains=system.settings.chains))
        await fresh.follower(fresh.chain("own")).step()
        for table in (BLOCKS, *BEACON):
            assert sorted(map(str, stored(system, table))) == sorted(map(str, stored(fresh, table))), table.name
        await fresh.close()


def slot_of(node: BeaconRuntime) -> int:
    return int(node.call("/eth/v1/node/syncing")["data"]["head_slot"])


async def heard_by(chain: BeaconChain, connections: int, node: BeaconRuntime) -> None:
    """Blocks until one is announced on the connection of that number."""
    async with asyncio.timeout(PATIENCE_S):
        while chain.announcements is None or chain.announcements.connections < connections:
            await asyncio.to_thread(node.advance, 1)
            await asyncio.sleep(0.5)


async def test_heads_reorganisations_and_finality_are_announced(node: BeaconRuntime) -> None:
    chain = chain_at(node.url)
    while not await chain.announced(1.0):
        await asyncio.to_thread(node.advance, 1)
    assert not await chain.announced(0.3)
    for act in (lambda: node.advance(1), lambda: node.do("rewind", slot=39), lambda: node.advance(16)):
        await asyncio.to_thread(act)
        assert await chain.announced(PATIENCE_S)
    await chain.close()


# --- streams that are none -------------------------------------------------------------------------------------------


@asynccontextmanager
async def saying(*pieces: bytes, head: bytes = b"200 OK", kind: bytes = b"text/event-stream") -> AsyncIterator[str]:
    """Serve these bytes to every client, and then nothing more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %s\r\ncontent-type: %s\r\nconnection: close\r\n\r\n" % (head, kind))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if pieces and pieces[-1] == b"":
            await asyncio.sleep(PATIENCE_S)

    async with speaking(answer) as url:
        yield url


async def read_events(url: str, idle_s: float = 5.0) -> list[Event]:
    events_read, is_open = list[Event](), Event(OPEN, "")
    with suppress(Unavailable):
        async for each in events("node", url, idle_s):
            events_read.append(each)
    assert events_read.pop(0) == is_open
    return events_read


async def test_events_are_read_as_the_standard_has_them() -> None:
    stream_bytes = b": hello\n\nevent: head\ndata: {\ndata: }\n\ndata:x\r\n\r\nevent: lost\n\nid: 7\ndata: cut off"
    async with saying(stream_bytes) as url:
        assert await read_events(url) == [Event("head", "{\n}"), Event("message", "x")]


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"data: \xff\xfe\n\n"], BadAnswer),
        ([b"data: " + b"x" * 200_000 + b"\n\n"], BadAnswer),
        ([b"data: " + b"x" * 60_000 + b"\n"] * 5, BadAnswer),
        ([b"event: head\ndata: {}\n\n"], Unavailable),
        ([b"event: he", b""], Unavailable),
    ],
)
async def test_events_that_are_too_long_no_text_cut_off_or_silent_end_the_stream(
    pieces: list[bytes], error: type[Exception]
) -> None:
    async with saying(*pieces) as url:
        with pytest.raises(error, match="event"):
            async for _ in events("node", url, 0.5):
                pass


@pytest.mark.parametrize(
    ("head", "kind", "error"),
    [
        (b"404 Not Found", b"application/json", UnsupportedMethod),
        (b"501 Not Implemented", b"application/json", UnsupportedMethod),
        (b"503 Locked", b"application/json", Unavailable),
        (b"429 Slow", b"application/json", Unavailable),
        (b"302 Found", b"text/html", BadAnswer),
        (b"200 OK", b"application/json", BadAnswer),
    ],
)
async def test_what_is_no_stream_of_events_is_an_error_of_its_kind(
    head: bytes, kind: bytes, error: type[Exception]
) -> None:
    async with saying(json.dumps({}).encode(), head=head, kind=kind) as url:
        with pytest.raises(error):
            async for _ in events("node", url, 1.0):
                pass


async def test_a_node_without_events_is_followed_by_asking(
    node: BeaconRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "PATH", "/eth/v1/nothing")
    chain = chain_at(node.url)
    assert not await chain.announced(0.5)
    node.advance(1)
    assert not await chain.announced(0.5)
    assert (await chain.heads()).latest.height == 41
    await chain.close()


async def test_a_listener_that_fails_is_said_counted_and_started_again(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Broken:
        @property
        def endpoints(self) -> list[None]:
            raise RuntimeError("an error of ours")

    chain_settings = BeaconSettings(adapter="beacon", rpc=["http://127.0.0.1:1"])
    system = System(Settings(data=str(tmp_path), chains={"own": chain_settings}))
    chain = cast("BeaconChain", system.chain("own"))
    name, registry = "chainfolio_listener_failures_total", CollectorRegistry()
    registry.register(WorkerMetrics(Worker(system)))
    assert registry.get_sample_value(name, {"chain": "own"}) == 0
    chain.announcements = announcements.Announcements(Broken(), 1.0)  # type: ignore[arg-type]
    for _ in range(3):
        assert not await chain.announced(0.01)
    assert registry.get_sample_value(name, {"chain": "own"}) == 2
    await chain.announcements.close()
    assert "is started again" in caplog.text
    assert "an error of ours" in caplog.text
    await system.close()
