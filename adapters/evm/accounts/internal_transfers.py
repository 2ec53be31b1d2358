"""Read the internal transfers of single transactions, by a method that the endpoint supports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock, coin_transfers, of_traces
from chainfolio.adapters.evm.forms import Address, Word
from chainfolio.adapters.evm.node import Node, results_of
from chainfolio.adapters.evm.traces import CALLS, of_transactions
from chainfolio.errors import BadAnswer, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

CAPABILITY, UNSUPPORTED = "inside", 9
MAX_TRANSACTIONS = 100  # of one request


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """One transaction to trace, by its index in a block."""

    body: Body
    index: int

    @property
    def hash(self) -> str:
        """The transaction's hash."""
        return self.body.tx_hashes[self.index]

    @property
    def height(self) -> int:
        """The height of the block."""
        return self.body.full.height

    @property
    def single_block(self) -> TracedBlock:
        """The block, reduced to this transaction."""
        return replace(self.body.traced_block, transactions=(self.hash,))


class Operation(msgspec.Struct):
    """One transfer in an answer of `ots_getInternalOperations`."""

    sender: Address = msgspec.field(name="from")
    to: Address
    value: Word


class Route(NamedTuple):
    """One method to trace a transaction: its request, and a parser of its answer.

    The parser takes the endpoint's name and the answer as JSON.
    """

    request: Callable[[TraceTarget], Request]
    parse: Callable[[str, bytes, TraceTarget], list[CoinTransfer]]


def _parse_flat(source: str, answer: bytes, target: TraceTarget) -> list[CoinTransfer]:
    return of_traces(source, answer, target.single_block, target.index)


def _parse_frames(source: str, answer: bytes, target: TraceTarget) -> list[CoinTransfer]:
    return of_transactions(source, [answer], target.single_block)


def _parse_operations(source: str, answer: bytes, target: TraceTarget) -> list[CoinTransfer]:
    """Return the coin transfers of an Otterscan answer, without the transaction's own value."""
    operations = typed(source, answer, list[Operation])
    tx = next(each for each in target.body.full.transactions if each.hash.lower() == target.hash)
    value = (tx.sender.lower(), int(tx.value, 16))
    if operations and (operations[0].sender.lower(), int(operations[0].value, 16)) == value:
        operations = operations[1:]  # some nodes list the transaction's own value first
    return [
        transfer
        for each in operations
        for transfer in coin_transfers(source, 0, each.sender, each.to, int(each.value, 16))
    ]


ROUTES: Mapping[int, Route] = {
    1: Route(lambda target: Request("trace_transaction", (target.hash,)), _parse_flat),
    2: Route(lambda target: Request("debug_traceTransaction", (target.hash, CALLS)), _parse_frames),
    3: Route(lambda target: Request("ots_getInternalOperations", (target.hash,)), _parse_operations),
}


async def read_internal_transfers(node: Node, targets: Sequence[TraceTarget]) -> list[list[CoinTransfer]]:
    """Return the internal transfers of each transaction, in order, without the transaction's own value.

    Raises:
        UnsupportedMethod: No endpoint traces transactions.
        HistoryUnavailable: No endpoint has the state that traces need.
        BadAnswer: An endpoint has no traces of a transaction, or wrong ones.
    """

    async def at(endpoint: Endpoint) -> list[list[CoinTransfer]]:
        transfers: list[list[CoinTransfer]] = []
        for start in range(0, len(targets), MAX_TRANSACTIONS):
            transfers += await _read_part(endpoint, targets[start : start + MAX_TRANSACTIONS])
        return transfers

    if not targets:
        return []
    return await node.agreed(
        at,
        key=tuple,
        describe=lambda question: f"the inside of transaction {targets[question].hash}",
        is_final=lambda question: node.is_final(targets[question].height),
        kind="inside",
    )


async def _read_part(endpoint: Endpoint, targets: Sequence[TraceTarget]) -> list[list[CoinTransfer]]:
    """Read by the remembered route, or find and remember one first with the first transaction.

    Raises UnsupportedMethod if there is none, which is remembered, too.
    """
    if not endpoint.capabilities.get(CAPABILITY):
        endpoint.learn(CAPABILITY, await _find_route(endpoint, targets[0]))
    if endpoint.capabilities[CAPABILITY] == UNSUPPORTED:
        raise UnsupportedMethod(endpoint.name, "cannot tell what happens inside transactions")
    return await _read_by_route(endpoint, ROUTES[endpoint.capabilities[CAPABILITY]], targets)


async def _find_route(endpoint: Endpoint, target: TraceTarget) -> int:
    """Return the number of the first route that an endpoint serves for a transaction, else UNSUPPORTED.

    Refusals are noted; other errors are raised.
    """
    for number, route in ROUTES.items():
        try:
            await _read_by_route(endpoint, route, [target])
        except UnsupportedMethod as refusal:
            endpoint.errors.note(refusal)
            continue
        return number
    return UNSUPPORTED


async def _read_by_route(endpoint: Endpoint, route: Route, targets: Sequence[TraceTarget]) -> list[list[CoinTransfer]]:
    """Return the coin transfers inside each transaction; raise BadAnswer if one has no traces."""
    answers = await results_of(endpoint, [route.request(target) for target in targets])
    results = []
    for target, answer in zip(targets, answers, strict=True):
        if answer == b"null":
            raise BadAnswer(endpoint.name, f"has no traces of transaction {target.hash}")
        transfers = await asyncio.to_thread(route.parse, endpoint.name, answer, target)
        results.append([replace(transfer, tx_index=target.index) for transfer in transfers])
    return results
