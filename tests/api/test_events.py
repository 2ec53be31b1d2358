"""GET /v1/events: changes of addresses, streams of an account, slow readers, the end of a server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from chainfolio.api import event_streams
from chainfolio.api.app import App
from chainfolio.api.connection import send
from chainfolio.api.event_streams import EventStream, EventStreams
from chainfolio.api.serve import listening
from chainfolio.assets import Account
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.engine.results import SyncStatus
from chainfolio.errors import NotSupported, Unavailable
from chainfolio.localchain.node import LocalNode
from chainfolio.settings_file import load
from tests.api.fakes import ALICE, BOB, KEY, FakeEngine, an_app
from tests.api.furnished import GRANTS
from tests.api.over_nodes import settings_of
from tests.api.sessions import client_session
from tests.api.wire import exchange

PATH = f"/v1/events?addresses={ALICE}"
HEADERS = {"Authorization": f"Bearer {KEY}"}
SOON_S = 10


class Changing(FakeEngine):
    """An engine whose answer is that of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.indexed_us, self.reads = 1_700_000_000_000_000, 0
        self.error: Exception | None = None

    async def status(self, accounts: Sequence[Account]) -> list[SyncStatus]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return [SyncStatus(account.address, None, self.indexed_us, False) for account in accounts]


@dataclass
class Client:
    """A client of a served application."""

    session: ClientSession
    url: str
    app: App

    @asynccontextmanager
    async def stream(self, path: str = PATH, **headers: str) -> AsyncIterator[ClientResponse]:
        """An open stream."""
        async with self.session.get(self.url + path, headers=HEADERS | headers) as answer:
            yield answer

    async def status(self, method: str = "GET", path: str = PATH) -> int:
        """The status of an answer whose body is not read."""
        async with self.session.request(method, self.url + path, headers=HEADERS) as answer:
            return answer.status

    async def become(self, streams: int) -> None:
        """Wait until so many streams are open."""
        await wait_until(lambda: len(self.app.parts.streams) == streams)


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(SOON_S):
        while not is_so():  # noqa: ASYNC110 (counters and engines set no event)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(engine: FakeEngine) -> AsyncIterator[Client]:
    """A client of an application over an engine, whose streams look at the state often."""
    app = an_app(engine)
    async with listening(app, "127.0.0.1", 0, drain_s=SOON_S) as port, client_session() as session:
        yield Client(session, f"http://127.0.0.1:{port}", app)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch, short_streams: None) -> None:
    monkeypatch.setattr(event_streams, "INTERVAL_S", 0.02)
    monkeypatch.setattr(event_streams, "LIFE_S", 900.0)


async def event(answer: ClientResponse) -> dict[str, str]:
    """The fields of the next event; of a comment or a time to wait, the next event after it."""
    fields: dict[str, str] = {}
    async with asyncio.timeout(SOON_S):
        while line := (await answer.content.readline()).decode():
            if line == "\n" and "data" in fields:
                break
            name, _, value = line.removesuffix("\n").partition(": ")
            fields[name] = value
    return {name: value for name, value in fields.items() if name in ("id", "event", "data")}


async def test_the_state_comes_at_once_and_whenever_it_changes() -> None:
    engine = Changing()
    async with served(engine) as client, client.stream() as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        first = await event(answer)
        async with client.session.get(f"{client.url}/v1/status?addresses={ALICE}", headers=HEADERS) as status:
            body = await status.read()
        assert first == {"event": "status", "data": body.decode(), "id": hashlib.sha256(body).hexdigest()[:16]}
        engine.indexed_us += 1_000_000
        second = await event(answer)
        assert second["id"] != first["id"]
        assert json.loads(second["data"])[0]["transactionsLastSync"] == "2023-11-14T22:13:21.000Z"


async def test_a_client_that_connects_again_gets_only_what_it_does_not_have() -> None:
    engine = Changing()
    async with served(engine) as client:
        async with client.stream() as answer:
            first = await event(answer)
        reads = engine.reads
        async with client.stream(**{"Last-Event-ID": first["id"]}) as resumed:
            await wait_until(lambda: engine.reads >= reads + 5)
            engine.indexed_us += 1_000_000
            assert json.loads((await event(resumed))["data"])[0]["transactionsLastSync"].endswith("21.000Z")
        async with client.stream(**{"Last-Event-ID": first["id"]}) as later:
            assert (await event(later))["id"] != first["id"], "what changed while it was away comes at once"


async def test_a_quiet_stream_shows_that_it_lives_and_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(event_streams, "LIFE_S", 0.3)
    async with served(Changing()) as client, client.stream() as answer:
        text = await asyncio.wait_for(answer.read(), SOON_S)
        assert text.startswith(b"retry: 2000\n\nid: ")
        assert text.count(b"data: ") == 1
        assert text.endswith(b"\n\n:\n\n")
    await client.become(0)


async def test_a_new_stream_takes_the_place_of_the_accounts_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "MAX_PER_ACCOUNT", 2)
    async with served(Changing()) as client:
        async with client.stream() as oldest, client.stream() as two, client.stream() as three:
            assert await event(three)
            assert await asyncio.wait_for(oldest.read(), SOON_S), "the oldest is ended, and whole"
            assert await event(two)
            assert len(client.app.parts.streams) == 2
        await client.become(0)
        for _ in range(3):
            assert await client.status("HEAD") == 200
        await client.become(0)


async def test_a_stream_is_no_running_request() -> None:
    engine = Changing()
    async with served(engine) as client:
        traffic = client.app.parts.traffic
        async with client.stream() as answer:
            await event(answer)
            assert (traffic.in_flight, dict(client.app.parts.running)) == (0, {})
            assert traffic.answered["events", 200] == 1, "it is counted when it begins"
        await client.become(0)
        assert (traffic.in_flight, dict(client.app.parts.running), traffic.answered["events", 200]) == (0, {}, 1)


async def test_reads_of_all_streams_take_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three streams with slow reads waits three times as long as one alone would."""
    monkeypatch.setattr(event_streams, "INTERVAL_S", 0.0)
    waits: list[float] = []
    real = EventStream._wait

    async def record_wait(stream: EventStream, seconds: float) -> None:
        if seconds:  # nothing was read again yet before the first one
            waits.append(seconds)
            stream.end()
        await real(stream, 0)

    async def state() -> bytes:
        await asyncio.sleep(0.05)
        return b"[]"

    monkeypatch.setattr(EventStream, "_wait", record_wait)
    streams = EventStreams()
    for stream in [streams.open(str(number), state, b"[]", "") for number in range(3)]:
        parts = [part async for part in stream]
        assert parts[0] == event_streams.RETRY
    assert len(waits) == 3
    assert all(wait >= 0.05 * 3 / event_streams.MAX_SHARE for wait in waits)


def test_all_accounts_together_have_a_bound() -> None:
    async def state() -> bytes:
        return b"[]"

    streams = EventStreams()
    opened = [streams.open(str(number), state, b"[]", "") for number in range(event_streams.MAX_STREAMS)]
    with pytest.raises(Unavailable, match="too many streams"):
        streams.open("another", state, b"[]", "")
    opened[0].close()
    opened[0].close()
    assert len(streams) == event_streams.MAX_STREAMS - 1
    streams.open("another", state, b"[]", "")


async def test_an_error_before_the_stream_is_an_answer_and_later_its_end() -> None:
    engine = Changing()
    engine.error = NotSupported("no chain")
    async with served(engine) as client:
        assert await client.status() == 501
        assert await client.status(path="/v1/events") == 400
        assert len(client.app.parts.streams) == 0
        engine.error = None
        async with client.stream(f"{PATH},{BOB}") as answer:
            assert [each["address"] for each in json.loads((await event(answer))["data"])] == [ALICE, BOB]
            engine.error = NotSupported("no chain any more")
            assert await asyncio.wait_for(answer.read(), SOON_S) == b""
        await client.become(0)


async def test_an_answer_of_http_1_0_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "LIFE_S", 0.0)
    async with listening(an_app(Changing()), "127.0.0.1", 0, drain_s=SOON_S) as port:
        head = f"GET {PATH} HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        text = await exchange(port, head.encode(), SOON_S)
    assert text.endswith(b"]\n\n"), "no chunks, and the server closes"


async def test_a_server_that_stops_ends_its_streams_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "INTERVAL_S", 3600)
    async with client_session() as session:
        async with listening(an_app(Changing()), "127.0.0.1", 0, drain_s=3600) as port:
            answer = await session.get(f"http://127.0.0.1:{port}{PATH}", headers=HEADERS)
            await event(answer)
        assert await asyncio.wait_for(answer.read(), SOON_S) == b"", "a whole answer, not a broken one"


class StalledClient:
    """A request and its answer, of a client that reads nothing until it is let."""

    transport, method = object(), "GET"

    def __init__(self) -> None:
        self.read, self.written = asyncio.Event(), 0
        self.writer = self

    async def drain(self) -> None:
        await self.read.wait()

    async def prepare(self, _: object) -> None: ...

    async def write(self, part: bytes) -> None:
        self.written += 1

    async def write_eof(self) -> None: ...


async def test_nothing_piles_up_for_a_client_that_does_not_read() -> None:
    engine, client, streams = Changing(), StalledClient(), EventStreams()

    def state() -> Awaitable[bytes]:
        engine.reads += 1
        return asyncio.sleep(0, str(engine.reads).encode())

    send_task = asyncio.create_task(send(client, client, streams.open("a", state, b"[]", "")))  # type: ignore[arg-type]
    await asyncio.sleep(0.2)
    assert (client.written, engine.reads) == (1, 0), "the state is not read for it meanwhile"
    client.read.set()
    await wait_until(lambda: engine.reads >= 3)
    streams.end()
    await asyncio.wait_for(send_task, SOON_S)
    assert client.written == engine.reads + 2, "the time to wait, the first state, and each later one"


@pytest.mark.node
async def test_a_new_block_of_a_real_chain_is_an_event(tmp_path: Path) -> None:
    """The server indexes the chain while it serves."""
    with LocalNode() as node:
        node.mine(3)
        settings = load(settings_of(tmp_path, node))
        state = open_state(settings)
        _, key = state.create_account("somebody", "PRO", 100, GRANTS)
        state.close()
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            listening(await indexing(settings), "127.0.0.1", 0, drain_s=1) as port,
            client_session(headers=headers) as session,
            session.get(f"http://127.0.0.1:{port}{PATH}") as answer,
        ):
            timestamps: list[Any] = []
            for _ in range(2):
                async with asyncio.timeout(30):
                    while (now := json.loads((await event(answer))["data"])[0]["transactionsLastSync"]) in [
                        None,
                        *timestamps,
                    ]:
                        pass
                timestamps.append(now)
                node.rpc("evm_increaseTime", 60)
                node.mine()
            assert timestamps[0] < timestamps[1]
