"""A command that is killed again and again: `python -m tests.indexer.killed KILLS SEED MAX_MS COMMAND…`.

The first process loads the libraries and never uses them, so that each of its children starts in a millisecond. A
command that comes to its end by itself ends the game; how often it was killed is printed.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time

from cli.main import main
from indexer import collect, follow, maintenance, materialise, worker

LOADED = ("adapters.evm.chain", "aiohttp", "deltalake", "indexer.wiring", "polars", "portfolio.ledger", "uvloop")
HASTE = {
    "BATCH_ROWS": 60,
    "WINDOW_ROWS": 200,
    "FINALISE_BLOCKS": 4,
    "FINALISE_S": 0.2,
    "DERIVE_EVERY_S": 0.1,
    "COMPACT_EVERY_S": 0.5,
}


def load() -> None:
    """The libraries that a command needs, once for all children."""
    for name in LOADED:
        importlib.import_module(name)


def hurry() -> None:
    """Commit often: a kill has then much to interrupt."""
    for module in (collect, materialise, follow, maintenance, worker):
        for name, value in HASTE.items():
            if hasattr(module, name):
                setattr(module, name, value)


def run(kills: int, chance: random.Random, most_ms: int, command: list[str]) -> int:
    """Start and kill; how often it was killed before it ended, or before the last start."""
    for killed in range(kills):
        child = os.fork()
        if child == 0:
            os._exit(main(command))
        until_s = time.monotonic() + chance.uniform(0.02, most_ms / 1000)
        while time.monotonic() < until_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if status:
                    sys.exit(f"ended with {os.waitstatus_to_exitcode(status)}")
                return killed
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return kills


if __name__ == "__main__":
    load()
    hurry()
    print(run(int(sys.argv[1]), random.Random(int(sys.argv[2])), int(sys.argv[3]), sys.argv[4:]))
