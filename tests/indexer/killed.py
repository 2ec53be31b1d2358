"""Kill a command again and again: `python -m tests.indexer.killed KILLS SEED MAX_MS COMMAND…`.

The first process loads the libraries and never uses them, so that each of its children starts in a millisecond. A
command that comes to its end by itself ends the game; how often it was killed is printed. The last life is spared until
it has made a batch final: on a machine that is busy with other things every one before it may have been too short.
"""

from __future__ import annotations

import importlib
import os
import random
import select
import signal
import sys
import time

from chainfolio.blocks import Block
from chainfolio.cli.main import main
from chainfolio.indexer import collect, follow, maintenance, materialise
from chainfolio.storage.tail import Batch, Tail

LOADED = (
    "chainfolio.adapters.evm.chain",
    "aiohttp",
    "deltalake",
    "chainfolio.indexer.wiring",
    "polars",
    "chainfolio.portfolio.ledger",
    "uvloop",
)
HASTE = (
    (collect, "BATCH_ROWS", 60),
    (materialise, "WINDOW_ROWS", 200),
    (follow, "FINALISE_BLOCKS", 4),
    (follow, "FINALISE_S", 0.2),
    (maintenance, "PENDING_ROWS", 1),
    (maintenance, "MAX_SMALL_IN_BUCKET", 1),
    (maintenance, "MAX_SMALL", 2),
)


def load() -> None:
    """The libraries that a command needs, once for all children."""
    for name in LOADED:
        importlib.import_module(name)


def hurry() -> None:
    """Commit often: a kill has then much to interrupt."""
    for module, name, value in HASTE:
        getattr(module, name)  # a name that is gone would hurry nothing
        setattr(module, name, value)
    for job in ("MATERIALISE", "VACUUM"):
        os.environ[f"CHAINFOLIO_SCHEDULE_{job}"] = "* * * * * *"


def write_ready(pipe: int) -> None:
    """Write into a pipe once a batch is final."""
    usual, is_told = Tail.close_batch, False

    def close_batch(self: Tail, batch: Batch, anchor: Block | None = None) -> None:
        nonlocal is_told
        usual(self, batch, anchor)
        if not is_told and self.anchor(batch.chain) is not None:
            is_told = os.write(pipe, b".") == 1

    Tail.close_batch = close_batch  # type: ignore[method-assign]


def run(kills: int, chance: random.Random, most_ms: int, command: list[str]) -> int:
    """Start and kill; how often it was killed before it ended, or before the last start."""
    for killed in range(kills):
        read_end, pipe = os.pipe()
        child = os.fork()
        if child == 0:
            write_ready(pipe)
            os._exit(main(command))
        os.close(pipe)  # the child alone has it: it ends with the child
        if killed == kills - 1:
            select.select([read_end], [], [])
        has_ended = ended(child, time.monotonic() + chance.uniform(0.02, most_ms / 1000))
        os.close(read_end)
        if has_ended:
            return killed
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return kills


def ended(child: int, until_s: float) -> bool:
    """Return True if a child ended by itself before a moment; a failure ends the game."""
    while time.monotonic() < until_s:
        has_ended, status = os.waitpid(child, os.WNOHANG)
        if has_ended:
            if status:
                sys.exit(f"ended with {os.waitstatus_to_exitcode(status)}")
            return True
        time.sleep(0.002)
    return False


if __name__ == "__main__":
    load()
    hurry()
    print(run(int(sys.argv[1]), random.Random(int(sys.argv[2])), int(sys.argv[3]), sys.argv[4:]))
