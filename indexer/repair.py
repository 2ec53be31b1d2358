"""Damaged files made good: what nodes gave is read from them again, what was derived is derived again.

All rows of the heights of a damaged file are forgotten, in every table that follows the indexed ranges, and these
heights are indexed again. That is written down before it is begun: a repair that was killed is finished by the next
run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.scopes import account_of
from chainfolio.tables import FIAT_RATES, PRICES, TABLES, TOKENS
from indexer import materialise
from indexer.collect import Collector
from indexer.consistency import newest_batch
from indexer.materialise import DERIVED, HISTORIES, WHOLE
from indexer.progress import Progress
from indexer.rewind import REPAIR
from indexer.scopes import groups
from indexer.work import EVERYTHING

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.seams import Seams
    from indexer.scrub import Checked
    from storage.lake import Lake
    from storage.tail import Tail

# Heights that are read again at once, and kept in memory.
PIECE_BLOCKS = 2_000


async def repair(chain: Chain, lake: Lake, tail: Tail, seams: Seams, damaged: Sequence[Checked]) -> dict[str, int]:
    """Make the damaged files of one chain good; how many rows were written. The caller holds the chain's lock."""
    mine = [found for found in damaged if found.file.chain == chain.key]
    tables = {found.table for found in mine}
    spans = Spans(
        Span(found.file.first, found.file.last)
        for found in mine
        if found.table not in (*DERIVED, TOKENS.name, PRICES.name)
    )
    progress = Progress(seams.clock, 1)
    collector = Collector(chain, lake, tail, seams, progress)
    await collector.recover()
    # What tokens say of themselves, and what they were worth, is read again when somebody asks.
    for table in (TOKENS, PRICES):
        await asyncio.to_thread(lake.drop, table, chain.key, {found.file.path for found in mine})
    for span in spans:
        _begin(chain, lake, tail, span, spared=tuple(sorted(tables & {*HISTORIES})))
    await collector.recover()
    wanted = [name for name in DERIVED if lake.exists(TABLES[name]) or name in tables]
    made = await asyncio.to_thread(
        materialise.materialise, lake, tail, chain.key, [name for name in wanted if name not in tables or name in WHOLE]
    )
    for name in tables & {*HISTORIES}:
        made[name] = await asyncio.to_thread(materialise.history_again, lake, tail, chain.key, name)
    return {"fetched": progress.rows, **made}


def dropped(lake: Lake, damaged: Sequence[Checked]) -> dict[str, dict[str, int]]:
    """Take damaged files of reference rates out of their table: they are asked for again when somebody needs them, so
    no row is written. By who publishes them, as `repair` says it of a chain."""
    mine = [found.file for found in damaged if found.table == FIAT_RATES.name]
    for file in mine:
        lake.drop(FIAT_RATES, file.chain, {file.path})
    return {file.chain: {FIAT_RATES.name: 0} for file in mine}


def _begin(chain: Chain, lake: Lake, tail: Tail, span: Span, spared: tuple[str, ...]) -> None:
    """Write down that the rows of some heights are to be forgotten, then what of them is to be read again."""
    covers = [each for each in tail.covers(chain.key) if each[0] in chain.datasets]
    tail.open_batch(chain.key, span, REPAIR, spared, after=newest_batch(lake, chain.key))
    wanted: dict[tuple[str, Spans], list[str]] = {}
    whole: dict[Spans, list[str]] = {}
    for dataset, filter_, indexed_ranges in covers:
        if part := indexed_ranges & [span]:
            if account_of(filter_) is not None:
                continue
            if filter_:
                wanted.setdefault((dataset, part), []).append(filter_)
            else:
                whole.setdefault(part, []).append(dataset)
    for (dataset, part), filters in wanted.items():
        _open(chain, tail, part, (dataset,), tuple(filters))
    for part, datasets in whole.items():
        _open(chain, tail, part, tuple(datasets), EVERYTHING)
    for part, group, accounts in _of_accounts(chain, covers, span):
        _open(chain, tail, part, group, accounts)


def _of_accounts(
    chain: Chain, covers: Sequence[tuple[str, str, Spans]], span: Span
) -> Iterator[tuple[Spans, tuple[str, ...], tuple[str, ...]]]:
    """What is indexed of accounts at some heights: of each group of datasets that is read together, accounts that have
    the same heights together."""
    for group in groups(chain.datasets):
        parts: dict[str, Spans] = {}
        for dataset, filter_, indexed_ranges in covers:
            if dataset in group and account_of(filter_) is not None:
                parts[filter_] = parts.get(filter_, Spans()) | (indexed_ranges & [span])
        alike: dict[Spans, list[str]] = {}
        for filter_, part in parts.items():
            alike.setdefault(part, []).append(filter_)
        yield from ((part, group, tuple(filters)) for part, filters in alike.items())


def _open(chain: Chain, tail: Tail, part: Spans, datasets: tuple[str, ...], filters: tuple[str, ...]) -> None:
    for span in part:
        for piece in span.cut(PIECE_BLOCKS):
            tail.open_batch(chain.key, piece, datasets, filters)
