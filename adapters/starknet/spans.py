"""Whole blocks of a span: what was done in each, linked from block to block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.adapters.starknet.accounts import collections
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import Padded
from chainfolio.adapters.starknet.forms import Bodies, Done, Hashes, Header, Receipt, Whole
from chainfolio.adapters.starknet.named import naming
from chainfolio.adapters.starknet.node import header_at, result
from chainfolio.adapters.starknet.rows import Read, read, tables
from chainfolio.adapters.starknet.state import answer
from chainfolio.blocks import Block, Span
from chainfolio.chains import SpanTables
from chainfolio.errors import BadAnswer, Reorged, UnsupportedMethod
from chainfolio.plans import run_batched
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

if TYPE_CHECKING:
    from chainfolio.adapters.starknet.chain import StarknetChain

Reader = Callable[[str, int, Whole], Read]
WITH_RECEIPTS = "receipts"  # whether an endpoint gives a block with its receipts


async def collect(
    chain: StarknetChain, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
) -> SpanTables:
    """The rows of a span, from blocks that follow each other and what lies before."""
    node, coin = chain.node, chain.facts.coin
    heights = range(span.first, span.last + 1)
    read = blocks_at if {*datasets} - {"blocks"} else _headers_at
    blocks = await node.with_any(partial(read, heights, chain.facts), kind="blocks")
    check_links(node.key, [each.block for each in blocks], before)
    known = await collections_among(chain, blocks) if {"transfers", "approvals"} & set(datasets) else {}
    found = tables(node.key, blocks, datasets, contracts, coin, known)
    chained = [each.block for each in blocks]
    events = len(found["transfers"]) if "transfers" in found else 0
    return SpanTables(span, found, chained[-1], chained, events, 0, True)


async def collections_among(chain: StarknetChain, blocks: Sequence[Read]) -> Mapping[str, bool]:
    """Which of the contracts are collections whose events do not say so. What one is it remains."""
    unsure = {each for read in blocks for each in read.unsure} - chain.collections.keys() - {chain.facts.coin}
    if unsure:
        block = blocks[-1].block
        plan = {"collections": collections(sorted(unsure))}
        report = (await run_batched(plan, lambda calls: answer(chain.node, calls, block)))["collections"]
        if report.error is not None:
            raise report.error
        chain.collections.update(report.result or {})
    return {chain.facts.coin: False, **chain.collections}


async def blocks_at(
    heights: Sequence[int], facts: Facts, endpoint: Endpoint, accounts: Collection[str] = ()
) -> list[Read]:
    """Whole blocks, in order, by one endpoint; with the transactions whose events name some accounts in their keys."""
    reader = partial(_read, facts, frozenset(accounts))
    return list(await asyncio.gather(*(_block(endpoint, height, reader) for height in heights)))


async def _headers_at(heights: Sequence[int], facts: Facts, endpoint: Endpoint) -> list[Read]:
    """Blocks without what was done in them."""
    answers = await endpoint.ask([header_at(height) for height in heights], height=max(heights))
    found = [typed(endpoint.name, result(each), Hashes) for each in answers]
    blocks = [each.block(endpoint.name, height) for each, height in zip(found, heights, strict=True)]
    return [Read(block, [()] * len(each.transactions), [], []) for block, each in zip(blocks, found, strict=True)]


async def _block(endpoint: Endpoint, height: int, reader: Reader) -> Read:
    if endpoint.capabilities.get(WITH_RECEIPTS, 1):
        try:
            request = Request("starknet_getBlockWithReceipts", ({"block_number": height},))
            return await endpoint.ask_large(request, partial(_parsed, height, reader), height=height)
        except UnsupportedMethod:
            endpoint.learn(WITH_RECEIPTS, 0)
    return await _in_parts(endpoint, height, reader)


def _read(facts: Facts, accounts: frozenset[str], source: str, height: int, whole: Whole) -> Read:
    found = read(source, height, whole, facts)
    if not accounts:
        return found
    forms, done = Padded(source), [each.receipt for each in whole.transactions]
    named = frozenset(forms[each.transaction_hash] for each in done if naming(forms, each.events, accounts))
    return replace(found, named=named)


def _parsed(height: int, reader: Reader, source: str, content: bytes | memoryview) -> Read:
    return reader(source, height, typed(source, content, Whole))


async def _in_parts(endpoint: Endpoint, height: int, reader: Reader) -> Read:
    """A block and its receipts, one by one: nodes older than version 0.7 know no other way."""
    source = endpoint.name
    block = typed(
        source,
        await endpoint.ask_one(Request("starknet_getBlockWithTxs", ({"block_number": height},)), height=height),
        Bodies,
    )
    hashes = [each.transaction_hash for each in block.transactions]
    if None in hashes:
        raise BadAnswer(source, f"block {height} has transactions without a hash")
    asked = [Request("starknet_getTransactionReceipt", (each,)) for each in hashes]
    receipts = [typed(source, result(each), Receipt) for each in await endpoint.ask(asked, height=height)]
    done = [Done(body, receipt) for body, receipt in zip(block.transactions, receipts, strict=True)]
    header = {name: getattr(block, name) for name in Header.__struct_fields__}
    return reader(source, height, Whole(**header, transactions=done))


def check_links(chain: str, blocks: Sequence[Block], before: Block | None) -> None:
    """Whether each block follows the one before it."""
    last = before
    for each in blocks:
        if last is not None and each.parent != last.hash:
            raise Reorged(chain, last.height, last.hash)
        last = each
