"""Bounds of what one process keeps, and how much of each is used. `docs/how-to/operate.md` lists them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.engine.gains import account_gains
from chainfolio.engine.snapshots import account_cache, token_book
from chainfolio.storage import decoded_rows, kept_rows

if TYPE_CHECKING:
    from chainfolio.engine.gains.account_gains import GainsCache
    from chainfolio.engine.snapshots.account_cache import AccountCache
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

MAX_JOURNAL_BYTES = 128 * 2**20  # of SQLite; each journal is shortened long before
MAX_THREADS = 128
DESCRIPTORS = Path("/proc/self/fd")  # Linux


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of one cache or resource.

    Attributes:
        used: How much is in use now.
        maximum: What it never exceeds.
        chain: The key of a chain; empty if it is for all chains.
    """

    name: str
    used: int
    maximum: int
    chain: str = ""


def bounds_of(
    lake: Lake, tail: Tail, gains: GainsCache, accounts: AccountCache, snapshotters: Mapping[str, Snapshotter]
) -> list[Bound]:
    """Return the bounds of a process: caches, threads, the journal of the tail, and open files on Linux.

    Each says how much is used now and what the maximum is. `token_contracts` is given for each chain of `snapshotters`.
    """
    kept, decoded = lake.kept, tail.decoded
    return [
        Bound("kept_rows", kept.row_count, kept_rows.MAX_ROWS),
        Bound("kept_row_bytes", kept.byte_count, kept_rows.MAX_BYTES),
        Bound("recent_reads", kept.recent_count, kept_rows.MAX_RECENT),
        Bound("decoded_tail_bytes", decoded.byte_count, decoded_rows.MAX_BYTES),
        Bound("footer_bytes", *lake.footer_bytes),
        Bound("portfolios", accounts.size, account_cache.MAX_ACCOUNTS),
        Bound("gains_rows", gains.row_count, account_gains.MAX_ROWS),
        *(
            Bound("token_contracts", each.book.seen_count, token_book.MAX_SEEN, key)
            for key, each in snapshotters.items()
        ),
        Bound("threads", threading.active_count(), MAX_THREADS),
        *_tail_journal(tail),
        *_open_files(),
    ]


def _tail_journal(tail: Tail) -> Iterator[Bound]:
    """Yield the bound of the tail's journal; nothing if the tail is in memory or in PostgreSQL."""
    from chainfolio.storage.sqlite import journal_bytes
    from chainfolio.storage.tail import IN_MEMORY, POSTGRES  # loaded with the tail only

    place = str(tail.place)
    if place != IN_MEMORY and not place.startswith(POSTGRES):
        yield Bound("tail_journal_bytes", journal_bytes(Path(place)), MAX_JOURNAL_BYTES)


def _open_files() -> Iterator[Bound]:
    """Yield the open files of this process with their limit; none if the system does not list them."""
    if DESCRIPTORS.exists():
        import resource

        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield Bound("open_files", len(list(DESCRIPTORS.iterdir())), soft_limit)


class BoundMetrics:
    """Metrics of a process's bounds, computed at each scrape."""

    def __init__(self, bounds: Callable[[], Sequence[Bound]]) -> None:
        self._bounds = bounds

    def collect(self) -> Iterator[Any]:
        """Yield two gauges with labels `bound` and `chain`: how much of each bound is in use, and its maximum."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ["bound", "chain"]
        used = GaugeMetricFamily("chainfolio_bound_used", "how much of a bound is in use", labels=labels)
        maximum = GaugeMetricFamily("chainfolio_bound_maximum", "what is never exceeded", labels=labels)
        for each in self._bounds():
            used.add_metric([each.name, each.chain], each.used)
            maximum.add_metric([each.name, each.chain], each.maximum)
        yield used
        yield maximum
