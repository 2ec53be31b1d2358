"""Rows of chosen accounts, from the blocks in which they took part.

A search finds these blocks by events with the accounts in their keys, by nonces, and by balances of the tokens whose
events have no accounts in their keys. Rows are made from whole blocks, so they do not depend on the chosen accounts.
Every block is read if a node has no old state, or if the span is short and not final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from chainfolio.adapters.starknet import changes
from chainfolio.adapters.starknet.datasets import DATASETS
from chainfolio.adapters.starknet.event_search import HashesByHeight, search_events
from chainfolio.adapters.starknet.forms import Header
from chainfolio.adapters.starknet.node import header_request
from chainfolio.adapters.starknet.rows import BlockRows, build_tables
from chainfolio.adapters.starknet.spans import SpanReader, read_blocks
from chainfolio.adapters.starknet.state import BlockHashes
from chainfolio.blocks import Block, Span, check_links
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables, UnexplainedChange
from chainfolio.datasets import select_accounts
from chainfolio.errors import BadAnswer, HistoryUnavailable, NodeBehind, Reorged, UnsupportedMethod
from chainfolio.transport import metering
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import typed

MAX_BLOCKS: Final = 100  # read at once
BLOCK_UNITS: Final = 80  # approximate compute units of a block
EXTRA_REQUESTS: Final = 4  # in addition to blocks: for the last block, and for calls of ambiguous contracts
MAX_READ_SPAN: Final = 12  # blocks that are not final and all read: a search takes as many requests
MAX_SEARCHED_SPAN: Final = 1_000  # blocks that are not final and searched at once
ALL_FINAL: Final[BlockHashes] = {}
BY_SEARCH, BY_BLOCKS = "search", "blocks"
INCOMPLETE: Final = (
    "tokens whose events name accounts in their data alone are seen where the account did something, or where its "
    "balance of one of {} such tokens changed"
)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The blocks of a span in which accounts took part.

    Attributes:
        span: The searched heights.
        heights: The heights of the blocks, in order.
        event_transactions: The transactions whose events have one of the accounts in a key.
        transaction_counts: How many transactions an account sent, by account and height.
    """

    span: Span
    heights: tuple[int, ...]
    event_transactions: HashesByHeight
    transaction_counts: Mapping[tuple[str, int], int]


class AccountHistory:
    """Reads the histories of accounts of one chain. Stores the last search for the next part of its span."""

    def __init__(self, reader: SpanReader) -> None:
        self.reader, self.node, self.facts = reader, reader.node, reader.node.facts
        self._last_search: tuple[tuple[str, ...], SearchResult] | None = None

    async def collect(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None, budget: Budget | None
    ) -> SpanTables:
        """Return the rows of accounts, as specified by `AccountHistoryReader.collect_accounts`.

        A search covers a final span without `before`, or a longer one that is linked; if the node lacks the state for
        it, and for short spans, all blocks are read. Reads are charged to `budget`.

        Raises:
            SourceError: A search or a block could not be read, or contradict each other.
            Reorged: A block does not follow the one before it, or changed during the search.
        """
        final = self.node.finalized
        with metering.charge_to(budget):
            try:
                if before is None and span.first <= final:
                    return await self._collect_by_search(Span(span.first, min(span.last, final)), accounts, datasets)
                if len(span) > MAX_READ_SPAN:
                    return await self._collect_linked(span, accounts, datasets, before)
            except (HistoryUnavailable, UnsupportedMethod):
                pass
            return await self._collect_all(span, accounts, datasets, before)

    async def _collect_all(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Read every block, from the start of the span as many as allowed at once."""
        span = Span(span.first, min(span.last, span.first + _max_blocks() - 1))
        collected = await self.reader.collect(span, datasets, (), before)
        tables = select_accounts(DATASETS, collected.tables, accounts)
        events, methods = len(tables.get("transfers", ())), dict.fromkeys(datasets, BY_BLOCKS)
        return SpanTables(span, tables, collected.last, collected.blocks, events, is_linked=True, read_methods=methods)

    async def _collect_linked(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Link all headers of a span that is not final, and search its blocks by their hashes.

        The returned span has at most MAX_SEARCHED_SPAN blocks. Raises Reorged if the chain changed meanwhile,
        NodeBehind if no endpoint has the blocks.
        """
        node = self.node
        span = Span(span.first, min(span.last, span.first + MAX_SEARCHED_SPAN - 1))
        blocks = await node.blocks(range(span.first, span.last + 1))
        check_links(node.key, blocks, before)
        block_hashes = {each.height: each.hash for each in ([before] if before else []) + blocks}
        try:
            collected = await self._collect_by_search(span, accounts, datasets, block_hashes)
        except NodeBehind:
            if (await node.block(span.last)).hash != block_hashes[span.last]:
                raise Reorged(node.key, span.last, block_hashes[span.last]) from None
            raise
        collected.blocks = [each for each in blocks if each.height in collected.span]
        collected.is_linked = True
        return collected

    async def _collect_by_search(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], block_hashes: BlockHashes = ALL_FINAL
    ) -> SpanTables:
        """Search the span, and read the blocks with the accounts; it ends early if there are too many.

        The result has no blocks, and for each account an unexplained change that says what a search does not find.
        Raises Reorged if a block has another hash.
        """
        node, facts = self.node, self.facts
        search = await self._search(span, tuple(sorted(accounts)), block_hashes)
        span, heights = search.span, [each for each in search.heights if each >= span.first]
        if len(heights) > (max_blocks := _max_blocks()):
            heights = heights[:max_blocks]
            span = Span(span.first, heights[-1])
        read = partial(read_blocks, heights, facts, accounts=accounts)
        rows = await node.with_any(read, kind="blocks") if heights else []
        _check_blocks(node.key, search, rows, accounts, block_hashes)
        collections = await self.reader.resolve_collections(rows)
        tables = select_accounts(
            DATASETS, build_tables(node.key, rows, datasets, (), facts.coin, collections), accounts
        )
        last = rows[-1].block if rows and heights[-1] == span.last else await node.block(span.last)
        if block_hashes.get(span.last, last.hash) != last.hash:
            raise Reorged(node.key, span.last, block_hashes[span.last])
        reason, coin = INCOMPLETE.format(len(facts.searched_tokens)), facts.info.native.asset
        unexplained = tuple(UnexplainedChange(each, span.last, coin, 0, reason) for each in accounts)
        events, methods = len(tables.get("transfers", ())), dict.fromkeys(datasets, BY_SEARCH)
        return SpanTables(span, tables, last, [], events, read_methods=methods, unexplained=unexplained)

    async def _search(self, span: Span, accounts: tuple[str, ...], block_hashes: BlockHashes) -> SearchResult:
        """Return the search of a part of the span, from its start: the last one if it fits, else a new one.

        A search of final blocks is stored, another one forgets the last.
        """
        if self._last_search is not None and not block_hashes:
            last_accounts, last = self._last_search
            if last_accounts == accounts and span.first in last.span and last.span.last <= span.last:
                return replace(last, span=Span(span.first, last.span.last))
        search = partial(_search_endpoint, span, accounts, self.facts.searched_tokens, block_hashes)
        result = await self.node.with_any(search, kind="history")
        self._last_search = None if block_hashes else (accounts, result)
        return result


def _max_blocks() -> int:
    """Return the number of blocks to read at once: at most MAX_BLOCKS and the budget, at least 1."""
    return max(1, int(min(MAX_BLOCKS, metering.affords(1, BLOCK_UNITS) - EXTRA_REQUESTS)))


async def _search_endpoint(
    span: Span, accounts: Sequence[str], tokens: Sequence[str], block_hashes: BlockHashes, endpoint: Endpoint
) -> SearchResult:
    """Search the blocks of a span with one endpoint. Block 0 counts as one in which accounts took part.

    Args:
        tokens: Tokens whose balances are compared.
        block_hashes: Hashes of all blocks of a span that is not final; otherwise empty.

    Returns:
        The result for the span, or for its first part if the whole would take too many reads.

    Raises:
        Reorged: The endpoint is on another branch than `block_hashes`.
        SourceError: The endpoint could not be searched, or does not have the state of these blocks.
    """
    last = span.last
    span, event_transactions = await search_events(endpoint, span, accounts, block_hashes)
    if block_hashes:  # an answer without events has no block hash, so check that the node is still on this branch
        header = typed(endpoint.name, await endpoint.ask_one(header_request(last), height=last), Header)
        if header.block(endpoint.name, last).hash != block_hashes[last]:
            raise Reorged(endpoint.name, last, block_hashes[last])
    span, transaction_counts = await changes.count_transactions(endpoint, span, accounts, block_hashes)
    candidates = {*event_transactions, *(height for _, height in transaction_counts)}
    if span.first == 0:  # there is no state before the first block to compare with
        candidates.add(0)
    while True:
        heights = {height for height in candidates if height in span}
        try:
            heights |= await changes.find_balance_changes(endpoint, span, accounts, tokens, heights, block_hashes)
            break
        except changes.TooManyChanges:
            span = Span(span.first, span.first + len(span) // 2 - 1)
    return SearchResult(span, tuple(sorted(heights)), event_transactions, transaction_counts)


def _check_blocks(
    chain: str, search: SearchResult, blocks: Sequence[BlockRows], accounts: Sequence[str], block_hashes: BlockHashes
) -> None:
    """Check blocks against the search: their hashes, transactions with events, and counts per account.

    Raises:
        Reorged: A block has another hash than in `block_hashes`.
        BadAnswer: The search lacks a transaction with events of the accounts, or the block one that was found; or the
            count of an account's transactions is another (block 0 and version 0 have no nonces).
    """
    for rows in blocks:
        height = rows.block.height
        if block_hashes.get(height, rows.block.hash) != rows.block.hash:
            raise Reorged(chain, height, block_hashes[height])
        hashes = search.event_transactions.get(height, set())
        if missing := hashes - {row.hash for row in rows.transactions}:
            raise BadAnswer(chain, f"block {height} does not have {min(missing)}, whose events are listed in it")
        if unlisted := rows.account_transactions - hashes:
            reason = f"does not list the events of {min(unlisted)} in block {height}: others may be missing, too"
            raise BadAnswer(chain, reason, remedy="read histories of accounts from another node")
        counts = Counter(row.sender for row in rows.transactions if row.type)  # version 0 has no nonces
        for account in accounts:
            if height and counts[account] != search.transaction_counts.get((account, height), 0):
                raise BadAnswer(chain, f"block {height} has other transactions of {account} than its nonce says")
