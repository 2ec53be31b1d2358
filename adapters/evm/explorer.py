"""Internal transfers as explorers list them (`txlistinternal`), for chains whose nodes do not trace.

An explorer is believed: no hash covers what it leaves out. What is checked is that it is as far as the blocks asked
for, that every row is of a transaction of its block, and that no list was cut short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlencode

import msgspec

from adapters.evm.accounts.touched import Touched, frozen
from adapters.evm.datasets.internal import Listed, Moved, Place, of_list
from adapters.evm.endpoint import OTHER_UNITS, EvmEndpoint
from adapters.evm.hexadecimal import quantity
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from transport.exchange import Posted
from transport.http import HttpTransport
from transport.messages import shown
from transport.wire import typed

WAY = "explorer"
# The most that such an interface lists at once.
MAX_ROWS = 10_000
SUSPECT = 1_000  # where a list of so many, or of a multiple of it, may have been cut short
HEAD = {"module": "proxy", "action": "eth_blockNumber"}
OTHER_HEAD = {"module": "block", "action": "eth_block_number"}


class _Said(msgspec.Struct):
    """An answer: a list, or in its place a sentence."""

    result: msgspec.Raw
    message: str | None = None


@dataclass(slots=True)
class Fetching:
    """A transport that puts its body into the address: these interfaces are asked by GET."""

    transport: HttpTransport

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange; no retry, no redirect."""
        return await self.transport.get(source, f"{url}{'&' if '?' in url else '?'}{body.decode()}", timeout_s)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.transport.close()


class Explorer(EvmEndpoint):
    """One explorer, asked as politely as a node: paced, retried, its key kept out of every text."""

    async def moved(self, blocks: Sequence[Place]) -> dict[Place, list[Moved]]:
        """What moved inside each of some blocks, in rising order. NodeBehind where the explorer is not that far."""
        if not blocks:
            return {}
        await self._reach(blocks[-1].height)
        rows: dict[int, list[Listed]] = defaultdict(list)
        for row in await self._listed(Span(blocks[0].height, blocks[-1].height)):
            rows[int(row.blockNumber)].append(row)
        if unknown := rows.keys() - {place.height for place in blocks}:
            raise BadAnswer(self.name, f"lists transfers in block {min(unknown)}, which has no transaction")
        return {place: of_list(self.name, rows[place.height], place) for place in blocks}

    async def touched(self, span: Span, accounts: Sequence[str]) -> Touched:
        """The blocks that concern some accounts, from the start of a span as far as the explorer lists them at once."""
        await self._reach(span.last)
        sent: defaultdict[int, set[str]] = defaultdict(set)
        inside: defaultdict[int, set[str]] = defaultdict(set)
        for account in accounts:
            for action in ("txlist", "txlistinternal"):
                rows = await self._of_account(action, account, span)
                if _may_be_cut(rows):  # the rest is for the next window
                    span = Span(span.first, self._whole(rows, span))
                for row in rows:
                    sent[int(row.blockNumber)].add((row.hash or row.transactionHash).lower())
                    if action == "txlistinternal":
                        inside[int(row.blockNumber)].add((row.hash or row.transactionHash).lower())
        moved, named = (
            frozen({height: each for height, each in hashes.items() if height in span}) for hashes in (inside, sent)
        )
        return Touched(span, WAY, tuple(sorted(named)), moved, sent=named)

    async def _of_account(self, action: str, account: str, span: Span) -> list[Listed]:
        query = {
            "module": "account", "action": action, "address": account, "startblock": span.first, "endblock": span.last,
            "page": 1, "offset": MAX_ROWS, "sort": "asc",
        }  # fmt: skip
        rows = typed(self.name, await self._said(query), list[Listed])
        if any(int(row.blockNumber) not in span for row in rows):
            raise BadAnswer(self.name, "lists transactions from outside the blocks that were asked for")
        return rows

    def _whole(self, rows: Sequence[Listed], span: Span) -> int:
        """Up to which block a list is whole that may have been cut short."""
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

    async def inside(self, place: Place, index: int) -> list[Moved]:
        """What moved inside one transaction of a block."""
        tx_hash = place.transactions[index]
        query = {"module": "account", "action": "txlistinternal", "txhash": tx_hash}
        rows = typed(self.name, await self._said(query), list[Listed])
        for row in rows:
            row.hash = row.hash or tx_hash  # it was asked by its hash, and need not repeat it
        return of_list(self.name, rows, place)

    async def _reach(self, height: int) -> None:
        try:
            head = typed(self.name, await self._said(HEAD), str)
        except BadAnswer:
            head = typed(self.name, await self._said(OTHER_HEAD), str)
        if quantity(self.name, head, bits=31) < height:
            raise NodeBehind(self.name, f"the explorer does not have block {height} yet")

    async def _listed(self, span: Span) -> list[Listed]:
        """All rows of a span; where the list may have been cut short, of its halves."""
        query = {
            "module": "account", "action": "txlistinternal", "startblock": span.first, "endblock": span.last,
            "page": 1, "offset": MAX_ROWS, "sort": "asc",
        }  # fmt: skip
        found = typed(self.name, await self._said(query), list[Listed])
        if len(found) < MAX_ROWS:
            return found
        if len(span) == 1:
            raise BadAnswer(self.name, f"lists no more than {MAX_ROWS:,} transfers, and block {span.first} has them")
        return [row for half in span.cut(-(-len(span) // 2)) for row in await self._listed(half)]

    async def _said(self, query: Mapping[str, object]) -> bytes:
        def read(body: bytes) -> bytes:
            said = typed(self.name, body, _Said)
            content = bytes(said.result)
            words = f"{said.message or ''} {content[:200].decode('utf-8', 'replace')}".lower()
            if content[:1] == b"[" or content[:3] == b'"0x':
                return content
            if any(sign in words for sign in ("rate limit", "timeout", "too many")):
                raise Unavailable(self.name, f"the explorer says: {shown(words)}")
            raise BadAnswer(self.name, f"the explorer says: {shown(words)}")

        return await self._posted(urlencode(query).encode(), read, OTHER_UNITS, [str(query["action"])])


def _may_be_cut(rows: Sequence[Listed]) -> bool:
    """Whether a list may lack its end: some list fewer rows than they are asked for, without saying so."""
    return len(rows) >= MAX_ROWS or (len(rows) > 0 and len(rows) % SUSPECT == 0)
