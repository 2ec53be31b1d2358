"""Lists of the transactions that name an address."""

from __future__ import annotations

from collections.abc import Mapping
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


async def signatures(endpoint: Endpoint, address: str, first_slot: int, last_slot: int) -> list[ListedTransaction]:
    """Read the list of transactions that name an address, from `first_slot` on, the newest first.

    Only an empty page is the end, because endpoints may cut pages anywhere.

    Args:
        endpoint: The endpoint.
        address: The address.
        first_slot: Older transactions are left out.
        last_slot: The final slot up to which the list must be complete. Newer transactions may be listed as well.

    Raises:
        NodeBehind: `last_slot` is not final yet at the endpoint.
        BadAnswer: There are `MAX_PAGES` pages or more, they are not in order, or repeat a transaction.
    """
    listings: list[ListedTransaction] = []
    options: dict[str, object] = {"minContextSlot": last_slot}
    for number in range(MAX_PAGES):
        if listings and listings[-1].slot < first_slot:
            break
        page = await _page(endpoint, address, options)
        if not page and number:  # some nodes leave out what is older than minContextSlot, so the first may be empty
            break
        slots = [each.slot for each in (*listings[-1:], *page)]
        is_repeated = bool(listings) and listings[-1].signature in {each.signature for each in page}
        if slots != sorted(slots, reverse=True) or is_repeated:
            raise BadAnswer(endpoint.name, "lists transactions of an address out of their order")
        listings += page
        options = {"before": listings[-1].signature} if listings else {}
    else:
        raise BadAnswer(
            endpoint.name,
            f"lists transactions of {address} without an end",
            remedy="read it from another node, or begin at a later slot (start_block)",
        )
    if len({each.signature for each in listings}) != len(listings):
        raise BadAnswer(endpoint.name, "lists a transaction of an address twice")
    return [each for each in listings if each.slot >= first_slot]


async def _page(endpoint: Endpoint, address: str, options: Mapping[str, object]) -> list[ListedTransaction]:
    """Read one page of final transactions that name an address."""
    request = Request("getSignaturesForAddress", (address, {"limit": PAGE, **FINAL, **options}))
    return typed(endpoint.name, await endpoint.ask_one(request), list[ListedTransaction])
