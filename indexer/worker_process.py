"""The worker process of indexer/worker_pool.py: takes pieces from its pipe until the pipe closes."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, cast

import msgspec

from chainfolio.blocks import Span
from chainfolio.chains import errors_by_endpoint
from chainfolio.errors import ChainfolioError
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.shared_chain import WorkerRole
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.indexer.work import Work
from chainfolio.kinds import EndpointMemory, kind_of
from chainfolio.loop import run_until_done
from chainfolio.settings import Settings

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.tail import Tail

PR_SET_PDEATHSIG = 1


class RemoteTail:
    """The tail and the boundary check of the parent process. Each call is a request to it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: self._request(name, arguments, keywords)

    def _request(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a method of the parent's tail, wait for the result, and return it or raise its error."""
        with self._lock:
            self._pipe.send(("call", name, arguments, keywords))
            kind, value = self._pipe.recv()
        if kind == "error":
            raise value
        return value

    def send(self, *message: Any) -> None:
        """Send a message without a response."""
        with self._lock:
            self._pipe.send(message)

    def close(self) -> None:
        """Do nothing: the parent process owns the tail."""


def main(handle: int) -> None:
    """Serve one pipe, with the file descriptor `handle`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    pipe = Connection(handle)
    number, worker_processes, settings, chain = pipe.recv()
    run_until_done(_serve(RemoteTail(pipe), pipe, number, _share(settings, chain, worker_processes), chain))


def _share(settings: Settings, key: str, worker_processes: int) -> Settings:
    """Return the settings with a worker process's share of the concurrent requests."""
    return msgspec.structs.replace(settings, chains={key: settings.chains[key].share(worker_processes)})


async def _serve(tail: RemoteTail, pipe: Connection, number: int, settings: Settings, key: str) -> None:
    """Collect the pieces that the parent sends until it closes the pipe; their errors go to the parent."""
    system = System(settings, _tail=tail)  # type: ignore[arg-type]
    with suppress(ChainfolioError):  # loads modules while the parent still connects; the tail cannot be used yet
        chain_settings = settings.chains[key]
        await (
            kind_of(chain_settings.adapter)
            .build(key, chain_settings, system.environment, configs=CONFIGS, memory=EndpointMemory())
            .close()
        )
    import chainfolio.storage.lake  # noqa: F401

    while True:
        try:
            _, span, work = await asyncio.to_thread(pipe.recv)
        except (EOFError, OSError):
            break
        chain = system.chain(key)
        progress = Progress(system.environment.clock, len(span), on_change=_Report(tail, chain))
        collector = Collector(
            chain, system.lake, cast("Tail", tail), system.environment, progress, role=WorkerRole(number, tail)
        )
        await _piece(collector, tail, span, work)
    await system.close()


class _Report:
    """Sends the progress since the last report to the parent process."""

    def __init__(self, tail: RemoteTail, chain: Chain) -> None:
        self._tail, self._chain, self._reported = tail, chain, (0, 0, 0)

    def __call__(self, now: Progress) -> None:
        counts = (now.blocks, now.events, now.restored)
        new = (count - reported for count, reported in zip(counts, self._reported, strict=True))
        self._tail.send("progress", *new, self._chain.requests)
        self._reported = counts


async def _piece(collector: Collector, tail: RemoteTail, span: Span, work: Work) -> None:
    """Index a span, and send rows and requests of the process so far, or the error, to the parent."""
    try:
        await collector.piece(span, work)
    except Exception as error:  # the parent process raises it
        tail.send("failed", error)
    else:
        tail.send("done", collector.progress.rows, collector.chain.requests, errors_by_endpoint(collector.chain))


if __name__ == "__main__":
    main(int(sys.argv[1]))
