"""In which blocks accounts changed, by the state of past blocks: their nonces, and their balances of some tokens.

An interval whose ends say the same is quiet; the others are halved, all together, until each is one block. A nonce
only rises, so that no transaction is left out. A balance can come back to what it was: intervals end where an account
did something itself, so that only what others both gave and took in between stays unseen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

from chainfolio.adapters.starknet.accounts import number_of
from chainfolio.adapters.starknet.felts import felt
from chainfolio.adapters.starknet.refusals import NoContract
from chainfolio.adapters.starknet.state import Call, Pins
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed

MOST: Final = 1_000  # own transactions of one piece
MOST_INTERVALS: Final = 10_000  # that are looked at together, beside those that a search begins with
S = TypeVar("S")
Read = Callable[[Sequence[tuple[S, int]]], Awaitable[Sequence[int]]]


class TooManyChanges(Exception):
    """More blocks changed something than are looked for at once: fewer blocks may pass."""


@dataclass(frozen=True, slots=True)
class Interval(Generic[S]):
    """What lies behind one height, up to another."""

    of: S
    low: int
    high: int


async def changes(
    read: Read[S],
    intervals: Iterable[Interval[S]],
    check: Callable[[S, int, int], None] = lambda of, change, high: None,
) -> dict[tuple[S, int], int]:
    """Return by how much each block of some intervals changed something, where it did.

    Args:
        read: what things are at some heights.
        intervals: where to look.
        check: called with each change up to a height; it raises if that cannot be.

    Raises:
        TooManyChanges: the search would look at too many intervals together.
    """
    known: dict[tuple[S, int], int] = {}
    found, left = {}, list(intervals)
    most = len(left) + MOST_INTERVALS
    while left:
        ends = dict.fromkeys((each.of, height) for each in left for height in (each.low, each.high))
        new = [each for each in ends if each not in known]
        known.update(zip(new, await read(new), strict=True))
        halves = []
        for each in left:
            change = known[each.of, each.high] - known[each.of, each.low]
            check(each.of, change, each.high)
            if change and each.high - each.low == 1:
                found[each.of, each.high] = change
            elif change:
                middle = (each.low + each.high) // 2
                halves += [Interval(each.of, each.low, middle), Interval(each.of, middle, each.high)]
        if len(halves) > most:
            raise TooManyChanges
        left = halves
    return found


async def transactions(
    endpoint: Endpoint, span: Span, accounts: Sequence[str], pins: Pins
) -> tuple[Span, dict[tuple[str, int], int]]:
    """How many transactions of their own accounts have in the blocks of a span, as far as goes at once. What an
    account did before nonces (version 0) is not counted. The first block of a chain is not seen."""
    read, low, last = partial(nonces, endpoint, pins), max(0, span.first - 1), span.last
    while last - low > 1:
        before, after = [await read([(each, height) for each in accounts]) for height in (low, last)]
        if sum(after) - sum(before) <= MOST:
            break
        last = low + (last - low) // 2

    def check(account: str, change: int, high: int) -> None:
        """Nonces rise: without this, a node that makes them up is asked for every block."""
        if change < 0:
            raise BadAnswer(endpoint.name, f"the nonce of {account} is lower after block {high} than before")

    found = await changes(read, [Interval(each, low, last) for each in accounts if last > low], check)
    return Span(span.first, max(span.first, last)), found


async def moved(
    endpoint: Endpoint, span: Span, accounts: Sequence[str], tokens: Sequence[str], seen: Iterable[int], pins: Pins
) -> set[int]:
    """The blocks of a span, beside those that are seen already, in which balances of accounts changed. TooManyChanges
    where they are too many for one search."""
    low = max(0, span.first - 1)
    gaps = [
        (behind, before)
        for behind, end in pairwise([low, *sorted(set(seen) - {low}), span.last + 1])
        if (before := end - 1) > behind
    ]
    asked = [Interval((who, token), *gap) for who in accounts for token in tokens for gap in gaps]
    return {height for _, height in await changes(partial(balances, endpoint, pins), asked)}


async def nonces(endpoint: Endpoint, pins: Pins, probes: Sequence[tuple[str, int]]) -> list[int]:
    """How many transactions accounts had sent by some heights."""
    asked = [Request("starknet_getNonce", (_at(height, pins), hex(int(who, 16)))) for who, height in probes]
    answers = await _answers(endpoint, asked, [height for _, height in probes])
    return [
        0 if isinstance(each, NoContract) else felt(endpoint.name, typed(endpoint.name, each, str)) for each in answers
    ]


async def balances(endpoint: Endpoint, pins: Pins, probes: Sequence[tuple[tuple[str, str], int]]) -> list[int]:
    """What accounts had of tokens at some heights; nothing of those that were not there yet."""
    asked = [Call(token, "balanceOf", (int(who, 16),)).at(_at(height, pins)) for (who, token), height in probes]
    answers = await _answers(endpoint, asked, [height for _, height in probes])
    return [_balance(endpoint.name, each) for each in answers]


def _at(height: int, pins: Pins) -> Mapping[str, Any]:
    """A block as nodes name it: by its hash where it may still go."""
    return {"block_hash": hex(int(pins[height], 16))} if height in pins else {"block_number": height}


def _balance(source: str, answer: bytes | NoContract) -> int:
    if isinstance(answer, NoContract):
        return 0
    raw = number_of(tuple(felt(source, each) for each in typed(source, answer, list[str])))
    if raw is None:
        raise BadAnswer(source, "a token answers what is no amount")
    return raw


async def _answers(endpoint: Endpoint, asked: Sequence[Request], heights: Sequence[int]) -> list[bytes | NoContract]:
    """What a node says of past blocks. HistoryUnavailable where it has no such state."""
    lowest = min(heights)
    if lowest <= endpoint.lacks_state_at:
        raise HistoryUnavailable(endpoint.name, lowest, "it said so before")
    found: list[bytes | NoContract] = []
    answers: Sequence[Answer] = await endpoint.ask(asked, height=lowest)
    for answer, height in zip(answers, heights, strict=True):
        if isinstance(answer, HistoryUnavailable):
            endpoint.lacks_state_at = max(endpoint.lacks_state_at, height)
        if isinstance(answer, SourceError) and not isinstance(answer, NoContract):
            raise answer
        found.append(answer)
    return found
