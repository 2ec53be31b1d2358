"""Split a recomputation into partitions: accounts of neighbouring buckets, and a range of days.

Each partition reads the lake by itself, so any process may compute it, and compute it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from chainfolio.table import bucket

if TYPE_CHECKING:
    from chainfolio.storage.object_store import ObjectStore

ACCOUNTS: Final = (50, 500)  # the fewest and the most of one partition
PARTITIONS_PER_WORKER: Final = 4  # so that no worker waits long for the last one
MAX_ACCOUNT_DAYS: Final = 50_000  # of one partition


@dataclass(frozen=True, slots=True)
class Task:
    """A recomputation of values at one block, or on each day of a range.

    Attributes:
        lake_uri: The address of the lake, as the process that computes sees it.
        chain: The key of the chain.
        block: Take the newest snapshot up to this block of each account; None for all snapshots of the days.
        first: The first day; only without `block`.
        last: The last day, included; only without `block`.
        store: The service behind an `s3://` address; None for that of the environment.
    """

    lake_uri: str
    chain: str
    block: int | None = None
    first: date | None = None
    last: date | None = None
    store: ObjectStore | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a task that one worker computes at once: some accounts, and some of the days."""

    task: Task
    accounts: tuple[str, ...]
    first: date | None = None
    last: date | None = None

    @property
    def name(self) -> str:
        """The partition as messages name it."""
        buckets = f"buckets {bucket(self.accounts[0])} to {bucket(self.accounts[-1])}"
        return buckets if self.first is None else f"{buckets}, {self.first} to {self.last}"


def partitions(task: Task, accounts: Sequence[str], workers: int = 1) -> list[Partition]:
    """Return the partitions of a task, ordered by bucket and day; they do not overlap.

    Args:
        task: What to compute.
        accounts: The accounts in canonical form.
        workers: The number of partitions that are computed at once.
    """
    fewest, most = ACCOUNTS
    in_order = sorted(set(accounts), key=lambda account: (bucket(account), account))
    size = min(max(-(-len(in_order) // (PARTITIONS_PER_WORKER * workers)), fewest), most)
    groups = [tuple(in_order[at : at + size]) for at in range(0, len(in_order), size)]
    return [Partition(task, group, *days) for group in groups for days in _day_ranges(task, len(group))]


def _day_ranges(task: Task, account_count: int) -> Iterator[tuple[date | None, date | None]]:
    """Yield consecutive ranges of the task's days, both ends included; one pair of None for a block.

    A range has at most MAX_ACCOUNT_DAYS days of accounts, and at least one day.
    """
    if task.first is None or task.last is None:
        yield None, None
        return
    length = timedelta(days=max(1, MAX_ACCOUNT_DAYS // account_count) - 1)
    first = task.first
    while first <= task.last:
        last = min(first + length, task.last)
        yield first, last
        first = last + timedelta(days=1)
