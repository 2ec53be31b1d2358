"""What concerns some accounts alone: rows of the blocks in which something of them is found.

Three things say where to look: events that name them in their keys, their nonces, and their balances of the tokens
whose events name nobody in the keys. Rows are made of whole blocks, as they are of everybody. Where a node has no old
state, and where only a few blocks are asked for that may still go, every block is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.adapters.starknet import changes
from chainfolio.adapters.starknet.datasets import DATASETS
from chainfolio.adapters.starknet.forms import Header
from chainfolio.adapters.starknet.named import Places, named
from chainfolio.adapters.starknet.node import header_at
from chainfolio.adapters.starknet.rows import Read, tables
from chainfolio.adapters.starknet.spans import blocks_at, check_links, collections_among
from chainfolio.adapters.starknet.state import Pins
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import SpanTables, UnexplainedChange
from chainfolio.errors import BadAnswer, HistoryUnavailable, NodeBehind, Reorged, UnsupportedMethod
from chainfolio.transport import metering
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import typed

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.adapters.starknet.chain import StarknetChain

PIECE: Final = 100  # blocks that are read together
UNITS: Final = 80  # of a block, about
OTHERS: Final = 4  # requests beside them: for the last block of a piece, for what contracts are
FEW: Final = 12  # blocks that may still go and are all read whole: a search asks as often
LINKED: Final = 1_000  # blocks that may still go and are searched together
NO_PINS: Final[Pins] = {}
WAYS: Final = {True: "search", False: "blocks"}
UNSEEN: Final = (
    "tokens whose events name accounts in their data alone are seen where the account did something, or where its "
    "balance of one of {} such tokens changed"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The heights of a span at which something of accounts is, the transactions that events were listed of, and how
    many transactions of its own an account has in a block."""

    span: Span
    heights: tuple[int, ...]
    listed: Places
    own: Mapping[tuple[str, int], int]


class AccountHistory:
    """Reads the histories of accounts of one chain. What was found is kept for the next piece of the same span."""

    def __init__(self, chain: StarknetChain) -> None:
        self.chain = chain
        self._ahead: tuple[tuple[str, ...], Found] | None = None

    async def collect(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None, budget: Budget | None
    ) -> SpanTables:
        """As `AccountHistoryReader.collect_accounts` has it."""
        final = self.chain.node.finalized
        with metering.charge_to(budget):
            try:
                if before is None and span.first <= final:
                    return await self._searched(Span(span.first, min(span.last, final)), accounts, datasets)
                if len(span) > FEW:
                    return await self._linked(span, accounts, datasets, before)
            except (HistoryUnavailable, UnsupportedMethod):
                pass
            return await self._every(span, accounts, datasets, before)

    async def _every(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Every block is read, as many as go at once."""
        span = Span(span.first, min(span.last, span.first + _most() - 1))
        found = await self.chain.collect(span, datasets, (), before)
        rows = _own(found.tables, accounts)
        events, ways = len(rows.get("transfers", ())), dict.fromkeys(datasets, WAYS[False])
        return SpanTables(span, rows, found.last, found.blocks, events, is_linked=True, read_methods=ways)

    async def _linked(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Blocks that may still go: all are linked, and what is searched is named by their hashes."""
        node = self.chain.node
        span = Span(span.first, min(span.last, span.first + LINKED - 1))
        blocks = await node.blocks(range(span.first, span.last + 1))
        check_links(node.key, blocks, before)
        pins = {each.height: each.hash for each in ([before] if before else []) + blocks}
        try:
            found = await self._searched(span, accounts, datasets, pins)
        except NodeBehind:
            if (await node.block(span.last)).hash != pins[span.last]:
                raise Reorged(node.key, span.last, pins[span.last]) from None
            raise
        found.blocks, found.is_linked = [each for each in blocks if each.height in found.span], True
        return found

    async def _searched(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], pins: Pins = NO_PINS
    ) -> SpanTables:
        """The blocks in which something is found, as many as go at once."""
        node, facts = self.chain.node, self.chain.facts
        found = await self._found(span, tuple(sorted(accounts)), pins)
        span, wanted = found.span, [each for each in found.heights if each >= span.first]
        if len(wanted) > (most := _most()):
            wanted = wanted[:most]
            span = Span(span.first, wanted[-1])
        whole = partial(blocks_at, wanted, facts, accounts=accounts)
        blocks = await node.with_any(whole, kind="blocks") if wanted else []
        _check(node.key, found, blocks, accounts, pins)
        known = await collections_among(self.chain, blocks)
        rows = _own(tables(node.key, blocks, datasets, (), facts.coin, known), accounts)
        last = blocks[-1].block if blocks and wanted[-1] == span.last else await node.block(span.last)
        if pins.get(span.last, last.hash) != last.hash:
            raise Reorged(node.key, span.last, pins[span.last])
        reason, coin = UNSEEN.format(len(facts.searched)), self.chain.info.native.asset
        told = tuple(UnexplainedChange(each, span.last, coin, 0, reason) for each in accounts)
        events, ways = len(rows.get("transfers", ())), dict.fromkeys(datasets, WAYS[True])
        return SpanTables(span, rows, last, [], events, read_methods=ways, unexplained=told)

    async def _found(self, span: Span, accounts: tuple[str, ...], pins: Pins) -> Found:
        """Where something is, from the start of a span as far as goes at once."""
        if self._ahead is not None and not pins:
            known, found = self._ahead
            if known == accounts and span.first in found.span and found.span.last <= span.last:
                return Found(Span(span.first, found.span.last), found.heights, found.listed, found.own)
        search = partial(_search, span, accounts, self.chain.facts.searched, pins)
        found = await self.chain.node.with_any(search, kind="history")
        self._ahead = None if pins else (accounts, found)
        return found


def _most() -> int:
    """How many blocks are read together: fewer where a budget ends."""
    return max(1, int(min(PIECE, metering.affords(1, UNITS) - OTHERS)))


async def _search(span: Span, accounts: Sequence[str], tokens: Sequence[str], pins: Pins, endpoint: Endpoint) -> Found:
    """Where something of accounts is, by one endpoint."""
    last = span.last
    span, listed = await named(endpoint, span, accounts, pins)
    if pins:  # what has no event has no hash either: the node is still where it was
        header = typed(endpoint.name, await endpoint.ask_one(header_at(last), height=last), Header)
        if header.block(endpoint.name, last).hash != pins[last]:
            raise Reorged(endpoint.name, last, pins[last])
    span, own = await changes.transactions(endpoint, span, accounts, pins)
    first = {0} if span.first == 0 else set[int]()  # nothing is before it
    while True:
        seen = {height for height in (*listed, *(height for _, height in own), *first) if height in span}
        try:
            moved = await changes.moved(endpoint, span, accounts, tokens, seen, pins)
            break
        except changes.TooManyChanges:
            span = Span(span.first, span.first + len(span) // 2 - 1)
    return Found(span, tuple(sorted(seen | moved)), listed, own)


def _check(chain: str, found: Found, blocks: Sequence[Read], accounts: Sequence[str], pins: Pins) -> None:
    """Whether blocks are those that were searched, and have what was found in them."""
    for read in blocks:
        if pins.get(read.block.height, read.block.hash) != read.block.hash:
            raise Reorged(chain, read.block.height, pins[read.block.height])
        height, counted = read.block.height, Counter(row[4] for row in read.paid if row[8])  # of a version with nonces
        if lost := found.listed.get(height, set()) - {row[3] for row in read.paid}:
            raise BadAnswer(chain, f"block {height} does not have {min(lost)}, whose events are listed in it")
        if unlisted := read.named - found.listed.get(height, set()):
            said = f"does not list the events of {min(unlisted)} in block {height}: others may be missing, too"
            raise BadAnswer(chain, said, remedy="read histories of accounts from another node")
        for account in accounts:
            if height and counted[account] != found.own.get((account, height), 0):
                raise BadAnswer(chain, f"block {height} has other transactions of {account} than its nonce says")


def _own(rows: Mapping[str, pa.Table], accounts: Sequence[str]) -> dict[str, pa.Table]:
    """The rows that concern some accounts."""
    by_table = {each.table.name: each for each in DATASETS.values() if each.account_columns}
    return {name: by_table[name].rows_of_accounts(table, accounts) for name, table in rows.items() if name in by_table}
