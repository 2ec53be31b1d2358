"""Read transactions with the calls of programs, and return the changes of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chainfolio.adapters.solana.call_rules import CallReader
from chainfolio.adapters.solana.node import Node, ask_each
from chainfolio.adapters.solana.positions import Family
from chainfolio.adapters.solana.program_calls import parse_calls
from chainfolio.errors import NodeBehind, SourceError
from chainfolio.position_changes import CallChange
from chainfolio.protocols import InstalledProtocol
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request

OPTIONS: Final = {"encoding": "json", "maxSupportedTransactionVersion": 0}


async def call_changes(
    node: Node, transactions: Sequence[tuple[str, int]], protocols: Sequence[InstalledProtocol]
) -> list[tuple[CallChange, ...] | None]:
    """Return the changes by calls of protocols, as `CallChangeReader.call_changes` defines it.

    Protocols whose families have no rules of instructions are left out.

    Raises:
        NodeBehind: The node lacks a transaction.
        SourceError: One could not be read.
    """
    rules = {
        program: each.family.instructions
        for each in protocols
        if isinstance(each.family, Family) and each.family.instructions
        for program in each.contracts.get(each.family.role, ())
    }

    def changes(source: str, tx_hash: str, answer: Answer) -> tuple[CallChange, ...] | None:
        if isinstance(answer, SourceError):
            raise answer
        if bytes(answer) == b"null":
            raise NodeBehind(source, f"does not have transaction {tx_hash}")
        transaction = parse_calls(source, bytes(answer), rules)
        return None if transaction is None else CallReader(transaction, rules).changes()

    async def read(endpoint: Endpoint) -> list[tuple[CallChange, ...] | None]:
        options = {**OPTIONS, "commitment": node.commitment}
        requests = [Request("getTransaction", (tx_hash, options)) for tx_hash, _ in transactions]
        answers = await ask_each(endpoint, requests, height=max(height for _, height in transactions))
        return [
            changes(endpoint.name, tx_hash, answer) for (tx_hash, _), answer in zip(transactions, answers, strict=True)
        ]

    return await node.with_any(read, kind="lookup") if transactions else []
