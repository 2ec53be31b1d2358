"""Serving as a process: SIGTERM answers running requests; workers share a port, and all of them end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from chainfolio.api import serve as serving
from chainfolio.api.app import App
from chainfolio.api.serve import listening, serve
from chainfolio.errors import BadSettings
from chainfolio.settings import Server, Settings
from tests.api.fakes import ALICE, KEY, FakeEngine, an_app
from tests.api.served import make
from tests.api.sessions import client_session

ROOT = Path(__file__).parents[2]
ASKED = f"/v1/wallet?addresses={ALICE}"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@dataclass
class RunningServer:
    """A running server: its process, its port, and what it has logged."""

    process: asyncio.subprocess.Process
    lines: list[dict[str, Any]]
    port: int = 0

    async def logged(self, event: str, times: int = 1) -> list[dict[str, Any]]:
        """Wait until the log has an event so many times."""
        while len(lines := [line for line in self.lines if line["event"] == event]) < times:
            assert self.process.stderr
            line = await self.process.stderr.readline()
            assert line, f"the server ended without {event}: {self.lines}"
            self.lines.append(json.loads(line))
        return lines

    async def status(self, session: ClientSession) -> int:
        async with session.get(f"http://127.0.0.1:{self.port}{ASKED}", headers=HEADERS) as answer:
            await answer.read()
            return answer.status

    async def ended(self) -> int:
        """Wait for the end, reading the log meanwhile."""
        assert self.process.stderr
        remainder, code = await asyncio.gather(self.process.stderr.read(), self.process.wait())
        self.lines += [json.loads(line) for line in remainder.splitlines() if line.startswith(b"{")]
        return code


@contextlib.asynccontextmanager
async def served(workers: int, seconds: int, *, young: int = 0, notice_s: int = 0) -> AsyncIterator[RunningServer]:
    arguments = ("-m", "tests.api.served", str(workers), "0", str(seconds), str(notice_s), str(young))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    running = RunningServer(process, [])
    try:
        running.port = (await running.logged("listening", workers))[0]["port"]
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # to the end of its log, which the last worker closes


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    return False


async def is_worker(pid: int) -> bool:
    """Return True for the server and its workers, False for the interpreter's resource tracker."""
    command = await asyncio.to_thread(Path(f"/proc/{pid}/cmdline").read_bytes)
    return b"resource_tracker" not in command


def group(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        pytest.skip("needs /proc to find the workers")
    return [pid, *map(int, children.read_text().split())]


@pytest.mark.slow("starts and ends whole servers; requests in flight have faster tests")
@pytest.mark.parametrize("workers", [1, 2])
async def test_what_is_in_flight_at_sigterm_is_answered(workers: int) -> None:
    async with served(workers, 2) as server, client_session() as session:
        request_tasks = [asyncio.create_task(server.status(session)) for _ in range(4)]
        await asyncio.sleep(0.7)
        server.process.terminate()
        await server.logged("draining", workers)
        await asyncio.sleep(0.3)
        assert await is_refused(server.port)
        assert await asyncio.gather(*request_tasks) == [200] * 4
        assert await server.ended() == 0
        assert len([line for line in server.lines if line["event"] == "stopped"]) == workers


async def test_workers_share_one_port() -> None:
    async with served(2, 0) as server:
        assert {line["port"] for line in await server.logged("listening", 2)} == {server.port}
        for _ in range(20):
            async with client_session() as session:
                assert await server.status(session) == 200


async def test_a_signal_to_the_whole_group_ends_workers_gently_too() -> None:
    async with served(2, 1) as server, client_session() as session:
        request_tasks = [asyncio.create_task(server.status(session)) for _ in range(4)]
        await asyncio.sleep(0.5)
        for pid in await asyncio.to_thread(group, server.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        assert await asyncio.gather(*request_tasks) == [200] * 4
        assert await server.ended() == 0


@pytest.mark.slow("waits for workers of whole servers to die")
async def test_a_worker_that_dies_young_ends_the_server() -> None:
    async with served(2, 0, young=3_600) as server:  # on a busy machine it may have taken long to begin
        _, child, *_ = [pid for pid in await asyncio.to_thread(group, server.process.pid) if await is_worker(pid)]
        os.kill(child, signal.SIGABRT)
        assert await server.ended() == 1
        assert "worker died" in [line["event"] for line in server.lines]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_worker_that_is_killed_is_replaced_however_young() -> None:
    async with served(2, 0) as server:
        _, child, *_ = [pid for pid in await asyncio.to_thread(group, server.process.pid) if await is_worker(pid)]
        os.kill(child, signal.SIGKILL)
        await server.logged("listening", 3)
        assert not await is_refused(server.port)


async def test_workers_do_not_outlive_their_parent() -> None:
    async with served(2, 0) as server:
        server.process.kill()
        await server.logged("stopped", 2)
        await asyncio.sleep(0.2)
        assert await is_refused(server.port)


async def test_a_signal_while_requests_are_finished_for_a_restart_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, handlers = an_app(), dict[signal.Signals, Callable[[], None]]()
    app.restart.set()

    async def made(_: Settings) -> App:
        return app

    @contextlib.asynccontextmanager
    async def signalled(*_: Any, **__: Any) -> AsyncIterator[int]:
        yield 1
        handlers[signal.SIGTERM]()

    def add_handler(number: signal.Signals, handle: Callable[..., None], *arguments: Any) -> None:
        handlers[number] = partial(handle, *arguments)

    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", add_handler)
    monkeypatch.setattr(serving, "freeze_memory", lambda: None)
    monkeypatch.setattr(serving, "listening", lambda *_, **__: contextlib.nullcontext(1))
    assert await serving._run_worker(made, Settings(), 1, False, "")
    monkeypatch.setattr(serving, "listening", signalled)
    assert not await serving._run_worker(made, Settings(), 1, False, "")


async def test_a_request_that_never_ends_is_cut_off() -> None:
    engine = FakeEngine(delay_s=60)
    async with client_session() as session:
        async with listening(an_app(engine), "127.0.0.1", 0, drain_s=0.2) as port:
            request_task = asyncio.create_task(session.get(f"http://127.0.0.1:{port}{ASKED}", headers=HEADERS))
            await asyncio.wait_for(engine.called.wait(), 5)
        with pytest.raises(ClientError):
            await request_task


@pytest.mark.parametrize("workers", [1, 2])
def test_a_taken_port_is_said_so(workers: int) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(BadSettings, match=f"{port} on 127.0.0.1 is taken"):
            serve(make, Settings(server=Server(port=port, workers=workers)))


def test_a_host_that_is_not_here_is_said_so() -> None:
    with pytest.raises(BadSettings, match="cannot listen on"):
        serve(make, Settings(server=Server(host="192.0.2.1", port=0)))
