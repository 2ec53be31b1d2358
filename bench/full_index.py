"""A complete index of a chain in a separate lake and tail, filled piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.work import missing
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import TABLES

PIECE = 6


@dataclass(frozen=True, slots=True)
class FullIndex:
    """The index of a span, with these datasets."""

    chain: EvmChain
    lake: Lake
    tail: Tail
    environment: Environment
    span: Span
    datasets: Sequence[str]

    def pieces(self) -> Iterator[Span]:
        """Return the spans that are filled in sequence."""
        return self.span.cut(PIECE)

    def lacks(self, piece: Span) -> bool:
        """Return True if a part of a piece is not indexed yet."""
        return bool(missing(self.tail, self.chain.key, piece, self.datasets, ()))

    async def fill(self, piece: Span) -> None:
        """Fetch and store the missing parts of a piece."""
        work = missing(self.tail, self.chain.key, piece, self.datasets, ())
        progress = Progress(self.environment.clock, len(piece))
        await Collector(self.chain, self.lake, self.tail, self.environment, progress).run(work)

    def rows(self) -> dict[str, pa.Table]:
        """Return the stored rows by table, in the order of each table."""
        tables = {}
        for name, table in TABLES.items():
            if self.lake.exists(table):
                rows = self.lake.window(table, self.chain.key, self.span)
                tables[name] = rows.sort_by([(column, "ascending") for column in table.order])
        return tables


@contextmanager
def full_index(
    folder: Path, chain: EvmChain, environment: Environment, span: Span, datasets: Sequence[str]
) -> Iterator[FullIndex]:
    """Yield an empty index in a folder, and close its tail at the end."""
    tail = Tail(folder / "tail.db")
    try:
        yield FullIndex(chain, Lake(str(folder / "lake")), tail, environment, span, datasets)
    finally:
        tail.close()
