"""Run queries in SQL for the API and for models, and describe the tables that they may read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from chainfolio import kinds
from chainfolio.engine.lake_tables import NOT_OFFERED, PRIVATE, PUBLIC, LakeColumn, LakeTable
from chainfolio.errors import BadRequest, NothingIndexed
from chainfolio.storage.comparisons import Comparisons
from chainfolio.storage.downloads import Downloads
from chainfolio.storage.lake_sources import Sources, check_files, missing_bytes, sources, tables_in
from chainfolio.storage.sql_query import QueryResult, run_query
from chainfolio.storage.sql_task import Task
from chainfolio.storage.views import sql_columns
from chainfolio.supervisor import start_in_thread
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail


class LakeSql:
    """Runs queries over a lake, after a comparison of the files with their checksums."""

    def __init__(self, lake: Lake, tail: Tail, folder: Path, chains: Collection[str]) -> None:
        """Read the memory of compared files.

        Args:
            lake: The tables.
            tail: The store that knows which blocks are indexed.
            folder: The folder of local data, with that memory and with copies of files of an object store.
            chains: The keys of the configured chains.
        """
        self._lake, self._tail, self._chains = lake, tail, chains
        self._comparisons, self._downloads = Comparisons(folder / "compared.json"), Downloads(folder / "downloads")
        self._comparison: asyncio.Future[Sources] | None = None  # the newest; one runs at a time

    async def run(self, task: Task) -> QueryResult:
        """Run the query of a task over the tables that it names; `files` and `refused` are set here.

        The summary always has the bytes that were read: of a system that does not count them, those of all files.

        Raises:
            BadRequest: The query is wrong, needs too much time or memory, or reads a refused table.
            FailedQuery: It is wrong, and this showed only as it ran.
            NothingIndexed: A stranger's query reads a table that is empty because nothing was indexed into it.
            CorruptFile: A file does not match its checksums.
            StoreError: The object store does not answer.
            MissingDependency: DuckDB is not installed, or this system cannot make the child process read-only.
        """
        names = tables_in(task.query)
        readable = await asyncio.to_thread(self._sources, names, for_stranger=task.for_stranger)
        readable = await self._checked(readable)
        files = {"folder": readable.folder, "files": readable.files, "refused": readable.unreadable}
        try:
            result = await run_query(msgspec.structs.replace(task, **files))
        except BadRequest as error:
            for name in PUBLIC:
                if error.reason == NothingIndexed(name).message:
                    raise NothingIndexed(name) from None
            raise
        if result.summary.bytes_read is None:
            size = sum(file.size for _, file in readable.all_files)
            return replace(result, summary=msgspec.structs.replace(result.summary, bytes_read=size))
        return result

    async def tables(self) -> list[LakeTable]:
        """Return the tables that a stranger's query may read, also those without rows."""
        return await asyncio.to_thread(self._tables)

    def _tables(self) -> list[LakeTable]:
        readable = sources(self._lake, PUBLIC)
        tables = []
        for name in PUBLIC:
            table, files = TABLES[name], readable.entries.get(name, [])
            columns = [LakeColumn(*each) for each in sql_columns(table)]
            chains, rows = sorted({file.chain for file in files}), sum(file.rows for file in files)
            size = sum(file.size for file in files)
            tables.append(LakeTable(name, table.description, columns, chains, rows, size))
        return tables

    def _sources(self, names: Collection[str], *, for_stranger: bool) -> Sources:
        """Return the files of tables; for strangers without private ones and those never filled."""
        if not for_stranger:
            return sources(self._lake, names)
        public = [name for name in PUBLIC if name in names]
        readable = sources(self._lake, public)
        readable.unreadable.update({name: f"{name} {NOT_OFFERED}" for name in PRIVATE})
        for name in public:
            if not readable.entries.get(name) and name not in readable.unreadable and not self._is_indexed(name):
                readable.unreadable[name] = NothingIndexed(name).message
        return readable

    def _is_indexed(self, name: str) -> bool:
        """Return True if blocks are indexed for a dataset of the table, or of the table it is derived from."""
        names = {name, TABLES[name].derived_from}
        filling = {each.name for each in kinds.datasets().values() if names & {each.table.name, each.history}}
        return any(dataset in filling for key in self._chains for dataset, _, _ in self._tail.all_ranges(key))

    async def _checked(self, readable: Sources) -> Sources:
        """Return the sources with files that were compared with their checksums.

        A comparison that has begun goes on if this call is cancelled, and no other begins before it has ended.
        """
        parts = (self._lake, readable, self._comparisons, self._downloads)
        while True:
            if self._lake.is_local and not await asyncio.to_thread(missing_bytes, *parts):
                return readable
            if self._comparison is None or self._comparison.done():
                self._comparison = start_in_thread(partial(check_files, *parts))
                return await asyncio.shield(self._comparison)
            await asyncio.wait([self._comparison])
