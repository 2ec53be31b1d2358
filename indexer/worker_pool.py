"""More than one processor: other processes that fetch, decode and commit pieces of a span side by side with this one.

Python runs one thing at a time in a process, and bulk indexing is bound by the processor. So a back-fill is cut into
pieces and each worker process takes the next one. It has its own connections and writes to the lake itself, under marks
of its own; what has been promised and what is covered stays with this process, which it asks over a pipe. A worker
process ends with the process that started it, so that no commit comes after somebody else took over."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, StoreError

if TYPE_CHECKING:
    from chainfolio.settings import Settings
    from indexer.progress import Progress
    from indexer.work import Work

CALLS = frozenset({
    "indexed_ranges", "ranges_by_filter", "anchor", "open_batch", "close_batch", "capabilities", "learn", "quarantined",
    "quarantine", "check_boundary",
})  # fmt: skip


Piece = tuple[Span, Block | None, Block | None]  # with its first and last block


class Boundaries(Protocol):
    """Whoever holds the ends of finished pieces."""

    def check_boundary(self, span: Span, first: Block | None, last: Block | None) -> None:
        """Take note of a piece's first and last block, if it has any; BadAnswer where they do not fit what lies beside
        them."""


@dataclass(slots=True)
class BoundaryCheck:
    """The first and last blocks of finished pieces: neighbours must be parent and child, whoever fetched them.

    Neighbours are joined, so that those of a piece without any block are held against each other.
    """

    chain: str
    _first: dict[int, Piece] = field(default_factory=dict)
    _last: dict[int, Piece] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check_boundary(self, span: Span, first: Block | None, last: Block | None) -> None:
        """Take note of a piece's first and last block, if it has any; BadAnswer where they do not fit what lies beside
        them."""
        with self._lock:
            before, after = self._last.get(span.first - 1), self._first.get(span.last + 1)
            pieces = [piece for piece in (before, (span, first, last), after) if piece is not None]
            ends = [(piece[1], piece[2]) for piece in pieces if piece[1] is not None and piece[2] is not None]
            for (_, below), (above, _) in pairwise(ends):
                if above.parent != below.hash:
                    raise BadAnswer(self.chain, f"block {above.height} does not follow the block {below.height}")
            whole = Span(pieces[0][0].first, pieces[-1][0].last)
            joined = whole, *((ends[0][0], ends[-1][1]) if ends else (None, None))
            self._first[whole.first] = self._last[whole.last] = joined


class WorkerProcess:
    """One other process, from this side."""

    def __init__(self, number: int, worker_processes: int, settings: Settings, chain: str) -> None:
        self.number = number
        self.requests = 0
        self.error_counts: Mapping[str, Mapping[str, int]] = {}
        from multiprocessing.connection import Connection  # here, for most runs have one process only

        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "indexer.worker_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._pipe = Connection(ours.detach())
        self._pipe.send((number, worker_processes, settings, chain))

    async def carry(self, span: Span, work: Work, tail: Any, ends: Boundaries, progress: Progress) -> None:
        """Have a piece fetched and committed; its questions are answered here, its errors raised here."""
        loop = asyncio.get_running_loop()

        def count(blocks: int, events: int, restored: int) -> None:
            progress.add(blocks=blocks, events=events, restored=restored)

        def talk() -> None:
            try:
                self._pipe.send(("piece", span, work))
                while True:
                    kind, *content = self._pipe.recv()
                    if kind == "progress":
                        blocks, events, restored, self.requests = content
                        loop.call_soon_threadsafe(count, blocks, events, restored)
                    elif kind == "call":
                        self._pipe.send(_answered(ends if content[0] == "check_boundary" else tail, *content))
                    elif kind == "done":
                        progress.rows += content[0]
                        self.requests, self.error_counts = content[1], content[2]
                        return
                    else:
                        raise content[0]
            except (EOFError, OSError):
                raise StoreError("worker", f"worker process {self.number} ended in the middle of its work") from None

        await asyncio.to_thread(talk)

    def close(self) -> None:
        """End the process; a piece it is working on is carried out again by the next run."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


def _answered(owner: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, Any]:
    """What a worker process asked for, or the error it met."""
    assert name in CALLS, f"a worker process does not need {name}"
    try:
        return "value", getattr(owner, name)(*arguments, **named)
    except Exception as error:  # it is the worker's call: the worker gets the error
        return "error", error
