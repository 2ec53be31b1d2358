"""Index one chain from several processes, whose commits are checked against each other.

Processes read different ranges at once, which takes most of the time. Commits take the chain's lock. A commit is
refused if another process indexed its blocks meanwhile, or ended in the middle of a commit. The job is then tried
again, and reads only what is missing. So each row is stored once, also if a process was frozen and its job taken over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, Locked
from chainfolio.indexer.rewind import REPAIR, REWIND
from chainfolio.indexer.scopes import accounts_of
from chainfolio.tables import BLOCKS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.environment import Clock
    from chainfolio.indexer.worker_pool import Boundaries
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Batch, Tail

WAIT_S: Final = 600.0  # for the chain's lock: histories of a large chain are updated under it
PAUSE_S: Final = 0.05  # between two attempts to take the lock, by one thread of each process
_RETRY: Final = "nothing: the job is tried again, and reads only what is missing"


def open_batches(tail: Tail, chain: Chain) -> list[Batch]:
    """Return the open batches that a back-fill finishes first: all but those of histories."""
    datasets = {*chain.datasets, *REWIND, *REPAIR}
    return [batch for batch in tail.open_batches(chain.key) if set(batch.datasets) <= datasets]


@contextmanager
def unguarded(span: Span, datasets: Sequence[str], filters: Sequence[str]) -> Iterator[None]:
    """Do nothing: the caller of the collector holds the chain's lock."""
    yield


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """Things that a collector shares with others that index the same chain.

    Attributes:
        number: That of the worker process; 0 for a process that commits by itself.
        guard: Protects each commit from other processes. It is given its span, datasets and filters.
    """

    number: int
    boundaries: Boundaries
    guard: Callable[[Span, Sequence[str], Sequence[str]], AbstractContextManager[None]] = unguarded


@dataclass(frozen=True, slots=True)
class SharedChain:
    """The lock and the checks of a chain that several processes index.

    Attributes:
        rewinds: How often the chain was rewound when the reading began.
        turn: The thread of this process that commits to the chain, or waits for its lock, has it.
        is_stopped: Returns True if nobody waits for the commit any more; called in its thread.
    """

    chain: Chain
    lake: Lake
    tail: Tail
    clock: Clock
    rewinds: int = 0
    is_stopped: Callable[[], bool] = lambda: False
    turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def guard(self, span: Span, datasets: Sequence[str], filters: Sequence[str]) -> Iterator[None]:
        """Hold the chain's lock during the commit of a batch.

        Waits for it in the calling thread, which must not be the thread of the loop.

        Raises:
            Locked: The lock was not free for `WAIT_S`, the chain was rewound, a process ended in the middle of a
                commit, a dataset of the batch was indexed by another process, or the tail has blocks of the span,
                whose rows another process will move to the lake.
        """
        import polars  # noqa: F401 - it takes long, and others wait for the lock

        with ExitStack() as stack:
            self._take(stack)
            if self.tail.rewinds(self.chain.key) != self.rewinds:
                raise Locked("tail", f"{self.chain.key}: it was rewound since its blocks were read", remedy=_RETRY)
            if open_batches(self.tail, self.chain):
                raise Locked("tail", f"{self.chain.key}: a process ended in the middle of a commit", remedy=_RETRY)
            lowest = self.tail.lowest(self.chain.key)
            if lowest is not None and span.last >= lowest.height:
                raise Locked("tail", f"{self.chain.key}: another process follows block {span.last}", remedy=_RETRY)
            if not accounts_of(filters):  # rows of accounts are compared with those that are stored
                self._check_missing(span, datasets, filters)
            yield

    def _take(self, stack: ExitStack) -> None:
        """Take the chain's lock, released with `stack`; wait for it in this thread.

        Raises:
            Locked: It was not free for WAIT_S, or `is_stopped` returned True.
        """
        end_s = self.clock.monotonic_s() + WAIT_S
        while not self.turn.acquire(timeout=PAUSE_S):
            if self.clock.monotonic_s() >= end_s or self.is_stopped():
                raise Locked("tail", f"{self.chain.key}: other jobs of this process commit", remedy=_RETRY)
        stack.callback(self.turn.release)
        while True:
            try:
                stack.enter_context(self.tail.lock(self.chain.key))
                return
            except Locked:
                if self.clock.monotonic_s() >= end_s or self.is_stopped():
                    raise
            time.sleep(PAUSE_S)

    def _check_missing(self, span: Span, datasets: Sequence[str], filters: Sequence[str]) -> None:
        """Raise Locked if another process indexed a part of the span meanwhile."""
        for dataset in datasets:
            stored = [self.tail.indexed_ranges(self.chain.key, dataset, each) for each in {"", *filters}]
            if any(each & [span] for each in stored):
                blocks = f"{dataset} of blocks {span.first} to {span.last}"
                raise Locked("tail", f"{self.chain.key}: another process indexed {blocks}", remedy=_RETRY)

    def check_boundary(self, span: Span, first: Block | None, last: Block | None) -> None:
        """Check that the blocks of a batch link to stored blocks of the heights below and above it.

        The block above it may be the lowest one of the tail. Heights without a block are not compared.

        Raises:
            BadAnswer: A block is not the child of the one below it.
        """
        import polars as pl

        heights = [height for height in (span.first - 1, span.last + 1) if height >= 0]
        blocks = self.lake.scan(BLOCKS, chain=self.chain.key, heights=[Span(height, height) for height in heights])
        rows = blocks.filter(pl.col("height").is_in(heights)).select("height", "hash", "parent").collect()
        lowest = self.tail.lowest(self.chain.key)
        stored = {lowest.height: (lowest.hash, lowest.parent)} if lowest else {}
        stored |= {height: (hash, parent) for height, hash, parent in rows.iter_rows()}
        below, above = stored.get(span.first - 1), stored.get(span.last + 1)
        if below and first and first.height == span.first and first.parent != below[0]:
            raise BadAnswer(self.chain.key, f"block {first.height} does not follow the block {span.first - 1}")
        if above and last and last.height == span.last and above[1] != last.hash:
            raise BadAnswer(self.chain.key, f"block {span.last + 1} does not follow the block {last.height}")
