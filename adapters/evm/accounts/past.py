"""Whether a node gives the state of the block that it is asked for: some give that of their newest one for every block.

Who sends a transaction has a higher nonce after its block than before it. Some blocks with transactions are looked at,
once for each endpoint; a node that says the same before and after all of them knows no past.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.evm.forms import Address, Height
from adapters.evm.hexadecimal import quantity
from adapters.evm.node import hex_of
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, SourceError
from transport.endpoint import Endpoint
from transport.wire import Request, typed

PAST = "past"  # learnt of an endpoint: its state follows the block that is named
TRIED = 4  # of the newest blocks of a span, and of all of it
ORDINARY = frozenset(("0x0", "0x1", "0x2", "0x3", "0x4"))  # types of transactions that count the nonce of who sent them
WHY = "the node says the same nonces before and after blocks in which they rose"


class _Sent(msgspec.Struct):
    """Who sent a transaction."""

    sender: Address = msgspec.field(name="from")
    type: Height = "0x0"


async def check(endpoint: Endpoint, span: Span) -> None:
    """HistoryUnavailable where an endpoint ignores which block it is asked about; what is refused shows nothing."""
    if endpoint.capabilities.get(PAST):
        return
    places = await _senders(endpoint, span)
    reads = [
        Request("eth_getTransactionCount", (sender, hex_of(at)))
        for height, sender in places for at in (height - 1, height)
    ]  # fmt: skip
    told = [each for each in await endpoint.ask(reads, height=span.first) if isinstance(each, bytes)] if reads else []
    if not told or len(told) < len(reads):
        return
    nonces = [quantity(endpoint.name, typed(endpoint.name, each, str)) for each in told]
    if all(before == after for before, after in zip(nonces[::2], nonces[1::2], strict=True)):
        raise HistoryUnavailable(endpoint.name, places[0][0], WHY)
    endpoint.learn(PAST, 1)


async def _senders(endpoint: Endpoint, span: Span) -> Sequence[tuple[int, str]]:
    """Some blocks of a span, each with who sent one of its first transactions."""
    newest = range(max(1, span.last - TRIED + 1), span.last + 1)
    spread = (span.first + (span.last - span.first) * k // TRIED for k in range(1, TRIED))
    heights = sorted({*newest, *(each for each in spread if each > 0)})
    reads = [
        Request("eth_getTransactionByBlockNumberAndIndex", (hex_of(height), index))
        for height in heights for index in ("0x0", "0x1")
    ]  # fmt: skip
    found: dict[int, str] = {}
    for answer, height in zip(
        await endpoint.ask(reads, height=span.first), (each for each in heights for _ in (0, 1)), strict=True
    ):
        if isinstance(answer, SourceError) or answer == b"null":
            continue
        sent = typed(endpoint.name, answer, _Sent)
        if sent.type in ORDINARY:
            found[height] = sent.sender
    return sorted(found.items())
