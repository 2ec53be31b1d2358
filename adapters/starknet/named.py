"""In which blocks events name some accounts in their keys: what `starknet_getEvents` finds, page by page.

Keys are what nodes can look for; what stands in the data of an event they cannot find. An account is named by the
first or second key behind the name of an event, or by the third, where an operator stands before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from chainfolio.adapters.starknet.events import APPROVAL, BATCH, FOR_ALL, SINGLE, TRANSFER
from chainfolio.adapters.starknet.felts import Padded
from chainfolio.adapters.starknet.forms import Event, Number
from chainfolio.adapters.starknet.state import Pins
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, Reorged, ResponseTooLarge
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

PAGE: Final = 1_000
MIN_PAGE: Final = 60
MAX_PAGES: Final = 10_000
ACCOUNTS: Final = 64  # of one question
ENOUGH: Final = 500  # blocks of one question
LEARNT: Final = "events_page"
# Where the parties of events stand, and which events have one there.
Question = tuple[int, Sequence[str]]
QUESTIONS: Final[Sequence[Question]] = (
    (1, (TRANSFER, APPROVAL, FOR_ALL)),
    (2, (TRANSFER, APPROVAL, FOR_ALL, SINGLE, BATCH)),
    (3, (SINGLE, BATCH)),
)
Places = dict[int, set[str]]  # transactions, by the height of their block


class Listed(msgspec.Struct):
    """An event and where it is; in a block that is only being made it is nowhere."""

    keys: list[str]
    transaction_hash: str
    block_number: Number | None = None
    block_hash: str | None = None


class Page(msgspec.Struct):
    """A part of the events of a question; there are more where it says how to go on, even if it has none itself."""

    events: list[Listed]
    continuation_token: str | None = None


async def named(endpoint: Endpoint, span: Span, accounts: Sequence[str], pins: Pins) -> tuple[Span, Places]:
    """The blocks in which events name some accounts, from the start of a span as far as goes at once. Reorged where an
    event is of another block than `pins` says."""
    found: Places = {}
    for first in range(0, len(accounts), ACCOUNTS):
        for question in QUESTIONS:
            span = await _asked(endpoint, span, question, accounts[first : first + ACCOUNTS], pins, found)
    return span, {height: hashes for height, hashes in found.items() if height in span}


async def _asked(
    endpoint: Endpoint, span: Span, question: Question, accounts: Sequence[str], pins: Pins, found: Places
) -> Span:
    """The answers to one question, and how far they go. Where they are too much: smaller pages, then fewer accounts,
    then fewer blocks."""
    while True:
        try:
            return await _pages(endpoint, span, question, accounts, pins, found)
        except ResponseTooLarge:
            size, half = endpoint.capabilities.get(LEARNT, PAGE), len(accounts) // 2
            if size > MIN_PAGE:
                endpoint.learn(LEARNT, size // 4)
            elif half:
                span = await _asked(endpoint, span, question, accounts[:half], pins, found)
                return await _asked(endpoint, span, question, accounts[half:], pins, found)
            elif len(span) > 1:
                span = Span(span.first, span.first + len(span) // 2 - 1)
            else:
                raise


async def _pages(
    endpoint: Endpoint, span: Span, question: Question, accounts: Sequence[str], pins: Pins, found: Places
) -> Span:
    place, names = question
    keys = [[hex(int(each, 16)) for each in some] for some in (names, *[()] * (place - 1), accounts)]
    wanted: dict[str, Any] = {
        "from_block": {"block_number": span.first},
        "to_block": {"block_number": span.last},
        "keys": keys,
        "chunk_size": endpoint.capabilities.get(LEARNT, PAGE),
    }
    forms, seen, own = Padded(endpoint.name), set[str](), Places()
    last = span.first
    for _ in range(MAX_PAGES):
        page = typed(endpoint.name, await endpoint.ask_one(Request("starknet_getEvents", (wanted,)), height=last), Page)
        for each in page.events:
            last = _height(endpoint.name, each, span, last)
            if last in pins and (each.block_hash is None or forms[each.block_hash] != pins[last]):
                raise Reorged(endpoint.name, last, pins[last])
            said = each.keys  # some nodes list events that have fewer keys than they were asked for, too
            if len(said) > place and forms[said[0]] in names and forms[said[place]] in accounts:
                own.setdefault(last, set()).add(forms[each.transaction_hash])
        token = page.continuation_token
        if not token or (len(own) > ENOUGH and last > span.first):
            for height, hashes in own.items():
                found.setdefault(height, set()).update(hashes)
            return Span(span.first, last - 1) if token else span
        if token in seen:
            raise BadAnswer(endpoint.name, "lists events in a circle")
        seen.add(token)
        wanted["continuation_token"] = token
    raise BadAnswer(endpoint.name, "lists events without an end")


def naming(forms: Padded, events: Sequence[Event], accounts: Collection[str]) -> bool:
    """Whether some of these events name some accounts where a node is asked for them."""
    return any(
        len(each.keys) > place and forms[each.keys[0]] in names and forms[each.keys[place]] in accounts
        for each in events
        for place, names in QUESTIONS
    )


def _height(source: str, each: Listed, span: Span, last: int) -> int:
    """The block of an event: one that was asked for, and none before that of the event before it."""
    height = each.block_number
    if height is None or height not in span or height < last:
        said = "no block" if height is None else f"block {height}"
        raise BadAnswer(source, f"lists an event of {said} where those from {last} to {span.last} follow")
    return height
