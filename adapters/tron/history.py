"""Rows of chosen accounts, from the blocks in TronGrid's lists of transactions or from all blocks.

The lists only tell which blocks to read. Rows are made from whole blocks, so they do not depend on the chosen accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec

from chainfolio.adapters.tron.datasets import DATASETS
from chainfolio.adapters.tron.forms import MAX_TIME_MS, Hash, Height, TransactionInfo
from chainfolio.adapters.tron.node import TronNode, is_empty
from chainfolio.adapters.tron.rows import build_tables
from chainfolio.adapters.tron.spans import SpanReader
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables
from chainfolio.datasets import select_accounts
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.transport import metering
from chainfolio.transport.wire import typed

LISTS: Final = ("transactions", "transactions/trc20")
PAGE_SIZE: Final = 200
MAX_PAGES: Final = 10_000
MAX_BLOCKS: Final = 100  # read at once
BY_LISTS, BY_BLOCKS = "lists", "blocks"


class ListedTransaction(msgspec.Struct):
    """An entry of one of the lists. The list of token transfers names the hash differently."""

    txID: str = ""
    transaction_id: str = ""
    tx_id: str = ""
    blockNumber: Height | None = None
    block_timestamp: int = 0

    @property
    def hash(self) -> str:
        """The hash of the transaction."""
        return self.txID or self.transaction_id or self.tx_id


class PageMeta(msgspec.Struct):
    """The cursor of the next page, empty on the last one."""

    fingerprint: str = ""


class Page(msgspec.Struct):
    """A page of a list."""

    data: list[ListedTransaction]
    success: bool = True
    meta: PageMeta = msgspec.field(default_factory=PageMeta)


async def collect_accounts(
    reader: SpanReader,
    span: Span,
    accounts: Sequence[str],
    datasets: Sequence[str],
    before: Block | None,
    budget: Budget | None,
    *,
    trongrid: bool,
) -> SpanTables:
    """Return the rows of accounts, as specified by `AccountHistoryReader.collect_accounts`.

    Lists are used for solid blocks only, and only with `trongrid`.

    Raises:
        SourceError: A list or a block could not be read.
        Reorged: A block does not follow the one before it.
    """
    with metering.charge_to(budget):
        if before is not None or span.first > reader.node.finalized or not trongrid:
            return await _collect_all_blocks(reader, span, accounts, datasets, before)
        solid = Span(span.first, min(span.last, reader.node.finalized))
        return await _collect_listed_blocks(reader, solid, accounts, datasets)


async def _collect_all_blocks(
    reader: SpanReader, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
) -> SpanTables:
    """Read every block; the first `MAX_BLOCKS` of the span if `before` is None.

    Rows and unexplained changes of other accounts are dropped.
    """
    if before is None:
        span = Span(span.first, min(span.last, span.first + MAX_BLOCKS - 1))
    collected = await reader.collect(span, datasets, (), before, accounts)
    collected.tables = select_accounts(DATASETS, collected.tables, accounts)
    collected.event_count = len(collected.tables.get("transfers", ()))
    collected.read_methods = dict.fromkeys(datasets, BY_BLOCKS)
    collected.unexplained = tuple(each for each in collected.unexplained if each.account in accounts)
    return collected


async def _collect_listed_blocks(
    reader: SpanReader, span: Span, accounts: Sequence[str], datasets: Sequence[str]
) -> SpanTables:
    """Read the blocks in the lists, at most `MAX_BLOCKS`; the returned span ends with the last one read.

    Block 0 is always read if it is in the span. The result has the last block of the span, and no others.
    """
    first, last = await reader.node.blocks([span.first, span.last])
    in_lists = await reader.node.with_any(partial(_listed_heights, accounts, first, last), kind="history")
    heights = [each for each in sorted({0, *in_lists}) if each in span]  # lists do not contain the first block
    if len(heights) > MAX_BLOCKS:
        span = Span(span.first, heights[MAX_BLOCKS - 1])
        heights, last = heights[:MAX_BLOCKS], await reader.node.block(span.last)
    blocks = await reader.collect_blocks(heights, accounts) if heights else []
    tables = select_accounts(DATASETS, build_tables(reader.node.key, blocks, datasets, (), reader.exchanges), accounts)
    unexplained = tuple(each for block in blocks for each in block.unexplained if each.account in accounts)
    events = len(tables.get("transfers", ()))
    methods = dict.fromkeys(datasets, BY_LISTS)
    return SpanTables(span, tables, last, [], events, read_methods=methods, unexplained=unexplained)


async def _listed_heights(accounts: Sequence[str], first: Block, last: Block, endpoint: TronNode) -> list[int]:
    """Return the sorted heights of the transactions of accounts from one block to another, both included.

    A transaction that is listed without a height is looked up.
    """
    lists = await asyncio.gather(
        *(
            list_transactions(endpoint, name, account, first.time_us // 1_000, last.time_us // 1_000)
            for account in accounts
            for name in LISTS
        )
    )
    heights = {each.hash: each.blockNumber for part in lists for each in part if each.blockNumber is not None}
    without_height = {each.hash for part in lists for each in part} - heights.keys()
    looked_up = await asyncio.gather(*(_transaction_height(endpoint, each) for each in sorted(without_height)))
    return sorted({*heights.values(), *looked_up})


async def list_transactions(
    endpoint: TronNode, name: str, account: str, since_ms: int, until_ms: int
) -> list[ListedTransaction]:
    """Return all entries of a list of an account between two times, both included.

    Raises:
        BadAnswer: The list has malformed entries, repeats a page, or has more than `MAX_PAGES`.
    """
    query: dict[str, object] = {
        "only_confirmed": "true",
        "limit": PAGE_SIZE,
        "order_by": "block_timestamp,asc",
        "min_timestamp": since_ms,
        "max_timestamp": until_ms,
    }
    entries: list[ListedTransaction] = []
    cursors: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await endpoint.read_typed(f"/v1/accounts/{account}/{name}?{urlencode(query)}", None, Page)
        if not page.success:
            raise BadAnswer(endpoint.name, f"has no list of {name} for {account}")
        entries += page.data
        cursor = page.meta.fingerprint
        if not cursor:
            return _check_entries(endpoint.name, entries)
        if cursor in cursors:
            raise BadAnswer(endpoint.name, f"lists {name} of {account} in a circle")
        cursors.add(cursor)
        query["fingerprint"] = cursor
    raise BadAnswer(endpoint.name, f"lists {name} of {account} without an end")


def _check_entries(source: str, entries: list[ListedTransaction]) -> list[ListedTransaction]:
    for each in entries:
        if len(each.hash) != 64 or not 0 <= each.block_timestamp < MAX_TIME_MS:
            raise BadAnswer(source, f"lists {each.hash[:70]!r}, which is no transaction")
    return entries


async def _transaction_height(endpoint: TronNode, tx_hash: Hash) -> int:
    """Return the height of a transaction that a list gives without one.

    Raises HistoryUnavailable if the node has no such transaction, BadAnswer if it gives another.
    """

    def decode(source: str, content: bytes) -> int:
        """Raise HistoryUnavailable if the node has no such transaction, BadAnswer if it gives another."""
        if is_empty(content):
            raise HistoryUnavailable(source, 0, f"the node lists transaction {tx_hash} and does not have it")
        info = typed(source, content, TransactionInfo)
        if info.id != tx_hash:
            raise BadAnswer(source, f"gives transaction {info.id} for {tx_hash}")
        return info.blockNumber

    return await endpoint.read("/wallet/gettransactioninfobyid", {"value": tx_hash}, decode)
