"""Run one query in SQL over a lake's files in a sandboxed child process, for all interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from chainfolio.errors import BadRequest, MissingDependency, needs_extra
from chainfolio.storage.sql_task import DATA, HEAD, JsonResult, Summary, Task

GRACE_S: Final = 10.0  # beyond the time of a query, for the start of the process and for the end of its result
ASK_FOR_LESS: Final = "ask for less"
NO_KERNEL: Final = "run it on Linux or macOS, or print views for a DuckDB of your own: chainfolio sql"
PROBE: Final = "The child tries to change this file, and must not succeed.\n"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The file with a result, open at its beginning and deleted when closed, and its summary."""

    file: BinaryIO
    summary: Summary

    def document(self) -> JsonResult:
        """Read the whole result, which has to be JSON, and close the file."""
        with self.file:
            return msgspec.json.decode(self.file.read(), type=JsonResult)


class FailedQuery(BadRequest):
    """A stranger's query failed after it began; `bytes_read` is None if the system does not count them."""

    def __init__(self, message: str, *, remedy: str = "", bytes_read: int | None = None) -> None:
        super().__init__("query", message, remedy=remedy)
        self.bytes_read = bytes_read


async def run_query(task: Task, remedy: str = ASK_FOR_LESS) -> QueryResult:
    """Run the query of a task in a child process without our environment, and return its result.

    If this call is cancelled, the child process is killed.

    Args:
        task: The query. Its `probe` is set here.
        remedy: What the user can do about a query that needs too much time or memory.

    Raises:
        BadRequest: The query is wrong, needs too much time or memory, or reads a refused table.
        FailedQuery: A stranger's query is wrong, and this showed only as it ran.
        MissingDependency: DuckDB is not installed, or this system cannot make the child process read-only.
    """
    with needs_extra("sql", "a query in SQL"):
        if find_spec("duckdb") is None:  # the child imports it, and not this process
            raise ModuleNotFoundError(name="duckdb")
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        probe = Path(folder, "probe")
        await asyncio.to_thread(probe.write_text, PROBE)
        file: BinaryIO = await asyncio.to_thread(tempfile.TemporaryFile)
        try:
            summary = await _answer(msgspec.structs.replace(task, probe=str(probe)), file)
            _check(summary, remedy, for_stranger=task.for_stranger)
        except TimeoutError:
            file.close()
            raise BadRequest("query", f"it ran for more than {task.seconds} s", remedy=remedy) from None
        except BaseException:  # also if the call is cancelled
            file.close()
            raise
    file.seek(0)
    return QueryResult(file, summary)


def _check(summary: Summary, remedy: str, *, for_stranger: bool) -> None:
    """Raise the error of a query without a result."""
    if summary.possible:
        raise MissingDependency(
            f"this system cannot make a process read-only: it could {summary.possible[0]}", remedy=NO_KERNEL
        )
    if summary.error:
        cure = remedy if summary.error.startswith("INTERRUPT") else ""
        if for_stranger and summary.has_run:
            raise FailedQuery(summary.error, remedy=cure, bytes_read=summary.bytes_read)
        raise BadRequest("query", summary.error, remedy=cure)


async def _answer(task: Task, file: BinaryIO) -> Summary:
    """Write the result of a task into a file and return the child's summary.

    Raises:
        BadRequest: The child ended without a summary, because the system refused it more memory or time.
        TimeoutError: It did not end in time.
    """
    async with _child(msgspec.json.encode(task)) as output, asyncio.timeout(task.seconds + GRACE_S):
        try:
            while True:
                kind, length = HEAD.unpack(await output.readexactly(HEAD.size))
                content = await output.readexactly(length)
                if kind != DATA:
                    return msgspec.json.decode(content, type=Summary)
                await asyncio.to_thread(file.write, content)
        except asyncio.IncompleteReadError:
            raise BadRequest("query", "it ended without an answer: it needed too much memory or time") from None


@contextlib.asynccontextmanager
async def _child(task: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """Start a child process with a task, yield its standard output, and kill it at the end of the block."""
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "chainfolio.storage.sandbox"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        assert child.stdin is not None, "both are pipes"
        assert child.stdout is not None, "both are pipes"
        with contextlib.suppress(ConnectionError):  # a child that cannot start ends without an answer
            child.stdin.write(task)
            await child.stdin.drain()
        child.stdin.close()
        yield child.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())
