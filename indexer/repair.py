"""Repair damaged files: read fetched data from nodes again, and derive derived data again.

All rows at the heights of a damaged file are deleted from every table that follows the indexed ranges, and these
heights are indexed again. The intent is stored first, so the next run finishes a repair that was killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.indexer import materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.consistency import newest_batch
from chainfolio.indexer.materialise import DERIVED, HISTORIES, STATE_TABLES
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import REPAIR
from chainfolio.indexer.scopes import groups
from chainfolio.indexer.work import EVERYTHING
from chainfolio.scopes import account_of
from chainfolio.supervisor import in_thread
from chainfolio.tables import FIAT_RATES, PRICES, TABLES, TOKENS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.environment import Environment
    from chainfolio.indexer.scrub import FileCheck
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

# Heights per batch, which is kept in memory.
PIECE_BLOCKS = 2_000


async def repair(
    chain: Chain, lake: Lake, tail: Tail, environment: Environment, damaged: Sequence[FileCheck]
) -> dict[str, int]:
    """Read the blocks of damaged files of one chain again; return the rows written to each derived table.

    The key `fetched` has the number of rows that were read from nodes.
    The caller holds the chain's lock. Token metadata and prices are dropped; histories and tables of state are rebuilt.

    Args:
        damaged: Checks of damaged files; those of other chains are ignored.

    Raises:
        SourceError: The chain could not be read; the next run finishes the repair.
    """
    checks = [check for check in damaged if check.file.chain == chain.key]
    tables = {check.table for check in checks}
    spans = Spans(
        Span(check.file.first, check.file.last)
        for check in checks
        if check.table not in (*DERIVED, TOKENS.name, PRICES.name)
    )
    progress = Progress(environment.clock, 1)
    collector = Collector(chain, lake, tail, environment, progress)
    await collector.recover()
    # Token metadata and prices are read again when they are needed.
    for table in (TOKENS, PRICES):
        await in_thread(partial(lake.drop, table, chain.key, {check.file.path for check in checks}))
    for span in spans:
        _begin(chain, lake, tail, span, kept_tables=tuple(sorted(tables & {*HISTORIES})))
    await collector.recover()
    names = [name for name in DERIVED if lake.exists(TABLES[name]) or name in tables]
    updated = [name for name in names if name not in tables or name in STATE_TABLES]
    rows = await in_thread(partial(materialise.materialise, lake, tail, chain.key, updated))
    for name in tables & {*HISTORIES}:
        rows[name] = await in_thread(partial(materialise.rebuild_history, lake, tail, chain.key, name))
    return {"fetched": progress.rows, **rows}


def drop_rates(lake: Lake, damaged: Sequence[FileCheck]) -> dict[str, dict[str, int]]:
    """Remove damaged files of exchange rates from their table.

    The rates are fetched again when they are needed, so no row is written. Returns zero rows per publisher, in the
    format of `repair`.
    """
    files = [check.file for check in damaged if check.table == FIAT_RATES.name]
    for file in files:
        lake.drop(FIAT_RATES, file.chain, {file.path})
    return {file.chain: {FIAT_RATES.name: 0} for file in files}


def _begin(chain: Chain, lake: Lake, tail: Tail, span: Span, kept_tables: tuple[str, ...]) -> None:
    """Store the intent to delete the rows of some heights, then the batches to read again."""
    covers = [each for each in tail.all_ranges(chain.key) if each[0] in chain.datasets]
    tail.open_batch(chain.key, span, REPAIR, kept_tables, after=newest_batch(lake, chain.key))
    by_dataset: dict[tuple[str, Spans], list[str]] = {}
    unfiltered: dict[Spans, list[str]] = {}
    for dataset, filter_, indexed_ranges in covers:
        if part := indexed_ranges & [span]:
            if account_of(filter_) is not None:
                continue
            if filter_:
                by_dataset.setdefault((dataset, part), []).append(filter_)
            else:
                unfiltered.setdefault(part, []).append(dataset)
    for (dataset, part), filters in by_dataset.items():
        _open(chain, tail, part, (dataset,), tuple(filters))
    for part, datasets in unfiltered.items():
        _open(chain, tail, part, tuple(datasets), EVERYTHING)
    for part, group, accounts in _of_accounts(chain, covers, span):
        _open(chain, tail, part, group, accounts)


def _of_accounts(
    chain: Chain, covers: Sequence[tuple[str, str, Spans]], span: Span
) -> Iterator[tuple[Spans, tuple[str, ...], tuple[str, ...]]]:
    """Yield indexed heights of accounts, by group of datasets, accounts with equal heights together."""
    for group in groups(chain.datasets):
        parts: dict[str, Spans] = {}
        for dataset, filter_, indexed_ranges in covers:
            if dataset in group and account_of(filter_) is not None:
                parts[filter_] = parts.get(filter_, Spans()) | (indexed_ranges & [span])
        filters_by_part: dict[Spans, list[str]] = {}
        for filter_, part in parts.items():
            filters_by_part.setdefault(part, []).append(filter_)
        yield from ((part, group, tuple(filters)) for part, filters in filters_by_part.items())


def _open(chain: Chain, tail: Tail, part: Spans, datasets: tuple[str, ...], filters: tuple[str, ...]) -> None:
    for span in part:
        for piece in span.cut(PIECE_BLOCKS):
            tail.open_batch(chain.key, piece, datasets, filters)
