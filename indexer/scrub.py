"""Every stored file compared with its checksums: on demand (`chainfolio check`), and slowly in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chainfolio.errors import Damaged, StoreError
from chainfolio.table import Table
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.seams import Clock
    from chainfolio.supervisor import Task
    from storage.lake import Lake
    from storage.parquet import Written

SCRUB_EVERY_S = 24 * 3600.0
# The share of the time that the background scrub reads; else it waits.
DUTY = 0.1

log = logging.getLogger("chainfolio.scrub")


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one file: `unsummed` is one without checksums, which an older release wrote."""

    table: str
    file: Written
    state: Literal["sound", "damaged", "unsummed"]
    problem: str = ""


def listed(lake: Lake, chains: Sequence[str] = (), tables: Iterable[str] = TABLES) -> list[tuple[Table, Written]]:
    """The files of some chains (default: all) and tables, whatever revision wrote them."""
    return [
        (table, file)
        for table in (lake.as_written(TABLES[name]) for name in tables)
        for file in lake.entries(table)
        if not chains or file.chain in chains
    ]


def checked(lake: Lake, files: Iterable[tuple[Table, Written]], read: Callable[[int], None]) -> Iterator[Checked]:
    """What became of each file; `read` is told how many bytes were compared, as it goes on."""
    for table, file in files:
        if not file.is_summed:
            yield Checked(table.name, file, "unsummed")
            continue
        try:
            for count in lake.examine(table, file):
                read(count)
        except Damaged as error:
            yield Checked(table.name, file, "damaged", error.reason)
        except StoreError as error:
            # Files that were merged meanwhile may be gone; what the log still names has to be there.
            if file in lake.entries(table):
                yield Checked(table.name, file, "damaged", error.message)
        else:
            yield Checked(table.name, file, "sound")


@dataclass(slots=True)
class Scrub:
    """Compares a chain's files once a day at a tenth of their pace, as a task of the supervisor: unhealthy while a file
    is damaged, which the task's problem and the log name."""

    lake: Lake
    clock: Clock
    chain: str

    async def run(self, task: Task) -> None:
        """Until cancelled."""
        while True:
            await self.clock.sleep(SCRUB_EVERY_S)
            damaged = []
            for each in await asyncio.to_thread(listed, self.lake, [self.chain]):
                start_s = time.monotonic()
                reading = asyncio.ensure_future(asyncio.to_thread(self._one, each))
                damaged += [found for found in await asyncio.shield(reading) if found.state == "damaged"]
                await self.clock.sleep((time.monotonic() - start_s) * (1 / DUTY - 1))
            for found in damaged:
                log.error("%s/%s is damaged: %s", found.table, found.file.path, found.problem)
            if damaged:
                raise Damaged(damaged[0].file.path, f"{damaged[0].problem} ({len(damaged)} files)", damaged[0].table)
            task.progressed()

    def _one(self, file: tuple[Table, Written]) -> list[Checked]:
        return list(checked(self.lake, [file], lambda _: None))
