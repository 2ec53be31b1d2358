"""Limits of the process: open files, garbage collection, and memory that is kept for reuse."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator

from chainfolio.errors import TooManyFiles
from chainfolio.loop import THRESHOLD

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MIB = 2**20
LEAST_FILES, MOST_FILES = 32, 65_536


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make the garbage collector run rarely while a command is loaded and runs.

    Modules make no reference cycles. At the end the process skips a last collection.
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLD)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows, to MOST_FILES at most.

    Shells start with few (256 on macOS), and each client of the server and each file of the lake takes one.

    Raises:
        TooManyFiles: Less than LEAST_FILES may be open, so that not even the libraries could be loaded.
    """
    if sys.platform == "win32":
        return
    import resource

    now, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_FILES if hard_limit == resource.RLIM_INFINITY else min(hard_limit, MOST_FILES)
    if now != resource.RLIM_INFINITY and now < target:
        with contextlib.suppress(OSError, ValueError):  # the kernel of a Mac allows less than it says: then it stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))
            now = target
    if now != resource.RLIM_INFINITY and now < LEAST_FILES:
        raise TooManyFiles("files")


def use_one_heap() -> None:
    """Let Arrow take its memory from the C library; environment variables that are set stay.

    Call it before pyarrow is imported, which reads the variable once. Arrow's own allocator keeps most of what it ever
    had: 157 MB of a server whose arrays took 3 MB.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here multiplies matrices


def keep_freed_memory() -> None:
    """Keep freed memory in the process for the next answer, for runs that read much and end.

    Answers and their columns are megabytes each. By default the C library returns such blocks at once, takes them again
    page by page, and keeps a heap for each thread: a sixth of a run's time, and more memory.
    """
    _set_heap(mmap_threshold=32 * MIB, trim_threshold=128 * MIB)


def return_freed_memory() -> None:
    """Return freed memory to the system, for processes that run for months.

    By default the C library keeps a heap for each thread, and raises its thresholds with the largest block that was
    freed. So what one merge of files took stays in the process, in each heap.
    """
    _set_heap(mmap_threshold=MIB, trim_threshold=8 * MIB)


def _set_heap(*, mmap_threshold: int, trim_threshold: int) -> None:
    """Use one heap for all threads. Do nothing with another C library than that of GNU.

    Args:
        mmap_threshold: Blocks of so many bytes or more are returned when they are freed.
        trim_threshold: So many free bytes at the end of the heap are returned.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library: then it does as it does
            c = ctypes.CDLL(None)
            c.mallopt(M_ARENA_MAX, 1)
            c.mallopt(M_MMAP_THRESHOLD, mmap_threshold)
            c.mallopt(M_TRIM_THRESHOLD, trim_threshold)
