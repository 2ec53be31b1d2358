"""Collect the rows of whole blocks in a span, linked from block to block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from chainfolio.adapters.starknet import state
from chainfolio.adapters.starknet.accounts import detect_collections
from chainfolio.adapters.starknet.event_search import has_account_key
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import FormattedFelts
from chainfolio.adapters.starknet.forms import (
    BlockWithHashes,
    BlockWithTransactions,
    FullBlock,
    Header,
    ReceiptWithBlock,
    TransactionWithReceipt,
)
from chainfolio.adapters.starknet.node import Node, header_request, unwrap
from chainfolio.adapters.starknet.rows import BlockRows, build_rows, build_tables
from chainfolio.blocks import Block, Span, check_links
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, Reorged, UnsupportedMethod
from chainfolio.plans import run_batched
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

BuildRows = Callable[[str, int, FullBlock], BlockRows]  # from the node, the requested height and the block
RECEIPTS_CAPABILITY = "receipts"  # whether an endpoint serves a block with its receipts


@dataclass(frozen=True, slots=True)
class SpanReader:
    """Reads whole blocks of one chain.

    Attributes:
        collections: Whether each contract with ambiguous events is a collection, as far as it was called.
    """

    node: Node
    collections: dict[str, bool] = field(default_factory=dict)

    async def collect(
        self, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Return the rows of some datasets in a span, as specified by `chainfolio.chains.Chain.collect`.

        Raises:
            SourceError: A block could not be read.
            Reorged: A block does not follow the one before it.
        """
        node, facts = self.node, self.node.facts
        heights = range(span.first, span.last + 1)
        read = read_blocks if {*datasets} - {"blocks"} else _read_headers
        rows = await node.with_any(partial(read, heights, facts), kind="blocks")
        blocks = [each.block for each in rows]
        check_links(node.key, blocks, before)
        has_tokens = {"transfers", "approvals"} & set(datasets)
        collections = await self.resolve_collections(rows) if has_tokens else {}
        tables = build_tables(node.key, rows, datasets, contracts, facts.coin, collections)
        events = len(tables["transfers"]) if "transfers" in tables else 0
        return SpanTables(span, tables, blocks[-1], blocks, events, 0, True)

    async def resolve_collections(self, blocks: Sequence[BlockRows]) -> Mapping[str, bool]:
        """Return for the native coin and all contracts called so far whether they are collections.

        Contracts with ambiguous events are called once, at the last block; `collections` stores the results.

        Raises:
            SourceError: A contract could not be called.
        """
        coin = self.node.facts.coin
        ambiguous = {contract for each in blocks for contract in each.ambiguous_contracts}
        new = ambiguous - self.collections.keys() - {coin}
        if new:
            block = blocks[-1].block
            plan = {"collections": detect_collections(sorted(new))}
            report = (await run_batched(plan, lambda calls: state.answer(self.node, calls, block)))["collections"]
            if report.error is not None:
                raise report.error
            self.collections.update(report.result or {})
        return {coin: False, **self.collections}


async def read_blocks(
    heights: Sequence[int], facts: Facts, endpoint: Endpoint, accounts: Collection[str] = ()
) -> list[BlockRows]:
    """Return the rows of whole blocks from one endpoint, in order.

    Their `account_transactions` are those of `accounts`.

    Raises:
        SourceError: A block could not be read, or is invalid.
    """
    build = partial(_build_rows, facts, frozenset(accounts))
    return list(await asyncio.gather(*(_read_block(endpoint, height, build) for height in heights)))


async def _read_headers(heights: Sequence[int], facts: Facts, endpoint: Endpoint) -> list[BlockRows]:
    """Return blocks with their number of transactions, and no other rows."""
    answers = await endpoint.ask([header_request(height) for height in heights], height=max(heights))
    headers = [typed(endpoint.name, unwrap(each), BlockWithHashes) for each in answers]
    return [
        BlockRows(header.block(endpoint.name, height), len(header.transactions), [], [], [])
        for header, height in zip(headers, heights, strict=True)
    ]


async def _read_block(endpoint: Endpoint, height: int, build: BuildRows) -> BlockRows:
    """Read a block with receipts; from several requests if the node lacks the method, which is remembered."""
    if endpoint.capabilities.get(RECEIPTS_CAPABILITY, 1):
        try:
            request = Request("starknet_getBlockWithReceipts", ({"block_number": height},))
            return await endpoint.ask_large(request, partial(_parse_block, height, build), height=height)
        except UnsupportedMethod:
            endpoint.learn(RECEIPTS_CAPABILITY, 0)
    return await _read_in_parts(endpoint, height, build)


def _build_rows(facts: Facts, accounts: frozenset[str], source: str, height: int, full_block: FullBlock) -> BlockRows:
    """Return the rows of a block, with the hashes of transactions whose events have `accounts` as a key."""
    rows = build_rows(source, height, full_block, facts)
    if not accounts:
        return rows
    felts, receipts = FormattedFelts(source), [each.receipt for each in full_block.transactions]
    hashes = (felts[each.transaction_hash] for each in receipts if has_account_key(felts, each.events, accounts))
    return replace(rows, account_transactions=frozenset(hashes))


def _parse_block(height: int, build: BuildRows, source: str, content: bytes | memoryview) -> BlockRows:
    return build(source, height, typed(source, content, FullBlock))


async def _read_in_parts(endpoint: Endpoint, height: int, build: BuildRows) -> BlockRows:
    """Read a block and its receipts by separate requests, for nodes before version 0.7.

    Raises:
        SourceError: One could not be read; BadAnswer if a transaction has no hash.
        Reorged: A receipt is of another block.
    """
    source, request = endpoint.name, Request("starknet_getBlockWithTxs", ({"block_number": height},))
    block = typed(source, await endpoint.ask_one(request, height=height), BlockWithTransactions)
    hashes = [each.transaction_hash for each in block.transactions]
    if None in hashes:
        raise BadAnswer(source, f"block {height} has transactions without a hash")
    requests = [Request("starknet_getTransactionReceipt", (each,)) for each in hashes]
    receipts = [typed(source, unwrap(each), ReceiptWithBlock) for each in await endpoint.ask(requests, height=height)]
    felts = FormattedFelts(source)
    if any(each.block_hash is None or felts[each.block_hash] != felts[block.block_hash] for each in receipts):
        raise Reorged(source, height, felts[block.block_hash])
    pairs = zip(block.transactions, receipts, strict=True)
    header = {name: getattr(block, name) for name in Header.__struct_fields__}
    return build(source, height, FullBlock(**header, transactions=[TransactionWithReceipt(*pair) for pair in pairs]))
