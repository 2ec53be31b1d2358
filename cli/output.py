"""Standard output and error: writes that are whole, and streams that are closed or full."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CLOSED: Final = 128 + signal.SIGPIPE  # what a shell says of a tool that ended because its reader did


class _WholeFile(io.FileIO):
    """An open file that writes all of what it is given, and waits for a slow reader."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write `data` and return its length, also if the file is non-blocking or a signal arrives."""
        remaining = memoryview(data).cast("B")
        size = len(remaining)
        while remaining:
            if (count := super().write(remaining)) is None:  # non-blocking, and there is no room
                poll = select.poll()
                poll.register(self, select.POLLOUT)
                poll.poll()
            else:
                remaining = remaining[count:]
        return size


@contextlib.contextmanager
def written_whole() -> Iterator[None]:
    """Write standard output and error whole inside this block.

    A signal cuts a write to a pipe short. So does a pipe that another process made non-blocking, as Node.js does. With
    PYTHONUNBUFFERED, Python loses the rest and raises no error; without it, a non-blocking pipe is an error.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _whole(sys.stdout, sys.__stdout__), _whole(sys.stderr, sys.__stderr__)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _whole(stream: TextIO, original: TextIO | None) -> TextIO:
    """Return a stream to the same file, with the same encoding and buffering, that writes all of a text.

    Return `stream` itself if a test or notebook put it in the place of `original`, or if the shell closed it.
    """
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    file = _WholeFile(stream.fileno(), "w", closefd=False)
    is_unbuffered = isinstance(stream.buffer, io.FileIO)
    return io.TextIOWrapper(
        file if is_unbuffered else io.BufferedWriter(file),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def flush() -> None:
    """Flush standard output and error now, so that an error is raised before the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the shell closed it
            stream.flush()


def is_closed() -> bool:
    """Return True if the reader of standard output or standard error has closed it; does not wait."""
    poll = select.poll()
    for at in _open():
        poll.register(at, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def discard_output(*, of_errors: bool) -> None:
    """Discard all further output, and errors too if `of_errors`.

    Otherwise the interpreter tries once more to write it at its end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for at in _open() if of_errors else _open()[:1]:
        os.dup2(nowhere, at)
    os.close(nowhere)


def _open() -> list[int]:
    return [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
