"""Read accounts consistently at one slot.

Every answer names the slot at which it was read. While the slots differ, the requests with older answers are repeated.
An answer that is the same at two slots is taken to hold between them, so that busy endpoints also become consistent.
Answers that never become consistent are an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard, TypeVar

import msgspec

from chainfolio.adapters.solana.account_requests import at_slot
from chainfolio.adapters.solana.forms import AddressedAccount, Plain
from chainfolio.adapters.solana.layouts import STAKE
from chainfolio.adapters.solana.node import Node, ask_each
from chainfolio.adapters.solana.parsing import slot_and_content
from chainfolio.errors import BadAnswer, NodeBehind, ResponseTooLarge, SourceError, Unavailable, UnsupportedMethod
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed

T = TypeVar("T")
MAX_ATTEMPTS: Final = 8
PAUSE_S: Final = 0.1


@dataclass(slots=True)
class StableResponse:
    """The content of a response, which was the same at the slots `first` to `last`."""

    first: int
    last: int
    content: Any

    def updated(self, slot: int, content: object) -> StableResponse:
        """Return the response after one more answer. A different answer of an older slot is ignored."""
        if content == self.content:
            return StableResponse(min(self.first, slot), max(self.last, slot), content)
        return StableResponse(slot, slot, content) if slot > self.last else self


@dataclass(slots=True)
class ConsistentRead:
    """Requests that are repeated until all of their responses hold at one slot.

    Attributes:
        requests: All requests.
        responses: The last response of each request.
        refusals: Searches that the endpoint does not serve.
        clocks: The clock accounts in the answers, by slot.
        tolerates_failures: True if failed searches are refusals; otherwise a temporary failure is an error.
    """

    requests: Sequence[Request]
    responses: dict[Request, StableResponse] = field(default_factory=dict)
    refusals: dict[Request, SourceError] = field(default_factory=dict)
    clocks: dict[int, Plain] = field(default_factory=dict)
    tolerates_failures: bool = False

    @property
    def slot(self) -> int | None:
        """The newest slot at which all responses hold; None if there is none."""
        if len(self.responses) + len(self.refusals) < len(self.requests):
            return None
        newest = min(response.last for response in self.responses.values())
        return newest if all(response.first <= newest for response in self.responses.values()) else None

    def pending(self) -> list[Request]:
        """Return the requests that have no response yet, or one of an older slot than the newest."""
        newest = max((response.last for response in self.responses.values()), default=0)
        served = [request for request in self.requests if request not in self.refusals]
        return [each for each in served if each not in self.responses or self.responses[each].last < newest]

    def add(self, source: str, request: Request, answer: Answer) -> None:
        """Store an answer. For NodeBehind nothing is stored, so that the request is sent again.

        Raises:
            SourceError: The answer is another error, and no tolerated search.
            BadAnswer: It has another shape, or no clock.
        """
        if is_tolerated(answer, request, self.tolerates_failures):
            self.refusals[request] = answer
            self.responses.pop(request, None)
            return
        if isinstance(answer, NodeBehind):
            return
        if isinstance(answer, SourceError):
            raise answer
        slot, raw = slot_and_content(source, answer)
        content: object = raw
        if request.method == "getMultipleAccounts":
            *accounts, clock = accounts_in(source, raw, len(request.params[0]))
            if clock is None:
                raise BadAnswer(source, "does not know what time it is on the chain")
            self.clocks[slot], content = clock, accounts
        elif is_search(request) and request.params[0] != STAKE:
            content = addresses_in(source, raw, request.params[0])
        previous = self.responses.get(request)
        self.responses[request] = previous.updated(slot, content) if previous else StableResponse(slot, slot, content)


async def read_until_consistent(node: Node, endpoint: Endpoint, read: ConsistentRead, min_slot: int) -> int:
    """Send the requests of `read` until it is consistent, with pauses in between, and return its slot.

    Args:
        node: The endpoints.
        endpoint: The one that is asked.
        read: The requests; their responses are stored in it.
        min_slot: The oldest acceptable slot.

    Raises:
        Unavailable: The responses did not become consistent in `MAX_ATTEMPTS` attempts.
        SourceError: A request failed, except for a tolerated search and for NodeBehind.
    """
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            await node.environment.clock.sleep(PAUSE_S * attempt * (1 + node.environment.random.random()))
        newest = max([min_slot, *(response.last for response in read.responses.values())])
        pending = read.pending()
        requests = [at_slot(request, node.commitment, newest) for request in pending]
        answers = await send(endpoint, requests, newest, separate_searches=read.tolerates_failures)
        for request, answer in zip(pending, answers, strict=True):
            read.add(endpoint.name, request, answer)
        if (slot := read.slot) is not None and slot >= min_slot:
            return slot
    raise Unavailable(endpoint.name, f"its answers are of different slots, {MAX_ATTEMPTS} times in a row")


async def tolerate_failed_searches(node: Node, has_searches: bool, read: Callable[[Endpoint, bool], Awaitable[T]]) -> T:
    """Run `read` at any endpoint; if all fail and it has searches, run it again and tolerate them.

    Searches are what endpoints fail at first, and a failed search says nothing about other searches or balances.

    Args:
        node: The endpoints.
        has_searches: True if `read` searches for accounts.
        read: Takes an endpoint, and True if it must tolerate failed searches.
    """
    try:
        return await node.with_any(lambda endpoint: read(endpoint, False), kind="state")
    except Unavailable:
        if not has_searches:
            raise
    return await node.with_any(lambda endpoint: read(endpoint, True), kind="state")


async def send(
    endpoint: Endpoint, requests: Sequence[Request], height: int, *, separate_searches: bool
) -> list[Answer]:
    """Send requests and return an answer or error for each, in order.

    With `separate_searches`, each search is sent by itself, so that it cannot fail the others.
    """
    alone = [separate_searches and is_search(request) for request in requests]
    if not any(alone):
        return await ask_each(endpoint, requests, height=height)
    batch = [request for request, is_alone in zip(requests, alone, strict=True) if not is_alone]
    batch_answers = iter(await ask_each(endpoint, batch, height=height))
    searches = [
        _send_alone(endpoint, request, height) for request, is_alone in zip(requests, alone, strict=True) if is_alone
    ]
    search_answers = iter(await asyncio.gather(*searches))
    return [next(search_answers if is_alone else batch_answers) for is_alone in alone]


async def _send_alone(endpoint: Endpoint, request: Request, height: int) -> Answer:
    """Send one request by itself; return its answer, or its SourceError in place of one."""
    try:
        return await endpoint.ask_one(request, height=height)
    except SourceError as error:
        return error


def is_search(request: Request) -> bool:
    """Return True if a request searches for accounts of a program."""
    return request.method == "getProgramAccounts"


def is_tolerated(answer: Answer, request: Request, tolerates_failures: bool) -> TypeGuard[SourceError]:
    """Return True if a search failed and the other answers can be used without it."""
    is_failure = isinstance(answer, UnsupportedMethod | ResponseTooLarge) or (
        tolerates_failures and isinstance(answer, Unavailable)
    )
    return is_failure and is_search(request)


def accounts_in(source: str, content: msgspec.Raw, count: int) -> list[Plain | None]:
    """Return the accounts in an answer, in order; None for accounts that do not exist.

    Raises:
        BadAnswer: There are not `count` of them.
    """
    accounts = typed(source, content, list[Plain | None])
    if len(accounts) != count:
        raise BadAnswer(source, f"{len(accounts)} accounts in answer to {count}")
    return accounts


def addresses_in(source: str, content: msgspec.Raw, program: str) -> tuple[str, ...]:
    """Return the sorted addresses in the answer to a search.

    Raises:
        BadAnswer: An account belongs to another program, or comes twice.
    """
    accounts = typed(source, content, list[AddressedAccount[Plain]])
    if any(each.account.owner != program for each in accounts):
        raise BadAnswer(source, f"an account of another program among those of {program}")
    addresses = sorted({each.pubkey for each in accounts})
    if len(addresses) != len(accounts):
        raise BadAnswer(source, f"the same account of {program} twice")
    return tuple(addresses)
