"""Standard output and error that are closed, as after `| head -1`, or cannot be written."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Final

CLOSED: Final = 128 + signal.SIGPIPE  # what a shell says of a tool that ended because its reader did


def flush() -> None:
    """Flush standard output now, so that an error can be handled before the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the shell closed it
            stream.flush()


def is_closed() -> bool:
    """Return True if the reader of standard output has closed it."""
    poll = select.poll()
    for at in _open():
        poll.register(at, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def let_go(*, of_errors: bool) -> None:
    """Discard all further output, and errors too if `of_errors`.

    Otherwise the interpreter tries once more to write it at its end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for at in _open() if of_errors else _open()[:1]:
        os.dup2(nowhere, at)
    os.close(nowhere)


def _open() -> list[int]:
    return [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
