"""The process behind `indexer.worker_pool`: takes pieces from its pipe until the pipe closes."""

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
from chainfolio.chains import error_counts
from chainfolio.errors import ChainfolioError
from chainfolio.kinds import EndpointMemory, kind_of
from chainfolio.loop import run_until_done
from chainfolio.settings import Settings
from indexer.collect import Collector
from indexer.progress import Progress
from indexer.wiring import CONFIGS, System
from indexer.work import Work

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.tail import Tail

PR_SET_PDEATHSIG = 1


class RemoteTail:
    """The tail, and the ends of pieces, as seen from a worker: each call is a question to the process that holds
    them."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self._ask(name, arguments, named)

    def _ask(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            self._pipe.send(("call", name, arguments, named))
            kind, value = self._pipe.recv()
        if kind == "error":
            raise value
        return value

    def tell(self, *message: Any) -> None:
        """Send something that has no answer."""
        with self._lock:
            self._pipe.send(message)

    def close(self) -> None:
        """Nothing here to let go of."""


def main(handle: int) -> None:
    """Serve one pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    pipe = Connection(handle)
    number, worker_processes, settings, chain = pipe.recv()
    run_until_done(_serve(RemoteTail(pipe), pipe, number, _share(settings, chain, worker_processes), chain))


def _share(settings: Settings, key: str, worker_processes: int) -> Settings:
    """A worker process's part of what the node is asked at once."""
    return msgspec.structs.replace(settings, chains={key: settings.chains[key].share(worker_processes)})


async def _serve(tail: RemoteTail, pipe: Connection, number: int, settings: Settings, key: str) -> None:
    system = System(settings, _tail=tail)  # type: ignore[arg-type]
    with suppress(ChainfolioError):  # loaded while the other side still connects; the tail may not be asked yet
        given = settings.chains[key]
        await kind_of(given.adapter).build(key, given, system.seams, configs=CONFIGS, memory=EndpointMemory()).close()
    import storage.lake  # noqa: F401

    while True:
        try:
            _, span, work = await asyncio.to_thread(pipe.recv)
        except (EOFError, OSError):
            break
        chain = system.chain(key)
        progress = Progress(system.seams.clock, len(span), on_change=_Report(tail, chain))
        collector = Collector(
            chain, system.lake, cast("Tail", tail), system.seams, progress, worker_process=number, ends=tail
        )
        await _piece(collector, tail, span, work)
    await system.close()


class _Report:
    """Tells the other side what was done since it was last told."""

    def __init__(self, tail: RemoteTail, chain: Chain) -> None:
        self._tail, self._chain, self._told = tail, chain, (0, 0, 0)

    def __call__(self, now: Progress) -> None:
        counts = (now.blocks, now.events, now.restored)
        new = (count - told for count, told in zip(counts, self._told, strict=True))
        self._tail.tell("progress", *new, self._chain.requests)
        self._told = counts


async def _piece(collector: Collector, tail: RemoteTail, span: Span, work: Work) -> None:
    try:
        await collector.piece(span, work)
    except Exception as error:  # whatever it is, the process that holds the run has to hear of it
        tail.tell("failed", error)
    else:
        tail.tell("done", collector.progress.rows, collector.chain.requests, error_counts(collector.chain))


if __name__ == "__main__":
    main(int(sys.argv[1]))
