"""What calls moved inside single transactions, by whichever way an endpoint knows: learnt once, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from adapters.evm.accounts.bodies import Body
from adapters.evm.datasets.internal import Moved, Place, movements, of_traces
from adapters.evm.forms import Address, Word
from adapters.evm.node import Node, results_of
from adapters.evm.traces import CALLS, of_transactions
from chainfolio.errors import BadAnswer, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

ROUTE, NONE = "inside", 9
AT_ONCE = 100  # transactions of one request


@dataclass(frozen=True, slots=True)
class Wanted:
    """One transaction whose inside is asked for."""

    body: Body
    index: int

    @property
    def hash(self) -> str:
        """Its hash."""
        return self.body.names[self.index]

    @property
    def alone(self) -> Place:
        """Its block, as if it had this transaction alone."""
        return replace(self.body.place, transactions=(self.hash,))


class Operation(msgspec.Struct):
    """One movement as `ots_getInternalOperations` tells it."""

    sender: Address = msgspec.field(name="from")
    to: Address
    value: Word


def _flat(source: str, answer: bytes, wanted: Wanted) -> list[Moved]:
    return of_traces(source, answer, wanted.alone, wanted.index)


def _framed(source: str, answer: bytes, wanted: Wanted) -> list[Moved]:
    return of_transactions(source, [answer], wanted.alone)


def _listed(source: str, answer: bytes, wanted: Wanted) -> list[Moved]:
    told = typed(source, answer, list[Operation])
    sent = next(each for each in wanted.body.full.transactions if each.hash.lower() == wanted.hash)
    if told and (told[0].sender.lower(), int(told[0].value, 16)) == (sent.sender.lower(), int(sent.value, 16)):
        told = told[1:]  # some nodes begin with what the transaction itself sent
    return [moved for each in told for moved in movements(source, 0, each.sender, each.to, int(each.value, 16))]


Route = tuple[Callable[[Wanted], Request], Callable[[str, bytes, Wanted], list[Moved]]]
ROUTES: Mapping[int, Route] = {
    1: (lambda each: Request("trace_transaction", (each.hash,)), _flat),
    2: (lambda each: Request("debug_traceTransaction", (each.hash, CALLS)), _framed),
    3: (lambda each: Request("ots_getInternalOperations", (each.hash,)), _listed),
}


async def moved_in(node: Node, asked: Sequence[Wanted]) -> list[list[Moved]]:
    """What moved inside each transaction. Unsupported where no endpoint can tell."""

    async def at(endpoint: Endpoint) -> list[list[Moved]]:
        found: list[list[Moved]] = []
        for start in range(0, len(asked), AT_ONCE):
            found += await _moved(endpoint, asked[start : start + AT_ONCE])
        return found

    if not asked:
        return []
    return await node.agreed(
        at,
        key=tuple,
        asked=lambda question: f"the inside of transaction {asked[question].hash}",
        final=lambda question: node.is_final(asked[question].body.place.height),
        kind="inside",
    )


async def _moved(endpoint: Endpoint, part: Sequence[Wanted]) -> list[list[Moved]]:
    """By the way that is known to work; else by the first that does for one of them."""
    if not endpoint.capabilities.get(ROUTE):
        endpoint.learn(ROUTE, await _route(endpoint, part[0]))
    if endpoint.capabilities[ROUTE] == NONE:
        raise Unsupported(endpoint.name, "cannot tell what happens inside transactions")
    return await _asked(endpoint, ROUTES[endpoint.capabilities[ROUTE]], part)


async def _route(endpoint: Endpoint, one: Wanted) -> int:
    for number, route in ROUTES.items():
        try:
            await _asked(endpoint, route, [one])
        except Unsupported as refusal:
            endpoint.errors.note(refusal)
            continue
        return number
    return NONE


async def _asked(endpoint: Endpoint, route: Route, part: Sequence[Wanted]) -> list[list[Moved]]:
    ask, read = route
    answers = await results_of(endpoint, [ask(each) for each in part])
    found = []
    for each, answer in zip(part, answers, strict=True):
        if answer == b"null":
            raise BadAnswer(endpoint.name, f"has no traces of transaction {each.hash}")
        moves = await asyncio.to_thread(read, endpoint.name, answer, each)
        found.append([replace(moved, tx_index=each.index) for moved in moves])
    return found
