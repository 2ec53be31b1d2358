"""Rows of accounts from a full index, as the reference for reads of these accounts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_results import SpanTables
from chainfolio.tables import APPROVALS, LOGS, TRANSFERS

Rows = dict[str, list[dict[str, Any]]]


def rows(tables: dict[str, pa.Table], order: Sequence[str] = ()) -> Rows:
    """Tables as rows; one without any is left out."""
    return {name: table.to_pylist() for name, table in sorted(tables.items()) if len(table)}


async def indexed_rows(chain: EvmChain, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Rows:
    """The rows of a whole index that concern some accounts."""
    collected = await chain.collect(span, datasets)
    selected: dict[str, pa.Table] = {}
    for name in datasets:
        dataset = chain.datasets[name]
        table = collected.tables.get(dataset.table.name)
        if table is not None:
            selected[dataset.table.name] = dataset.rows_of_accounts(table, accounts)
    if LOGS.name in collected.tables:
        selected[LOGS.name] = chain.datasets["events"].rows_of_accounts(collected.tables[LOGS.name], accounts)
    return rows(selected)


async def scoped(
    chain: EvmChain,
    span: Span,
    accounts: Sequence[str],
    datasets: Sequence[str],
    *,
    before: Block | None = None,
    budget: Budget | None = None,
    with_receipt_rows: bool = False,
) -> list[SpanTables]:
    """Read a span piece by piece, as an indexer does, and return the pieces.

    With `with_receipt_rows`, the pieces keep the rows of other datasets that receipts hold.
    """
    reader, first, pieces = require_capability(chain, Capability.ACCOUNT_HISTORY), span.first, []
    while first <= span.last:
        piece = await reader.collect_accounts(Span(first, span.last), accounts, datasets, before, budget)
        assert piece.span.first == first
        assert piece.span.last <= span.last
        assert set(piece.read_methods) <= set(datasets)
        if not with_receipt_rows and not {"transfers", "approvals", "events"} & {*datasets}:
            piece = not_of_logs(piece)
        pieces.append(piece)
        first, before = piece.span.last + 1, piece.last if before is not None else None
    return pieces


def not_of_logs(piece: SpanTables) -> SpanTables:
    """A piece without the rows that logs have made."""
    remaining = {name: table for name, table in piece.tables.items() if name not in (APPROVALS.name, LOGS.name)}
    if TRANSFERS.name in remaining:
        remaining[TRANSFERS.name] = remaining[TRANSFERS.name].filter(pc.less(remaining[TRANSFERS.name]["log_index"], 0))
    return replace(piece, tables=remaining)


def merged_rows(pieces: Sequence[SpanTables]) -> Rows:
    """The rows of all pieces."""
    names = sorted({name for piece in pieces for name in piece.tables})
    return rows({name: pa.concat_tables([p.tables[name] for p in pieces if name in p.tables]) for name in names})
