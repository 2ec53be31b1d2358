"""Standard output and error when nobody reads them, as after `| head -1`, or when they cannot be written."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Final

CLOSED: Final = 128 + signal.SIGPIPE  # what a shell says of a tool that ended because its reader did


def flush() -> None:
    """Hand on all that was printed: an error of it can be answered here, and not at the end of the interpreter."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the shell closed it
            stream.flush()


def is_closed() -> bool:
    """Whether who read what is printed has gone."""
    asked = select.poll()
    for at in _open():
        asked.register(at, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))


def let_go(*, of_errors: bool) -> None:
    """Print nothing any more, errors neither if those are meant, too: what could not be written is not tried again at
    the end of the interpreter."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for at in _open() if of_errors else _open()[:1]:
        os.dup2(nowhere, at)
    os.close(nowhere)


def _open() -> list[int]:
    return [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
