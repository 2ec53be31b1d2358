"""Tables that another revision wrote, made again in the columns of this one, from what is stored: no node is asked.

A table has one revision for all chains, so all chains are migrated at once; the caller holds all their locks. What is
decoded from logs is decoded again as in `reprocess`. Its first commit gives `logs` a revision that no release has, and
its last one takes that away: a migration that was killed in between is still due.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.table import Table
from chainfolio.tables import LOGS, TABLES
from indexer import reprocess
from indexer.materialise import DERIVED, HISTORIES, WHOLE, Counted, decoded, history_of_indexed, whole

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chains import Chain
    from storage.lake import Lake
    from storage.tail import Tail

HALF_WAY = replace(LOGS, revision=0)


def stale(lake: Lake) -> list[str]:
    """The tables that can be made again, and have to be."""
    return [name for name in (*decoded(), *DERIVED) if lake.is_stale(TABLES[name])]


def chains(lake: Lake) -> list[str]:
    """The chains that have rows in any table that can be made again, whoever wrote it."""
    return sorted({key for name in (*decoded(), *DERIVED) for key in lake.chains(lake.as_written(TABLES[name]))})


def migrate(every: Sequence[Chain], lake: Lake, tail: Tail) -> dict[str, int]:
    """Make all stale tables again, of all chains; how many rows each has now."""
    names, written = stale(lake), dict[str, int]()
    histories = [name for name in names if name in HISTORIES]
    if set(names) & set(decoded()):
        written |= _decoded(every, lake, tail)
        histories = [name for name in histories if name not in written]
    written |= _histories(every, lake, tail, histories)
    for name in names:
        if name in WHOLE:
            rows = [whole(lake, tail, chain.key, name) for chain in every]
            lake.recreate(TABLES[name], rows)
            written[name] = sum(map(len, rows))
    return written


def _decoded(every: Sequence[Chain], lake: Lake, tail: Tail) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        asides = [_aside(chain, lake, Path(folder, chain.key)) for chain in every]
        lake.recreate(HALF_WAY, _all(asides, reprocess.KEPT))
        written = {name: _recreate(lake, TABLES[name], _all(asides, name)) for name in decoded() if name != LOGS.name}
        # Those of `logs` cannot be read half-way, and need not be: no decoder takes what protocols ask for.
        written |= _histories(every, lake, tail, [name for name in HISTORIES if HISTORIES[name].source is not LOGS])
        return written | {LOGS.name: _recreate(lake, LOGS, _all(asides, LOGS.name))}


def _histories(every: Sequence[Chain], lake: Lake, tail: Tail, names: Sequence[str]) -> dict[str, int]:
    return {name: _recreate(lake, TABLES[name], _history(every, lake, tail, name)) for name in names}


def _history(every: Sequence[Chain], lake: Lake, tail: Tail, name: str) -> Iterator[pa.RecordBatch]:
    for chain in every:
        yield from history_of_indexed(lake, tail, chain.key, name)


def _recreate(lake: Lake, table: Table, rows: Iterator[pa.RecordBatch]) -> int:
    counted = Counted(rows)
    lake.recreate(table, counted)
    return counted.rows


def _all(asides: Sequence[reprocess.Staging], name: str) -> Iterator[pa.RecordBatch]:
    for aside in asides:
        yield from aside.batches(name)


def _aside(chain: Chain, lake: Lake, folder: Path) -> reprocess.Staging:
    """All logs of a chain by the decoder of today, in files aside."""
    folder.mkdir()
    tables = [TABLES[name] for name in decoded()]
    aside = reprocess.Staging(folder, tables)
    as_written = [lake.as_written(table) for table in tables]
    for stored in lake.windows(as_written, chain.key, reprocess.WINDOW_ROWS):
        aside.add({LOGS.name: reprocess.fitted(LOGS, stored[LOGS.name])}, reprocess.decoded(chain, stored))
    aside.close()
    return aside
