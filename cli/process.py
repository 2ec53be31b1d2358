"""What a process that moves much data sets before it begins: how its memory is kept."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MIB = 2**20
# What is loaded and what is moved makes no rings; by default Python looks for some some hundred times a run.
GARBAGE_AFTER = 100_000


def for_bulk() -> None:
    """Keep freed memory for the next answer.

    Answers and their columns are megabytes each. By default the C library gives such blocks back at once and takes them
    anew, page by page, and keeps a heap for each thread: a sixth of a run's time, and more memory.
    """
    gc.set_threshold(GARBAGE_AFTER)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here multiplies matrices
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library: then it does as it does
            c = ctypes.CDLL(None)
            c.mallopt(M_ARENA_MAX, 1)
            c.mallopt(M_MMAP_THRESHOLD, 32 * MIB)
            c.mallopt(M_TRIM_THRESHOLD, 128 * MIB)
