"""Pause the collector of cycles while many objects are made that are in no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector, and start it again if it was on; for code without an `await`.

    Records, lots and gains are in no cycles: looking for some among millions takes as long as the calculation.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
