"""Internal transfers from explorers (`txlistinternal`), for chains whose nodes do not trace.

An explorer is trusted: no hash covers what it leaves out. The checks are that it has reached the requested blocks, that
every row belongs to a transaction of its block, and that no list was cut short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlencode

import msgspec

from chainfolio.adapters.evm.accounts.active_blocks import ActiveBlocks, freeze
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, ExplorerTransfer, TracedBlock, of_explorer
from chainfolio.adapters.evm.endpoint import OTHER_UNITS, EvmEndpoint
from chainfolio.adapters.evm.hexadecimal import quantity
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.messages import redacted
from chainfolio.transport.wire import typed

SOURCE_NAME = "explorer"
# The largest list that explorers return.
MAX_ROWS = 10_000
SUSPICIOUS_ROWS = 1_000  # a list of so many rows, or a multiple, may have been cut short
HEAD = {"module": "proxy", "action": "eth_blockNumber"}
OTHER_HEAD = {"module": "block", "action": "eth_block_number"}


class _ExplorerResponse(msgspec.Struct):
    """An answer: a list, or in its place a sentence."""

    result: msgspec.Raw
    message: str | None = None


@dataclass(slots=True)
class Fetching:
    """A transport that puts the body into the address, because explorers are asked by GET."""

    transport: HttpTransport

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Send one request; no retry, no redirect."""
        return await self.transport.get(source, f"{url}{'&' if '?' in url else '?'}{body.decode()}", timeout_s)

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()


class Explorer(EvmEndpoint):
    """An explorer, used like a node: paced, retried, its key hidden in every text."""

    async def internal_transfers(self, blocks: Sequence[TracedBlock]) -> dict[TracedBlock, list[CoinTransfer]]:
        """Return the internal transfers of each of some blocks, which are in rising order.

        Raises:
            NodeBehind: The explorer has not reached the last block.
            BadAnswer: It lists a transfer in another block, or perhaps not all of a transaction.
        """
        if not blocks:
            return {}
        await self._reach(blocks[-1].height)
        rows: dict[int, list[ExplorerTransfer]] = defaultdict(list)
        for row in await self._rows(blocks):
            rows[int(row.blockNumber)].append(row)
        if unexpected := rows.keys() - {block.height for block in blocks}:
            raise BadAnswer(self.name, f"lists transfers in block {min(unexpected)}, which has no transaction")
        return {block: of_explorer(self.name, rows[block.height], block) for block in blocks}

    async def active_blocks(self, span: Span, accounts: Sequence[str]) -> ActiveBlocks:
        """Return the blocks that concern some accounts, in the first part of a span that fits into one list.

        Raises:
            NodeBehind: The explorer has not reached the end of the span.
            BadAnswer: Not even the first block fits, or a list is unsorted or has other blocks.
        """
        await self._reach(span.last)
        hashes_by_height: defaultdict[int, set[str]] = defaultdict(set)
        internal_hashes_by_height: defaultdict[int, set[str]] = defaultdict(set)
        for account in accounts:
            for action in ("txlist", "txlistinternal"):
                rows = await self._of_account(action, account, span)
                if _may_be_cut(rows):  # the rest is for the next window
                    span = Span(span.first, self._complete_until(rows, span))
                for row in rows:
                    hashes_by_height[int(row.blockNumber)].add((row.hash or row.transactionHash).lower())
                    if action == "txlistinternal":
                        internal_hashes_by_height[int(row.blockNumber)].add((row.hash or row.transactionHash).lower())
        internal_hashes, tx_hashes = (
            freeze({height: block_hashes for height, block_hashes in hashes.items() if height in span})
            for hashes in (internal_hashes_by_height, hashes_by_height)
        )
        return ActiveBlocks(span, SOURCE_NAME, tuple(sorted(tx_hashes)), internal_hashes, tx_hashes=tx_hashes)

    async def _of_account(self, action: str, account: str, span: Span) -> list[ExplorerTransfer]:
        """Return the first MAX_ROWS rows of an account in a span, in rising order.

        Args:
            action: The explorer's name of the list.

        Raises:
            BadAnswer: A row is outside of the span.
        """
        query = {
            "module": "account",
            "action": action,
            "address": account,
            "startblock": span.first,
            "endblock": span.last,
            "page": 1,
            "offset": MAX_ROWS,
            "sort": "asc",
        }
        rows = typed(self.name, await self._result(query), list[ExplorerTransfer])
        if any(int(row.blockNumber) not in span for row in rows):
            raise BadAnswer(self.name, "lists transactions from outside the blocks that were asked for")
        return rows

    def _complete_until(self, rows: Sequence[ExplorerTransfer], span: Span) -> int:
        """Return the last height up to which a possibly cut list is complete.

        Raises BadAnswer if the list is not sorted, or if its first block may be cut already.
        """
        if any(int(a.blockNumber) > int(b.blockNumber) for a, b in pairwise(rows)):
            raise BadAnswer(
                self.name, "lists transactions in another order than was asked for: where it ends is unknown"
            )
        last = int(rows[-1].blockNumber) - 1
        if last < span.first:
            raise BadAnswer(
                self.name, f"lists no more than {len(rows):,} transactions, and block {span.first} has them"
            )
        return last

    async def transaction_transfers(self, block: TracedBlock, index: int) -> list[CoinTransfer]:
        """Return the internal transfers of one transaction of a block.

        Raises:
            BadAnswer: The list may lack its end, or has another transaction.
        """
        return of_explorer(self.name, await self._transaction_rows(block, index), block)

    async def _transaction_rows(self, block: TracedBlock, index: int) -> list[ExplorerTransfer]:
        """Return the rows of one transaction of a block; raise BadAnswer if the list may lack its end."""
        tx_hash = block.transactions[index]
        query = {"module": "account", "action": "txlistinternal", "txhash": tx_hash}
        rows = typed(self.name, await self._result(query), list[ExplorerTransfer])
        for row in rows:
            row.hash = row.hash or tx_hash  # explorers may leave out the requested hash
        if _may_be_cut(rows):
            raise BadAnswer(self.name, f"lists no more than {len(rows):,} transfers, and {tx_hash} has them")
        return rows

    async def _reach(self, height: int) -> None:
        """Raise NodeBehind if the explorer has not reached a height."""
        try:
            head = typed(self.name, await self._result(HEAD), str)
        except BadAnswer:
            head = typed(self.name, await self._result(OTHER_HEAD), str)
        if quantity(self.name, head, bits=31) < height:
            raise NodeBehind(self.name, f"the explorer does not have block {height} yet")

    async def _rows(self, blocks: Sequence[TracedBlock]) -> list[ExplorerTransfer]:
        """Return all rows of some blocks, which are in rising order.

        If a list may lack its end, those of the halves are read; of a single block, those of its transactions.
        Raises BadAnswer if the list of a transaction may lack its end.
        """
        query = {
            "module": "account",
            "action": "txlistinternal",
            "startblock": blocks[0].height,
            "endblock": blocks[-1].height,
            "page": 1,
            "offset": MAX_ROWS,
            "sort": "asc",
        }
        rows = typed(self.name, await self._result(query), list[ExplorerTransfer])
        if not _may_be_cut(rows):
            return rows
        if len(blocks) == 1:
            lists = [await self._transaction_rows(blocks[0], k) for k in range(len(blocks[0].transactions))]
        else:
            middle = len(blocks) // 2
            lists = [await self._rows(part) for part in (blocks[:middle], blocks[middle:])]
        return [row for part in lists for row in part]

    async def _result(self, query: Mapping[str, object]) -> bytes:
        """Send a query and return its result as JSON: a list, or a string of hex digits with 0x.

        Raises Unavailable for a rate limit or a timeout, BadAnswer for another message of the explorer.
        """

        def read(body: bytes) -> bytes:
            """Return the JSON result; raise Unavailable for a rate limit, BadAnswer for another text."""
            response = typed(self.name, body, _ExplorerResponse)
            content = bytes(response.result)
            text = f"{response.message or ''} {content[:200].decode('utf-8', 'replace')}".lower()
            if content[:1] == b"[" or content[:3] == b'"0x':
                return content
            if any(phrase in text for phrase in ("rate limit", "timeout", "too many")):
                raise Unavailable(self.name, f"the explorer says: {redacted(text)}")
            raise BadAnswer(self.name, f"the explorer says: {redacted(text)}")

        return await self._post(urlencode(query).encode(), read, OTHER_UNITS, [str(query["action"])])


def _may_be_cut(rows: Sequence[ExplorerTransfer]) -> bool:
    """Return True if a list may lack its end: some explorers list fewer rows than requested."""
    return len(rows) >= MAX_ROWS or (len(rows) > 0 and len(rows) % SUSPICIOUS_ROWS == 0)
