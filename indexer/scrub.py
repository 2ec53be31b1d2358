"""Compare stored files with their checksums, on demand (`chainfolio check`) or in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chainfolio.errors import CorruptFile, Locked, StoreError
from chainfolio.table import Table
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.environment import Clock
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.parquet import LakeFile
    from chainfolio.storage.tail import Tail

# The share of the time that the background scrub reads; else it waits.
DUTY = 0.1

log = logging.getLogger("chainfolio.scrub")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The result for one file. `problem` is empty if it is sound."""

    table: str
    file: LakeFile
    state: Literal["sound", "damaged"]
    problem: str = ""


def list_files(lake: Lake, chains: Sequence[str] = (), tables: Iterable[str] = TABLES) -> list[tuple[Table, LakeFile]]:
    """Return the files of some tables (by default all) and chains, with their table.

    Empty `chains` means all.
    """
    return [
        (table, file)
        for table in (TABLES[name] for name in tables)
        for file in lake.entries(table)
        if not chains or file.chain in chains
    ]


def check_files(
    lake: Lake, files: Iterable[tuple[Table, LakeFile]], read: Callable[[int], None]
) -> Iterator[FileCheck]:
    """Compare files with their checksums and yield a result for each.

    Files that were replaced meanwhile are left out.

    Args:
        read: Called with the number of bytes of each step.
    """
    for table, file in files:
        try:
            for count in lake.examine(table, file):
                read(count)
        except CorruptFile as error:
            yield FileCheck(table.name, file, "damaged", error.reason)
        except StoreError as error:
            # Files that were merged meanwhile may be deleted; files that the log still names must exist.
            if file in lake.entries(table):
                yield FileCheck(table.name, file, "damaged", error.message)
        else:
            yield FileCheck(table.name, file, "sound")


@dataclass(slots=True)
class Scrub:
    """Compares a chain's files with their checksums at a tenth of the possible speed.

    One process at a time does it.

    The job fails while a file is damaged; its error and the log name the file.
    """

    lake: Lake
    tail: Tail
    clock: Clock
    chain: str

    async def run(self) -> None:
        """Compare all files once; do nothing if another process compares them now.

        Raises:
            CorruptFile: Files are damaged; it names the first one.
        """
        with suppress(Locked), self.tail.hold(f"{self.chain}.check", f"the check of {self.chain}", store="lake"):
            await self._check_all()

    async def _check_all(self) -> None:
        """Check all files of the chain, slowly, and log the damaged ones.

        Raises:
            CorruptFile: A file is damaged.
        """
        damaged: list[FileCheck] = []
        for each in await asyncio.to_thread(list_files, self.lake, [self.chain]):
            start_s = self.clock.monotonic_s()
            reading = asyncio.ensure_future(asyncio.to_thread(self._check_one, each))
            damaged += [check for check in await asyncio.shield(reading) if check.state == "damaged"]
            await self.clock.sleep((self.clock.monotonic_s() - start_s) * (1 / DUTY - 1))
        for check in damaged:
            log.error("%s/%s is damaged: %s", check.table, check.file.path, check.problem)
        if damaged:
            raise CorruptFile(damaged[0].file.path, f"{damaged[0].problem} ({len(damaged)} files)", damaged[0].table)

    def _check_one(self, file: tuple[Table, LakeFile]) -> list[FileCheck]:
        return list(check_files(self.lake, [file], lambda _: None))
