"""Whole blocks of a span: which slots have one, what was done in each, linked from block to block."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from adapters.solana.node import Header, Node
from adapters.solana.rows import Done, blocks_table, places, tables
from adapters.solana.transactions import Entry, change
from chainfolio.blocks import Block, Span
from chainfolio.chains import Collected
from chainfolio.errors import BadAnswer, NodeBehind, Reorged
from transport.endpoint import Endpoint
from transport.wire import Request, typed

FULL = {
    "encoding": "json", "transactionDetails": "full", "rewards": False, "maxSupportedTransactionVersion": 0,
}  # fmt: skip


class Whole(Header, kw_only=True, gc=False):
    """A block with its transactions, each still as bytes: they are decoded one by one, and none is kept."""

    transactions: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Read:
    """A block, the slot before it that has one, and what was done in it."""

    block: Block
    parent_slot: int
    done: tuple[Done, ...]


def whole(slot: int, source: str, content: bytes | memoryview) -> Read | None:
    """A block as `getBlock` gives it; None where the node has none."""
    found = typed(source, content, Whole | None)  # type: ignore[arg-type]
    if found is None:
        return None
    if not 0 <= found.parentSlot < max(slot, 1):
        raise BadAnswer(source, f"block {slot} says that its parent is {found.parentSlot}")
    block = found.block(source, slot)
    changes = [change(source, typed(source, entry, Entry), slot) for entry in found.transactions]
    numbers, moment = places(source, [each.signature for each in changes]), block.time_us
    done = tuple(Done(slot, moment, number, each) for number, each in zip(numbers, changes, strict=True))
    return Read(block, found.parentSlot, done)


async def collect(
    node: Node, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
) -> Collected:
    """The rows of a span, from blocks that follow each other and what lies before."""
    blocks = await node.with_any(partial(_blocks, node, span), kind="blocks")
    _check_links(node.key, span, blocks, before)
    done = [each for read in blocks for each in read.done]
    found = tables(chain, done, datasets, contracts)
    if "blocks" in datasets:
        found["blocks"] = blocks_table(chain, [(read.block, len(read.done)) for read in blocks])
    chained = [read.block for read in blocks]
    events = len(found["transfers"]) if "transfers" in found else 0
    return Collected(span, found, chained[-1] if chained else None, chained, events, 0, True)


async def _blocks(node: Node, span: Span, endpoint: Endpoint) -> list[Read]:
    """Every block of a span, by one endpoint."""
    commitment = {"commitment": node.commitment}
    if span.last > node.finalized:  # a slot without a block yet may get one
        await _check_reached(node, endpoint, span.last)
    listed = await endpoint.one(Request("getBlocks", (span.first, span.last, commitment)), height=span.last)
    slots = typed(endpoint.name, listed, list[int])
    if slots != sorted({*slots}) or any(slot not in span for slot in slots):
        raise BadAnswer(endpoint.name, f"lists other slots than those from {span.first} to {span.last}")
    return list(await asyncio.gather(*(_block(node, endpoint, slot) for slot in slots)))


async def _check_reached(node: Node, endpoint: Endpoint, slot: int) -> None:
    reached = typed(endpoint.name, await endpoint.one(Request("getSlot", ({"commitment": node.commitment},))), int)
    if reached < slot:
        raise NodeBehind(endpoint.name, f"is at slot {reached}, and slot {slot} is not there yet")


async def _block(node: Node, endpoint: Endpoint, slot: int) -> Read:
    request = Request("getBlock", (slot, {**FULL, "commitment": node.commitment}))
    read = await endpoint.big(request, partial(whole, slot), height=slot)
    if read is None:
        raise node.absent(endpoint.name, slot)
    return read


def _check_links(chain: str, span: Span, blocks: Sequence[Read], before: Block | None) -> None:
    """Whether each block follows the one before it, so that none is left out. What lies between is skipped for ever,
    by the word of the next block."""
    last = before
    for read in blocks:
        if last is None and read.parent_slot >= span.first and read.block.height:  # the first block is its own parent
            raise BadAnswer(chain, f"block {read.parent_slot} is left out, the parent of block {read.block.height}")
        if last is not None and read.parent_slot > last.height:
            raise BadAnswer(chain, f"block {read.parent_slot} is left out, the parent of block {read.block.height}")
        if last is not None and (read.parent_slot, read.block.parent) != (last.height, last.hash):
            raise Reorged(chain, last.height, last.hash)
        last = read.block
