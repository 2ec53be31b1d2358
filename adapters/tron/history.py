"""What concerns some accounts alone: rows of the blocks in which TronGrid lists something of them, else of all.

Lists only say where to look: rows are made of whole blocks, as they are of everybody, so that nothing in them depends
on who asked for what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from adapters.tron.datasets import DATASETS
from adapters.tron.forms import MAX_TIME_MS, Hash, Height, Info
from adapters.tron.node import TronNode, is_empty
from adapters.tron.rows import Read, tables
from adapters.tron.spans import blocks_at, collect
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import Collected
from chainfolio.errors import BadAnswer, HistoryUnavailable
from transport import metering
from transport.wire import typed

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.tron.chain import TronChain

LISTS: Final = ("transactions", "transactions/trc20")
PAGE: Final = 200
MAX_PAGES: Final = 10_000
PIECE: Final = 100  # blocks that are read together
WAYS: Final = {True: "lists", False: "blocks"}


class Listed(msgspec.Struct):
    """A transaction as one or the other list has it. Calls of contracts are listed with the transaction they are of."""

    txID: str = ""
    transaction_id: str = ""
    tx_id: str = ""
    blockNumber: Height | None = None
    block_timestamp: int = 0

    @property
    def hash(self) -> str:
        """The transaction."""
        return self.txID or self.transaction_id or self.tx_id


class Meta(msgspec.Struct):
    """How a list goes on; where it ends there is no fingerprint."""

    fingerprint: str = ""


class Page(msgspec.Struct):
    """A page of a list."""

    data: list[Listed]
    success: bool = True
    meta: Meta = msgspec.field(default_factory=Meta)


async def collect_accounts(
    chain: TronChain, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None,
    budget: Budget | None,
) -> Collected:  # fmt: skip
    """As `ReadsAccounts.collect_accounts` has it."""
    with metering.on(budget):
        if before is not None or span.first > chain.node.finalized or not chain.settings.trongrid:
            return await _every(chain, span, accounts, datasets, before)
        return await _listed(chain, Span(span.first, min(span.last, chain.node.finalized)), accounts, datasets)


async def _every(
    chain: TronChain, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
) -> Collected:
    """Every block is read: those that may still go, and all where nobody lists what is of an account."""
    if before is None:
        span = Span(span.first, min(span.last, span.first + PIECE - 1))
    found = await collect(chain, span, datasets, (), before, accounts)
    found.tables = _own(found.tables, accounts)
    found.events = len(found.tables.get("transfers", ()))
    found.ways = dict.fromkeys(datasets, WAYS[False])
    found.unexplained = tuple(each for each in found.unexplained if each.account in accounts)
    return found


def _own(found: dict[str, pa.Table], accounts: Sequence[str]) -> dict[str, pa.Table]:
    """The rows that concern some accounts."""
    by_table = {each.table.name: each for each in DATASETS.values() if each.parties}
    return {name: by_table[name].concerning(rows, accounts) for name, rows in found.items() if name in by_table}


async def _listed(chain: TronChain, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Collected:
    """The blocks in which something is listed, as many as go at once."""
    first, last = await chain.node.blocks([span.first, span.last])
    heights = await chain.node.with_any(partial(_heights, accounts, first, last), kind="history")
    wanted = [each for each in sorted({0, *heights}) if each in span]  # what the first block gives is in no list
    if len(wanted) > PIECE:
        span = Span(span.first, wanted[PIECE - 1])
        wanted, last = wanted[:PIECE], await chain.node.block(span.last)
    blocks: list[Read] = await blocks_at(chain, wanted, accounts) if wanted else []
    found = _own(tables(chain.key, blocks, datasets, (), chain.exchanges), accounts)
    untold = tuple(each for read in blocks for each in read.untold if each.account in accounts)
    events = len(found.get("transfers", ()))
    ways = dict.fromkeys(datasets, WAYS[True])
    return Collected(span, found, last, [], events, ways=ways, unexplained=untold)


async def _heights(accounts: Sequence[str], first: Block, last: Block, endpoint: TronNode) -> list[int]:
    """The heights from one block to another in which some accounts did something."""
    lists = await asyncio.gather(
        *(
            listed(endpoint, name, account, first.time_us // 1_000, last.time_us // 1_000)
            for account in accounts
            for name in LISTS
        )
    )
    found = {each.hash: each.blockNumber for part in lists for each in part if each.blockNumber is not None}
    unplaced = {each.hash for part in lists for each in part} - found.keys()
    heights = await asyncio.gather(*(_height(endpoint, each) for each in sorted(unplaced)))
    return sorted({*found.values(), *heights})


async def listed(endpoint: TronNode, name: str, account: str, since_ms: int, until_ms: int) -> list[Listed]:
    """What a list has of an account between two times, both included. BadAnswer where its pages do not end."""
    asked: dict[str, Any] = {
        "only_confirmed": "true", "limit": PAGE, "order_by": "block_timestamp,asc",
        "min_timestamp": since_ms, "max_timestamp": until_ms,
    }  # fmt: skip
    found: list[Listed] = []
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await endpoint.told(f"/v1/accounts/{account}/{name}?{urlencode(asked)}", None, Page)
        if not page.success:
            raise BadAnswer(endpoint.name, f"has no list of {name} for {account}")
        found += page.data
        mark = page.meta.fingerprint
        if not mark:
            return _checked(endpoint.name, found)
        if mark in seen:
            raise BadAnswer(endpoint.name, f"lists {name} of {account} in a circle")
        seen.add(mark)
        asked["fingerprint"] = mark
    raise BadAnswer(endpoint.name, f"lists {name} of {account} without an end")


def _checked(source: str, found: list[Listed]) -> list[Listed]:
    for each in found:
        if len(each.hash) != 64 or not 0 <= each.block_timestamp < MAX_TIME_MS:
            raise BadAnswer(source, f"lists {each.hash[:70]!r}, which is no transaction")
    return found


async def _height(endpoint: TronNode, tx_hash: Hash) -> int:
    """The block of a transaction that a list does not place."""

    def read(source: str, content: bytes) -> int:
        if is_empty(content):
            raise HistoryUnavailable(source, 0, f"the node lists transaction {tx_hash} and does not have it")
        info = typed(source, content, Info)
        if info.id != tx_hash:
            raise BadAnswer(source, f"gives transaction {info.id} for {tx_hash}")
        return info.blockNumber

    return await endpoint.read("/wallet/gettransactioninfobyid", {"value": tx_hash}, read)
