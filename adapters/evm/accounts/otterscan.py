"""Where accounts did something, by the search of Erigon and its kin (`ots_search…`), page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from adapters.evm.accounts.touched import Touched, frozen
from adapters.evm.forms import Hash, Height, Status
from adapters.evm.node import results_of
from chainfolio.blocks import Span
from chainfolio.errors import Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

WAY = "ots"
PAGE = 25  # transactions of a page: the most that Erigon gives
MOST = 5_000  # transactions of a window


class _Sent(msgspec.Struct):
    hash: Hash
    blockNumber: Height


class _Receipt(msgspec.Struct):
    transactionHash: Hash
    status: Status | None = None


class _Page(msgspec.Struct):
    """Transactions around a height; `firstPage` is the newest of all pages."""

    txs: list[_Sent]
    receipts: list[_Receipt]
    firstPage: bool


async def find(endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> Touched:
    """The blocks of a window. Unsupported where the node has no such search."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    failed: set[str] = set()
    reached = dict.fromkeys(accounts, span.first - 1)
    while open_ := [each for each in accounts if reached[each] < span.last]:
        asked = [(each, max(0, reached[each]), PAGE) for each in open_]
        pages = await results_of(endpoint, [Request("ots_searchTransactionsAfter", each) for each in asked])
        for account, answer in zip(open_, pages, strict=True):
            page = typed(endpoint.name, answer, _Page)
            failed.update(each.transactionHash.lower() for each in page.receipts if each.status == "0x0")
            for sent in page.txs:
                found[int(sent.blockNumber, 16)].add(sent.hash.lower())
            reached[account] = _reached(endpoint.name, page, reached[account], span)
        if sum(map(len, found.values())) > MOST:  # the rest is for the next window
            span = Span(span.first, max(span.first, min(reached.values())))
    heights = tuple(height for height in sorted(found) if height in span)
    inside = {height: found[height] - failed for height in heights}
    return Touched(span, WAY, heights, frozen(inside), sent=frozen({height: found[height] for height in heights}))


def _reached(source: str, page: _Page, before: int, span: Span) -> int:
    """Up to which height the transactions of an account are known now. A full page is not the newest one, whatever it
    says of itself. Unsupported where pages contradict each other: another way has to be taken."""
    if page.firstPage and len(page.txs) < PAGE:
        return span.last
    if not page.txs:
        raise Unsupported(source, "gives an empty page of transactions, and says that there are newer ones")
    highest = max(int(each.blockNumber, 16) for each in page.txs)
    if highest <= before:
        raise Unsupported(source, "gives a page of transactions that does not go on where the last one ended")
    return highest
