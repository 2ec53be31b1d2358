"""Pause Python's garbage collector while many objects are made that are in no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector of the process, and start it again if it was on.

    Only for code without an `await`. Records, lots and gains are in no cycles: a search for cycles among millions of
    objects takes as long as the calculation.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
