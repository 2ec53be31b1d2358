"""Whole blocks of a span, linked from block to block, as table rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from chainfolio.adapters.solana.node import Header, Node, pruned_until
from chainfolio.adapters.solana.rows import LocatedChange, blocks_table, tables, tx_indexes
from chainfolio.adapters.solana.transactions import Entry, change
from chainfolio.blocks import Block, Span
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, HistoryUnavailable, NodeBehind, Reorged
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

FULL = {
    "encoding": "json",
    "transactionDetails": "full",
    "rewards": False,
    "maxSupportedTransactionVersion": 0,
}


class FullBlock(Header, kw_only=True, gc=False):
    """A block with its transactions as bytes: they are decoded one by one, and none is kept."""

    transactions: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """A block, the slot of its parent, and the changes of its transactions."""

    block: Block
    parent_slot: int
    changes: tuple[LocatedChange, ...]


def parse_block(slot: int, source: str, content: bytes | memoryview) -> BlockChanges | None:
    """Return a block from the JSON of `getBlock`; None for a null.

    Raises:
        BadAnswer: The block contradicts itself.
        HistoryUnavailable: The node did not record its time, or the outcome of a transaction.
    """
    full_block = typed(source, content, FullBlock | None)  # type: ignore[arg-type]
    if full_block is None:
        return None
    if not 0 <= full_block.parentSlot < max(slot, 1):
        raise BadAnswer(source, f"block {slot} says that its parent is {full_block.parentSlot}")
    block = full_block.block(source, slot)
    changes = [change(source, typed(source, entry, Entry), slot) for entry in full_block.transactions]
    indexes = tx_indexes(source, [each.signature for each in changes])
    located = tuple(
        LocatedChange(slot, block.time_us, index, each) for index, each in zip(indexes, changes, strict=True)
    )
    return BlockChanges(block, full_block.parentSlot, located)


async def collect(
    node: Node, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
) -> SpanTables:
    """Read the blocks of a span and return their rows.

    Args:
        node: The endpoints.
        chain: The key of the chain.
        span: The slots to read.
        datasets: Names of `DATASETS`.
        contracts: Keep only transfers of these mints and of lamports; empty for all.
        before: The last block before the span; None if it is not known.

    Raises:
        Reorged: `before` is no longer the parent of the first block.
        HistoryUnavailable: The nodes have no blocks that are so old.
        BadAnswer: A block is missing.
    """
    blocks = await node.with_any(partial(_read_blocks, node, span), kind="blocks")
    _check_links(node.key, span, blocks, before)
    changes = [change for read in blocks for change in read.changes]
    filled = tables(chain, changes, datasets, contracts)
    if "blocks" in datasets:
        filled["blocks"] = blocks_table(chain, [(read.block, len(read.changes)) for read in blocks])
    linked = [read.block for read in blocks]
    events = len(filled["transfers"]) if "transfers" in filled else 0
    return SpanTables(span, filled, linked[-1] if linked else None, linked, events, 0, True)


async def _read_blocks(node: Node, span: Span, endpoint: Endpoint) -> list[BlockChanges]:
    """Read every block of a span from one endpoint, in order; skipped slots have none.

    Raises:
        NodeBehind: It has not reached the end of the span.
        HistoryUnavailable: Its first block is later than the start of the span.
        BadAnswer: It lists other slots than those of the span.
    """
    commitment = {"commitment": node.commitment}
    if span.last > node.finalized:  # a slot without a block may still get one
        await _check_reached(node, endpoint, span.last)
    answer = await endpoint.ask_one(Request("getBlocks", (span.first, span.last, commitment)), height=span.last)
    slots = typed(endpoint.name, answer, list[int])
    if slots != sorted({*slots}) or any(slot not in span for slot in slots):
        raise BadAnswer(endpoint.name, f"lists other slots than those from {span.first} to {span.last}")
    is_absent = span.first not in slots  # skipped, or dropped: a node lists no blocks before its first one
    if is_absent and (first_served := await pruned_until(endpoint, span.first)):
        raise HistoryUnavailable(endpoint.name, span.first, f"the first block that the node has is {first_served}")
    return list(await asyncio.gather(*(_read_block(node, endpoint, slot) for slot in slots)))


async def _check_reached(node: Node, endpoint: Endpoint, slot: int) -> None:
    """Raise NodeBehind if the endpoint is not yet at a slot."""
    newest = typed(endpoint.name, await endpoint.ask_one(Request("getSlot", ({"commitment": node.commitment},))), int)
    if newest < slot:
        raise NodeBehind(endpoint.name, f"is at slot {newest}, and slot {slot} is not there yet")


async def _read_block(node: Node, endpoint: Endpoint, slot: int) -> BlockChanges:
    """Return a block's changes; if the slot has none, the error that the node's `absent` makes is raised."""
    request = Request("getBlock", (slot, {**FULL, "commitment": node.commitment}))
    read = await endpoint.ask_large(request, partial(parse_block, slot), height=slot)
    if read is None:
        raise node.absent(endpoint.name, slot)
    return read


def _check_links(chain: str, span: Span, blocks: Sequence[BlockChanges], before: Block | None) -> None:
    """Check that each block is the parent of the next, so that none is missing.

    The slots between a block and its parent were skipped for good.

    Raises:
        BadAnswer: A block is missing.
        Reorged: `before` is no longer the parent of the first block.
    """
    last = before
    for read in blocks:
        if last is None and read.parent_slot >= span.first and read.block.height:  # the first block is its own parent
            raise BadAnswer(chain, f"block {read.parent_slot} is left out, the parent of block {read.block.height}")
        if last is not None and read.parent_slot > last.height:
            raise BadAnswer(chain, f"block {read.parent_slot} is left out, the parent of block {read.block.height}")
        if last is not None and (read.parent_slot, read.block.parent) != (last.height, last.hash):
            raise Reorged(chain, last.height, last.hash)
        last = read.block
