"""List, compare and copy the files of the lake for queries in SQL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.errors import StaleTable
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.storage.comparisons import Comparisons, TableFile
    from chainfolio.storage.downloads import Downloads
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.parquet import LakeFile

WORD: Final = re.compile(r"[a-z0-9_]+")
BEHIND_VALIDATOR_REWARDS: Final = {"validator_rewards", "proposals", "blocks", "transactions"}
NAME_IT: Final = "write its name in the query, in a comment if nowhere else"
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of each table that can be read, and for every other table the reason why it cannot.

    Attributes:
        folder: Absolute path of the folder that has the files; a URI for files of an object store.
        files: Paths in that folder, by table.
    """

    folder: str = ""
    files: dict[str, list[str]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[LakeFile]] = field(default_factory=dict)

    @property
    def all_files(self) -> list[TableFile]:
        """The readable files, each with its table."""
        return [(TABLES[name], entry) for name, entries in self.entries.items() for entry in entries]

    def addresses(self) -> dict[str, list[str]]:
        """Return the absolute addresses of the files by table."""
        return {name: [f"{self.folder}/{file}" for file in files] for name, files in self.files.items()}


def sources(lake: Lake, names: Collection[str] = TABLES.keys()) -> Sources:
    """Return the files of some tables, by default of all.

    Other tables, and those of another format, are listed as refused: a query that reads one of them is an error.
    """
    readable = Sources(os.path.abspath(lake.uri) if lake.is_local else lake.uri)
    for name, table in TABLES.items():
        try:
            if name not in names:
                readable.unreadable[name] = f"the query names no {name}: {NAME_IT}"
            elif lake.exists(table):
                entries = readable.entries[name] = lake.entries(table)
                readable.files[name] = [f"{name}/{entry.path}" for entry in entries]
        except StaleTable as error:
            readable.unreadable[name] = f"{error.message}: {error.remedy}"
    return readable


def tables_in(query: str) -> set[str]:
    """Return the tables whose name or macro is a word of the query, in strings and comments too."""
    identifiers = set(WORD.findall(query.lower()))
    macros = {f"{name}_of": {name} for name in TABLES} | {"validator_rewards_of": BEHIND_VALIDATOR_REWARDS}
    return (identifiers & TABLES.keys()).union(*(tables for macro, tables in macros.items() if macro in identifiers))


def missing_bytes(lake: Lake, readable: Sources, comparisons: Comparisons, downloads: Downloads) -> int:
    """Return how many bytes `check_files` would read."""
    if lake.is_local:
        return sum(file.size for _, file in comparisons.pending(lake, readable.all_files))
    return sum(file.size for table, file in readable.all_files if not downloads.path(table, file).exists())


def check_files(
    lake: Lake, readable: Sources, comparisons: Comparisons, downloads: Downloads, report: Report = lambda count: None
) -> Sources:
    """Compare new files with their checksums; return the sources that a query may read.

    Files of an object store are copied to this machine and compared; the returned sources are then the copies.

    Args:
        lake: The lake of the files.
        readable: The files, of `sources`.
        comparisons: The memory of compared files.
        downloads: The folder of copies.
        report: Called with the number of bytes of each part that was read.

    Raises:
        CorruptFile: A file does not match its checksums.
        StoreError: The object store does not answer, or the folder of copies cannot be written.
    """
    if lake.is_local:
        comparisons.compare(lake, comparisons.pending(lake, readable.all_files), report)
        return readable
    for name, entries in readable.entries.items():
        downloads.fetch(lake, TABLES[name], entries, report)
    folder = os.path.abspath(downloads.folder)
    files = {
        name: [os.path.relpath(Path(downloads.path(TABLES[name], each)).absolute(), folder) for each in entries]
        for name, entries in readable.entries.items()
    }
    return Sources(folder, files, readable.unreadable, readable.entries)
