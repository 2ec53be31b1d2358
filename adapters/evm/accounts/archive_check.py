"""Check that a node returns the state of the requested block.

Some nodes return their newest state for every block. The nonce of a transaction's sender is higher after its block
than before. The check reads a few blocks with transactions, once per endpoint. A node that gives equal nonces before
and after all of them has no past state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chainfolio.adapters.evm.forms import Address, Height
from chainfolio.adapters.evm.hexadecimal import quantity
from chainfolio.adapters.evm.node import hex_of
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

CAPABILITY = "past"  # 1: the endpoint's state follows the requested block
SAMPLE_COUNT = 4  # of the newest blocks of a span, and of blocks spread over it
NONCE_TYPES = frozenset(("0x0", "0x1", "0x2", "0x3", "0x4"))  # transactions that raise the nonce of their sender
REASON = "the node says the same nonces before and after blocks in which they rose"


class _Sender(msgspec.Struct):
    """The fields of a transaction that the check needs."""

    sender: Address = msgspec.field(name="from")
    type: Height = "0x0"


async def check_past_state(endpoint: Endpoint, span: Span) -> None:
    """Check that an endpoint has past state, with some blocks of a span; a success is remembered.

    Refused reads, and a span without usual transactions, prove nothing and pass.

    Raises:
        HistoryUnavailable: The endpoint ignores which block is requested.
        SourceError: The endpoint does not answer, or an answer is malformed.
    """
    if endpoint.capabilities.get(CAPABILITY):
        return
    senders = await _senders(endpoint, span)
    requests = [
        Request("eth_getTransactionCount", (sender, hex_of(at)))
        for height, sender in senders
        for at in (height - 1, height)
    ]
    answers = await endpoint.ask(requests, height=span.first) if requests else []
    results = [each for each in answers if isinstance(each, bytes)]
    if not results or len(results) < len(requests):
        return
    nonces = [quantity(endpoint.name, typed(endpoint.name, each, str)) for each in results]
    if all(before == after for before, after in zip(nonces[::2], nonces[1::2], strict=True)):
        raise HistoryUnavailable(endpoint.name, senders[0][0], REASON)
    endpoint.learn(CAPABILITY, 1)


async def _senders(endpoint: Endpoint, span: Span) -> Sequence[tuple[int, str]]:
    """Return some blocks of a span by height, each with the sender of one of its first two transactions.

    Blocks that are refused or have no usual transaction are left out.
    """
    newest = range(max(1, span.last - SAMPLE_COUNT + 1), span.last + 1)
    spread = (span.first + (span.last - span.first) * k // SAMPLE_COUNT for k in range(1, SAMPLE_COUNT))
    heights = sorted({*newest, *(each for each in spread if each > 0)})
    locations = [(height, index) for height in heights for index in ("0x0", "0x1")]
    requests = [
        Request("eth_getTransactionByBlockNumberAndIndex", (hex_of(height), index)) for height, index in locations
    ]
    senders: dict[int, str] = {}
    for answer, (height, _) in zip(await endpoint.ask(requests, height=span.first), locations, strict=True):
        if isinstance(answer, SourceError) or answer == b"null":
            continue
        transaction = typed(endpoint.name, answer, _Sender)
        if transaction.type in NONCE_TYPES:
            senders[height] = transaction.sender
    return sorted(senders.items())
