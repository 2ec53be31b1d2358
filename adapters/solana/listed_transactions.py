"""Lists of the transactions that name an address."""

from __future__ import annotations

from typing import Final

import msgspec

from chainfolio.adapters.solana.forms import U64
from chainfolio.errors import BadAnswer
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

PAGE: Final = 1000
MAX_PAGES: Final = 10_000  # of the transactions of one address
MAX_PARALLEL: Final = 16  # concurrent requests for transactions
FULL: Final = {"encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": "finalized"}
FINAL: Final = {"commitment": "finalized"}


class ListedTransaction(msgspec.Struct):
    """A transaction as `getSignaturesForAddress` lists it."""

    signature: str
    slot: U64


async def signatures(endpoint: Endpoint, address: str, first_slot: int) -> list[ListedTransaction]:
    """Read the list of transactions that name an address, from `first_slot` on, the newest first.

    Only an empty page is the end, because endpoints may cut pages anywhere.

    Raises:
        BadAnswer: The pages do not end, are not in order, or repeat a transaction.
    """
    listings: list[ListedTransaction] = []
    for _ in range(MAX_PAGES):
        if listings and listings[-1].slot < first_slot:
            break
        options = {"limit": PAGE, **FINAL, **({"before": listings[-1].signature} if listings else {})}
        answer = await endpoint.ask_one(Request("getSignaturesForAddress", (address, options)))
        page = typed(endpoint.name, answer, list[ListedTransaction])
        if not page:
            break
        slots = [each.slot for each in (*listings[-1:], *page)]
        is_repeated = bool(listings) and listings[-1].signature in {each.signature for each in page}
        if slots != sorted(slots, reverse=True) or is_repeated:
            raise BadAnswer(endpoint.name, "lists transactions of an address out of their order")
        listings += page
    else:
        raise BadAnswer(
            endpoint.name,
            f"lists transactions of {address} without an end",
            remedy="read it from another node, or begin at a later slot (start_block)",
        )
    if len({each.signature for each in listings}) != len(listings):
        raise BadAnswer(endpoint.name, "lists a transaction of an address twice")
    return [each for each in listings if each.slot >= first_slot]
