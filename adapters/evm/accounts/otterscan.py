"""Find active blocks with the transaction search of Erigon and compatible nodes (`ots_search…`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from chainfolio.adapters.evm.accounts.active_blocks import ActiveBlocks, freeze
from chainfolio.adapters.evm.forms import Hash, Height, Status
from chainfolio.adapters.evm.node import results_of
from chainfolio.blocks import Span
from chainfolio.errors import UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

METHOD = "ots"
PAGE_SIZE = 25  # transactions: the most that Erigon gives
MAX_TRANSACTIONS = 5_000  # of a window


class _Transaction(msgspec.Struct):
    hash: Hash
    blockNumber: Height


class _Receipt(msgspec.Struct):
    transactionHash: Hash
    status: Status | None = None


class _Page(msgspec.Struct):
    """Transactions near a height. `firstPage` marks the page with the newest transactions."""

    txs: list[_Transaction]
    receipts: list[_Receipt]
    firstPage: bool


async def find_active_blocks(endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> ActiveBlocks:
    """Find the active blocks from the start of a span, up to about `MAX_TRANSACTIONS` transactions.

    The window ends earlier if there are more. Failed transactions need no traces.

    Raises:
        UnsupportedMethod: The endpoint has no such search, or its pages contradict each other.
    """
    tx_hashes: defaultdict[int, set[str]] = defaultdict(set)
    failed: set[str] = set()
    searched = dict.fromkeys(accounts, span.first - 1)
    while pending := [each for each in accounts if searched[each] < span.last]:
        params = [(each, max(0, searched[each]), PAGE_SIZE) for each in pending]
        pages = await results_of(endpoint, [Request("ots_searchTransactionsAfter", each) for each in params])
        for account, answer in zip(pending, pages, strict=True):
            page = typed(endpoint.name, answer, _Page)
            failed.update(each.transactionHash.lower() for each in page.receipts if each.status == "0x0")
            for transaction in page.txs:
                tx_hashes[int(transaction.blockNumber, 16)].add(transaction.hash.lower())
            searched[account] = _last_searched(endpoint.name, page, searched[account], span)
        if sum(map(len, tx_hashes.values())) > MAX_TRANSACTIONS:  # later blocks are left to the next window
            span = Span(span.first, max(span.first, min(searched.values())))
    heights = tuple(height for height in sorted(tx_hashes) if height in span)
    traced_hashes = {height: tx_hashes[height] - failed for height in heights}
    hashes = freeze({height: tx_hashes[height] for height in heights})
    return ActiveBlocks(span, METHOD, heights, freeze(traced_hashes), tx_hashes=hashes)


def _last_searched(source: str, page: _Page, previous: int, span: Span) -> int:
    """Return the height up to which an account's transactions are known after a page.

    A full page never counts as the newest one, whatever `firstPage` says.

    Raises:
        UnsupportedMethod: The page contradicts the page before, so that another search method is needed.
    """
    if page.firstPage and len(page.txs) < PAGE_SIZE:
        return span.last
    if not page.txs:
        raise UnsupportedMethod(source, "gives an empty page of transactions, and says that there are newer ones")
    highest = max(int(each.blockNumber, 16) for each in page.txs)
    if highest <= previous:
        raise UnsupportedMethod(source, "gives a page of transactions that does not go on where the last one ended")
    return highest
