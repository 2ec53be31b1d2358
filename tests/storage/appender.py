"""A writer that is killed again and again: run as `appender.py FOLDER TAIL KILLS SECONDS SEED`.

It prints how often it was. Each child lives for at most SECONDS.

The first process loads the libraries and never uses them, so that each of its children starts in a millisecond.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from chainfolio.blocks import Block, Span
from chainfolio.storage import tail_postgres  # noqa: F401  # loaded before the first fork
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS

CHAIN = "a"
PER_BATCH = 20
FIRST, LAST = 1, 3  # batches of those that are not killed


def rows(span: Span) -> pa.Table:
    """One block a height."""
    heights = list(range(span.first, span.last + 1))
    facts: dict[str, list[Any]] = {name: [None] * len(heights) for name in BLOCKS.names}
    facts |= {"chain": [CHAIN] * len(heights), "height": heights, "time": heights}
    facts |= {name: [str(height) for height in heights] for name in ("hash", "parent", "miner")}
    facts |= dict.fromkeys(("gas_used", "gas_limit", "tx_count"), heights)
    return pa.table(facts, schema=BLOCKS.schema())


def write(folder: Path, location: str, batches: int) -> None:
    """Write batches as an indexer does: finish those of a crash, then open, append and close new ones.

    It waits for the lock, since a database notices the death of a process late.
    """
    lake = Lake(str(folder / "lake"))
    with closing(Tail(location)) as tail, tail.hold(CHAIN, CHAIN, wait=True):
        todo = tail.open_batches(CHAIN)
        for _ in range(batches):
            indexed_ranges = list(tail.indexed_ranges(CHAIN, "blocks"))
            first = indexed_ranges[-1].last + 1 if indexed_ranges else 0
            batch = todo.pop(0) if todo else tail.open_batch(CHAIN, Span(first, first + PER_BATCH - 1), ["blocks"])
            lake.append(BLOCKS, rows(batch.span), stream="a/blocks", batch=batch.number)
            tail.close_batch(batch, Block(batch.span.last, str(batch.span.last), "", 0))
            if batch.number % 9 == 0:
                lake.compact(BLOCKS, CHAIN)


def main(folder: Path, location: str, kills: int, longest_s: float, seed: int) -> None:
    """Start and kill; the first one, which makes the tables, and the last one come to their end."""
    chance = random.Random(seed)
    killed = 0
    os.waitpid(forked(folder, location, FIRST), 0)
    for _ in range(kills):
        child = forked(folder, location, 1_000)
        select.select([], [], [], chance.uniform(0.005, longest_s))
        os.kill(child, signal.SIGKILL)
        killed += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    write(folder, location, LAST)
    print(killed)


def forked(folder: Path, location: str, batches: int) -> int:
    """A child that writes some batches and ends."""
    child = os.fork()
    if child == 0:
        write(folder, location, batches)
        os._exit(0)
    return child


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
