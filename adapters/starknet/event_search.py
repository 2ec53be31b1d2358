"""Find the blocks whose events have some accounts in their keys, by the pages of `starknet_getEvents`.

Nodes can filter events by keys, but not by data. An account is the first or second key after the name of the event, or
the third if an operator comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from chainfolio.adapters.starknet.events import APPROVAL, APPROVAL_FOR_ALL, TRANSFER, TRANSFER_BATCH, TRANSFER_SINGLE
from chainfolio.adapters.starknet.felts import FormattedFelts
from chainfolio.adapters.starknet.forms import Event, Number
from chainfolio.adapters.starknet.state import BlockHashes
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, Reorged, ResponseTooLarge
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

PAGE_SIZE: Final = 1_000
MIN_PAGE_SIZE: Final = 60
MAX_PAGES: Final = 10_000
MAX_ACCOUNTS: Final = 64  # per request
MAX_BLOCKS: Final = 500  # with events; a filter stops at the first page after more of them
PAGE_CAPABILITY: Final = "events_page"  # the page size that an endpoint accepts
KeyFilter = tuple[int, Sequence[str]]  # position of the account in the keys, names of events that have one there
KEY_FILTERS: Final[Sequence[KeyFilter]] = (
    (1, (TRANSFER, APPROVAL, APPROVAL_FOR_ALL)),
    (2, (TRANSFER, APPROVAL, APPROVAL_FOR_ALL, TRANSFER_SINGLE, TRANSFER_BATCH)),
    (3, (TRANSFER_SINGLE, TRANSFER_BATCH)),
)
HashesByHeight = dict[int, set[str]]  # hashes of transactions, by the height of their block


class EmittedEvent(msgspec.Struct):
    """An event with its transaction and block; a pending block has no number and no hash."""

    keys: list[str]
    transaction_hash: str
    block_number: Number | None = None
    block_hash: str | None = None


class EventPage(msgspec.Struct):
    """A page of events. It may be empty and still have a successor, which its token names."""

    events: list[EmittedEvent]
    continuation_token: str | None = None


async def search_events(
    endpoint: Endpoint, span: Span, accounts: Sequence[str], block_hashes: BlockHashes
) -> tuple[Span, HashesByHeight]:
    """Find the transactions whose events have one of some accounts in their keys.

    Args:
        endpoint: The node to search.
        span: The heights to search.
        accounts: The accounts, as formatted felts.
        block_hashes: The expected hashes of blocks that are not final.

    Returns:
        The searched part of the span, from its start, and the transactions in it.

    Raises:
        Reorged: An event is in another block than `block_hashes` has.
        SourceError: The node could not be searched.
    """
    hashes: HashesByHeight = {}
    for first in range(0, len(accounts), MAX_ACCOUNTS):
        for key_filter in KEY_FILTERS:
            part = accounts[first : first + MAX_ACCOUNTS]
            span = await _search_filter(endpoint, span, key_filter, part, block_hashes, hashes)
    return span, {height: each for height, each in hashes.items() if height in span}


async def _search_filter(
    endpoint: Endpoint,
    span: Span,
    key_filter: KeyFilter,
    accounts: Sequence[str],
    block_hashes: BlockHashes,
    hashes: HashesByHeight,
) -> Span:
    """Add the transactions of one filter to `hashes`, and return the searched part of the span.

    If an answer is too large, pages become smaller, then accounts and at last blocks become fewer.
    """
    while True:
        try:
            return await _read_pages(endpoint, span, key_filter, accounts, block_hashes, hashes)
        except ResponseTooLarge:
            size, middle = endpoint.capabilities.get(PAGE_CAPABILITY, PAGE_SIZE), len(accounts) // 2
            if size > MIN_PAGE_SIZE:
                endpoint.learn(PAGE_CAPABILITY, size // 4)
            elif middle:
                span = await _search_filter(endpoint, span, key_filter, accounts[:middle], block_hashes, hashes)
                return await _search_filter(endpoint, span, key_filter, accounts[middle:], block_hashes, hashes)
            elif len(span) > 1:
                span = Span(span.first, span.first + len(span) // 2 - 1)
            else:
                raise


async def _read_pages(
    endpoint: Endpoint,
    span: Span,
    key_filter: KeyFilter,
    accounts: Sequence[str],
    block_hashes: BlockHashes,
    hashes: HashesByHeight,
) -> Span:
    position, names = key_filter
    keys = [[hex(int(each, 16)) for each in part] for part in (names, *[()] * (position - 1), accounts)]
    parameters: dict[str, object] = {
        "from_block": {"block_number": span.first},
        "to_block": {"block_number": span.last},
        "keys": keys,
        "chunk_size": endpoint.capabilities.get(PAGE_CAPABILITY, PAGE_SIZE),
    }
    felts, tokens, new_hashes = FormattedFelts(endpoint.name), set[str](), HashesByHeight()
    last = span.first
    for _ in range(MAX_PAGES):
        answer = await endpoint.ask_one(Request("starknet_getEvents", (parameters,)), height=last)
        page = typed(endpoint.name, answer, EventPage)
        for event in page.events:
            last = _check_height(endpoint.name, event, span, last)
            if last in block_hashes and (event.block_hash is None or felts[event.block_hash] != block_hashes[last]):
                raise Reorged(endpoint.name, last, block_hashes[last])
            # Some nodes also list events with fewer keys than the filter has.
            if len(event.keys) > position and felts[event.keys[0]] in names and felts[event.keys[position]] in accounts:
                new_hashes.setdefault(last, set()).add(felts[event.transaction_hash])
        token = page.continuation_token
        if not token or (len(new_hashes) > MAX_BLOCKS and last > span.first):
            for height, each in new_hashes.items():
                hashes.setdefault(height, set()).update(each)
            return Span(span.first, last - 1) if token else span
        if token in tokens:
            raise BadAnswer(endpoint.name, "lists events in a circle")
        tokens.add(token)
        parameters["continuation_token"] = token
    raise BadAnswer(endpoint.name, "lists events without an end")


def has_account_key(felts: FormattedFelts, events: Sequence[Event], accounts: Collection[str]) -> bool:
    """Return True if a search by one of the filters finds one of these events."""
    return any(
        len(each.keys) > position and felts[each.keys[0]] in names and felts[each.keys[position]] in accounts
        for each in events
        for position, names in KEY_FILTERS
    )


def _check_height(source: str, event: EmittedEvent, span: Span, last: int) -> int:
    """Return the height of an event; BadAnswer if it is outside of the span, or below `last`."""
    height = event.block_number
    if height is None or height not in span or height < last:
        block = "no block" if height is None else f"block {height}"
        raise BadAnswer(source, f"lists an event of {block} where those from {last} to {span.last} follow")
    return height
