"""Single transactions by their signatures, compared with their place in the index."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.solana.functions import SELECTOR_SIZE
from adapters.solana.node import Node, ask_each
from adapters.solana.transactions import Found, change
from chainfolio.chains import KnownTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed


async def look_up(node: Node, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
    """What nodes say of transactions that the index knows, in order."""
    options = {"encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": node.commitment}

    async def read(endpoint: Endpoint) -> list[TransactionDetails]:
        asked = [Request("getTransaction", (each.tx_hash, options)) for each in known]
        answers = await ask_each(endpoint, asked, height=max(each.height for each in known))
        return [_details(endpoint.name, each, answer) for each, answer in zip(known, answers, strict=True)]

    return await node.with_any(read, kind="lookup") if known else []


def _details(source: str, known: KnownTransaction, answer: Answer) -> TransactionDetails:
    if isinstance(answer, SourceError):
        raise answer
    found = typed(source, answer, Found | None)  # type: ignore[arg-type]
    if found is None:
        if known.final:
            raise NodeBehind(source, f"does not have transaction {known.tx_hash}")
        raise Reorged(source, known.height, known.block_hash or "")
    changed = change(source, found, found.slot)
    if (found.slot, changed.signature) != (known.height, known.tx_hash):
        raise BadAnswer(source, f"has transaction {known.tx_hash} elsewhere than the index")
    selector = changed.content[:SELECTOR_SIZE] if changed.content else None
    return TransactionDetails(changed.payer, changed.program, None, 0, changed.fee, changed.failed, selector)
