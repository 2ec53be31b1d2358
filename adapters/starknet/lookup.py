"""Single transactions by their hashes, compared with their place in the index."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.starknet.felts import Padded
from chainfolio.adapters.starknet.forms import Body, Receipt
from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.transactions import charged, parties
from chainfolio.chains import IndexedTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed


class Placed(Receipt, kw_only=True):
    """A receipt that says in which block its transaction is; one that is only being made has none."""

    block_number: int | None = None
    block_hash: str | None = None


async def look_up(node: Node, known: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
    """What nodes say of transactions that the index knows, in order."""

    async def read(endpoint: Endpoint) -> list[TransactionDetails]:
        hashes = [hex(int(each.tx_hash, 16)) for each in known]
        asked = [
            Request(method, (each,))
            for each in hashes
            for method in ("starknet_getTransactionByHash", "starknet_getTransactionReceipt")
        ]
        answers = await endpoint.ask(asked, height=max(each.height for each in known))
        pairs = zip(known, answers[::2], answers[1::2], strict=True)
        return [_details(endpoint.name, node.facts.fee_unit, each, body, receipt) for each, body, receipt in pairs]

    return await node.with_any(read, kind="lookup") if known else []


def _details(source: str, unit: str, known: IndexedTransaction, body: Answer, receipt: Answer) -> TransactionDetails:
    for answer in (body, receipt):
        if isinstance(answer, BadAnswer) and not known.final:
            raise Reorged(source, known.height, known.block_hash or "")
        if isinstance(answer, BadAnswer):
            raise NodeBehind(source, f"does not have transaction {known.tx_hash}")
        if isinstance(answer, SourceError):
            raise answer
    assert isinstance(body, bytes), "an answer is bytes or an error"
    assert isinstance(receipt, bytes), "an answer is bytes or an error"
    forms, done = Padded(source), typed(source, receipt, Placed)
    hashed = forms[done.transaction_hash]
    if (done.block_number, hashed) != (known.height, known.tx_hash):
        raise BadAnswer(source, f"has transaction {known.tx_hash} elsewhere than the index")
    asked = typed(source, body, Body)
    sender, recipient, created, called = parties(forms, asked, done)
    fee, paid_in = charged(forms.numbers, asked, done)
    return TransactionDetails(sender, recipient, created, 0, fee if paid_in == unit else 0, done.failed, called)
