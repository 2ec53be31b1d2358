"""Worker processes that fetch, decode and commit pieces of a span in parallel.

Python runs one thread at a time in a process, and bulk indexing is bound by the processor. A back-fill is cut into
pieces, and each free worker process takes the next one. It has its own connections, and writes to the lake in its own
stream. Batches and indexed ranges stay with the parent process, which it calls over a pipe. A worker process ends
with its parent, so no commit comes after another process took over.
"""

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
    from chainfolio.indexer.progress import Progress
    from chainfolio.indexer.work import Work
    from chainfolio.settings import Settings

CALLS = frozenset(
    {
        "indexed_ranges",
        "ranges_by_filter",
        "anchor",
        "open_batch",
        "close_batch",
        "capabilities",
        "learn",
        "quarantined",
        "quarantine",
        "check_boundary",
    }
)


Piece = tuple[Span, Block | None, Block | None]  # with its first and last block


class Boundaries(Protocol):
    """The first and last blocks of finished pieces."""

    def check_boundary(self, span: Span, first: Block | None, last: Block | None) -> None:
        """Store a piece's first and last block (None if it has none).

        Raises:
            BadAnswer: They do not link to the adjacent pieces.
        """


@dataclass(slots=True)
class BoundaryCheck:
    """The first and last blocks of finished pieces, which must be parent and child of adjacent pieces.

    Adjacent pieces are merged, so that pieces on both sides of one without blocks are compared.
    """

    chain: str
    _first: dict[int, Piece] = field(default_factory=dict)
    _last: dict[int, Piece] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check_boundary(self, span: Span, first: Block | None, last: Block | None) -> None:
        """Store a piece's first and last block (None if it has none).

        Raises:
            BadAnswer: They do not link to the adjacent pieces.
        """
        with self._lock:
            before, after = self._last.get(span.first - 1), self._first.get(span.last + 1)
            pieces = [piece for piece in (before, (span, first, last), after) if piece is not None]
            ends = [(piece[1], piece[2]) for piece in pieces if piece[1] is not None and piece[2] is not None]
            for (_, below), (above, _) in pairwise(ends):
                if above.parent != below.hash:
                    raise BadAnswer(self.chain, f"block {above.height} does not follow the block {below.height}")
            merged = Span(pieces[0][0].first, pieces[-1][0].last)
            joined = merged, *((ends[0][0], ends[-1][1]) if ends else (None, None))
            self._first[merged.first] = self._last[merged.last] = joined


class WorkerProcess:
    """One worker process, as seen from its parent."""

    def __init__(self, number: int, worker_processes: int, settings: Settings, chain: str) -> None:
        """Start the process and send it its settings."""
        self.number = number
        self.requests = 0
        self.errors_by_endpoint: Mapping[str, Mapping[str, int]] = {}
        from multiprocessing.connection import Connection  # late: most runs have no worker processes

        parent_socket, child_socket = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chainfolio.indexer.worker_process", str(child_socket.fileno())],
            pass_fds=[child_socket.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        child_socket.close()
        self._pipe = Connection(parent_socket.detach())
        self._pipe.send((number, worker_processes, settings, chain))

    async def run_piece(self, span: Span, work: Work, tail: Any, boundaries: Boundaries, progress: Progress) -> None:
        """Fetch and commit a piece in the process.

        Its calls of the tail are executed here, and its errors are raised here.

        Raises:
            StoreError: The process ended.
        """
        loop = asyncio.get_running_loop()

        def count(blocks: int, events: int, restored: int) -> None:
            progress.add(blocks=blocks, events=events, restored=restored)

        def _exchange() -> None:
            """Send a piece to the worker process and serve its calls until it is done.

            Raises the process's error, or StoreError if the process ended.
            """
            try:
                self._pipe.send(("piece", span, work))
                while True:
                    kind, *content = self._pipe.recv()
                    if kind == "progress":
                        blocks, events, restored, self.requests = content
                        loop.call_soon_threadsafe(count, blocks, events, restored)
                    elif kind == "call":
                        self._pipe.send(_execute(boundaries if content[0] == "check_boundary" else tail, *content))
                    elif kind == "done":
                        progress.rows += content[0]
                        self.requests, self.errors_by_endpoint = content[1], content[2]
                        return
                    else:
                        raise content[0]
            except (EOFError, OSError):
                raise StoreError("worker", f"worker process {self.number} ended in the middle of its work") from None

        await asyncio.to_thread(_exchange)

    def close(self) -> None:
        """Kill the process. The next run repeats its piece."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


def _execute(owner: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[str, Any]:
    """Execute a call of a worker process, and return its value or its error."""
    assert name in CALLS, f"a worker process does not need {name}"
    try:
        return "value", getattr(owner, name)(*arguments, **keywords)
    except Exception as error:  # raised in the worker process
        return "error", error
