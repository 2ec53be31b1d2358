"""Find the blocks whose events have some accounts in their keys, by the pages of `starknet_getEvents`.

Nodes can filter events by keys, but not by data. An account is the first or second key after the name of the event, or
the third if an operator comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
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

    Returns:
        The searched part of the span, from its start, and the transactions in it.

    Raises:
        Reorged: An event is in another block than `block_hashes` has.
        SourceError: The node could not be searched.
    """
    search = _Search(endpoint, block_hashes)
    for first in range(0, len(accounts), MAX_ACCOUNTS):
        for key_filter in KEY_FILTERS:
            span = await search.search_filter(span, key_filter, accounts[first : first + MAX_ACCOUNTS])
    return span, {height: hashes for height, hashes in search.hashes.items() if height in span}


@dataclass(frozen=True, slots=True)
class _Search:
    """A search of one node. Methods add to `hashes`, and return the searched part of their span."""

    endpoint: Endpoint
    block_hashes: BlockHashes
    hashes: HashesByHeight = field(default_factory=dict)

    async def search_filter(self, span: Span, key_filter: KeyFilter, accounts: Sequence[str]) -> Span:
        """Search by one filter, and return the searched part of the span, from its start.

        If an answer is too large, pages become smaller (which is learned), then accounts and at last blocks become
        fewer.

        Raises:
            ResponseTooLarge: The answer about one block and one account is still too large.
        """
        while True:
            try:
                return await self._read_pages(span, key_filter, accounts)
            except ResponseTooLarge:
                size, middle = self.endpoint.capabilities.get(PAGE_CAPABILITY, PAGE_SIZE), len(accounts) // 2
                if size > MIN_PAGE_SIZE:
                    self.endpoint.learn(PAGE_CAPABILITY, size // 4)
                elif middle:
                    span = await self.search_filter(span, key_filter, accounts[:middle])
                    return await self.search_filter(span, key_filter, accounts[middle:])
                elif len(span) > 1:
                    span = Span(span.first, span.first + len(span) // 2 - 1)
                else:
                    raise

    async def _read_pages(self, span: Span, key_filter: KeyFilter, accounts: Sequence[str]) -> Span:
        """Store the hashes of transactions with events of one filter; return the span that was read.

        The span ends early after MAX_BLOCKS blocks with events.
        Raises Reorged for another block hash, BadAnswer for pages without an end.
        """
        endpoint, block_hashes, (position, names) = self.endpoint, self.block_hashes, key_filter
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
                block_hash = block_hashes.get(last)
                if block_hash and (event.block_hash is None or felts[event.block_hash] != block_hash):
                    raise Reorged(endpoint.name, last, block_hash)
                if _matches(felts, event.keys, key_filter, accounts):  # some nodes ignore a part of the filter
                    new_hashes.setdefault(last, set()).add(felts[event.transaction_hash])
            token = page.continuation_token
            if not token or (len(new_hashes) > MAX_BLOCKS and last > span.first):
                for height, hashes in new_hashes.items():
                    self.hashes.setdefault(height, set()).update(hashes)
                return Span(span.first, last - 1) if token else span
            if token in tokens:
                raise BadAnswer(endpoint.name, "lists events in a circle")
            tokens.add(token)
            parameters["continuation_token"] = token
        raise BadAnswer(endpoint.name, "lists events without an end")


def has_account_key(felts: FormattedFelts, events: Sequence[Event], accounts: Collection[str]) -> bool:
    """Return True if a search by one of the filters finds one of these events."""
    return any(_matches(felts, each.keys, key_filter, accounts) for each in events for key_filter in KEY_FILTERS)


def _matches(felts: FormattedFelts, keys: Sequence[str], key_filter: KeyFilter, accounts: Collection[str]) -> bool:
    position, names = key_filter
    return len(keys) > position and felts[keys[0]] in names and felts[keys[position]] in accounts


def _check_height(source: str, event: EmittedEvent, span: Span, last: int) -> int:
    """Return the height of an event; BadAnswer if it is outside of the span, or below `last`."""
    height = event.block_number
    if height is None or height not in span or height < last:
        block = "no block" if height is None else f"block {height}"
        raise BadAnswer(source, f"lists an event of {block} where those from {last} to {span.last} follow")
    return height
