"""How processes of ours run: on uvloop where the system has it, and with a garbage collector that looks less often."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
THRESHOLD: Final = (20_000, 20, 20)  # answers are many small things that all end together: a look at them finds nothing


def run_until_done(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on a loop of its own. The collector is as it was before, afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLD)
    try:
        if sys.platform == "win32":
            return asyncio.run(main)
        import uvloop

        return uvloop.run(main)
    finally:
        gc.set_threshold(*before)
