"""Find the blocks in which accounts changed, by their nonces and token balances at past blocks.

An interval with equal values at both ends is left out; all others are halved together until each is one block. Nonces
only rise, so no transaction is missed. A balance can return to its former value: intervals end at the transactions of
the account, so only transfers of other accounts that cancel out in between are missed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Generic, TypeVar

from chainfolio.adapters.starknet.accounts import decode_amount
from chainfolio.adapters.starknet.felts import parse_felt
from chainfolio.adapters.starknet.refusals import NoContract
from chainfolio.adapters.starknet.state import BlockHashes, BlockId, Call
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed

MAX_TRANSACTIONS: Final = 1_000  # of the accounts in one search
MAX_INTERVALS: Final = 10_000  # in one round, in addition to the number at the start of the search
S = TypeVar("S")
ReadValues = Callable[[Sequence[tuple[S, int]]], Awaitable[Sequence[int]]]  # values of subjects at heights


class TooManyChanges(Exception):
    """A search has more than MAX_INTERVALS intervals in one round; a search of fewer blocks may succeed."""


@dataclass(frozen=True, slots=True)
class Interval(Generic[S]):
    """The blocks after height `low` up to height `high`, and the subject whose value may change in them."""

    subject: S
    low: int
    high: int


async def find_changes(
    read: ReadValues[S],
    intervals: Iterable[Interval[S]],
    check: Callable[[S, int, int], None] = lambda subject, change, high: None,
) -> dict[tuple[S, int], int]:
    """Return the changes of values, by subject and height; blocks without a change are left out.

    Args:
        read: Reads the values of subjects at some heights.
        intervals: Subjects with the blocks to search.
        check: Called with subject, change and upper end of each interval; it raises if the change is impossible.

    Raises:
        TooManyChanges: The search has too many intervals in one round.
    """
    values: dict[tuple[S, int], int] = {}
    changes, pending = {}, list(intervals)
    max_intervals = len(pending) + MAX_INTERVALS
    while pending:
        ends = dict.fromkeys((each.subject, height) for each in pending for height in (each.low, each.high))
        new = [each for each in ends if each not in values]
        values.update(zip(new, await read(new), strict=True))
        halves = []
        for each in pending:
            change = values[each.subject, each.high] - values[each.subject, each.low]
            check(each.subject, change, each.high)
            if change and each.high - each.low == 1:
                changes[each.subject, each.high] = change
            elif change:
                middle = (each.low + each.high) // 2
                halves += [Interval(each.subject, each.low, middle), Interval(each.subject, middle, each.high)]
        if len(halves) > max_intervals:
            raise TooManyChanges
        pending = halves
    return changes


async def count_transactions(
    endpoint: Endpoint, span: Span, accounts: Sequence[str], block_hashes: BlockHashes
) -> tuple[Span, dict[tuple[str, int], int]]:
    """Count the transactions that accounts sent, by account and height.

    Transactions of version 0, which have no nonce, and those of the chain's first block are not counted.

    Returns:
        The counted part of the span, from its start, with about MAX_TRANSACTIONS at most; and the counts.

    Raises:
        BadAnswer: A nonce falls from one block to a later one.
        HistoryUnavailable: The node does not have the state of these blocks.
    """
    read, low, last = partial(read_nonces, endpoint, block_hashes), max(0, span.first - 1), span.last
    while last - low > 1:
        before, after = [await read([(each, height) for each in accounts]) for height in (low, last)]
        if sum(after) - sum(before) <= MAX_TRANSACTIONS:
            break
        last = low + (last - low) // 2

    def check(account: str, change: int, high: int) -> None:
        """Raise BadAnswer if a nonce falls: random nonces would make the search read every block."""
        if change < 0:
            raise BadAnswer(endpoint.name, f"the nonce of {account} is lower after block {high} than before")

    counts = await find_changes(read, [Interval(each, low, last) for each in accounts if last > low], check)
    return Span(span.first, max(span.first, last)), counts


async def find_balance_changes(
    endpoint: Endpoint,
    span: Span,
    accounts: Sequence[str],
    tokens: Sequence[str],
    heights: Iterable[int],
    block_hashes: BlockHashes,
) -> set[int]:
    """Return the heights in a span, other than the known `heights`, at which balances are seen to change.

    Changes that cancel out between two known heights are missed.

    Raises:
        TooManyChanges: There are too many changes for one search.
        HistoryUnavailable: The node does not have the state of these blocks.
    """
    low = max(0, span.first - 1)
    gaps = [
        (start, end - 1)
        for start, end in pairwise([low, *sorted(set(heights) - {low}), span.last + 1])
        if end - 1 > start
    ]
    intervals = [Interval((account, token), *gap) for account in accounts for token in tokens for gap in gaps]
    return {height for _, height in await find_changes(partial(read_balances, endpoint, block_hashes), intervals)}


async def read_nonces(endpoint: Endpoint, block_hashes: BlockHashes, probes: Sequence[tuple[str, int]]) -> list[int]:
    """Return the nonces of accounts at heights, 0 before the account is deployed.

    Raises:
        SourceError: A nonce could not be read; HistoryUnavailable if the node lacks the state.
    """
    requests = [
        Request("starknet_getNonce", (_block_id(height, block_hashes), hex(int(account, 16))))
        for account, height in probes
    ]
    source, answers = endpoint.name, await _ask(endpoint, requests, [height for _, height in probes])
    return [0 if isinstance(each, NoContract) else parse_felt(source, typed(source, each, str)) for each in answers]


async def read_balances(
    endpoint: Endpoint, block_hashes: BlockHashes, probes: Sequence[tuple[tuple[str, str], int]]
) -> list[int]:
    """Return the balances of (account, token) pairs at heights, 0 before the token is deployed.

    Raises:
        SourceError: A balance could not be read; HistoryUnavailable if the node lacks the state.
    """
    requests = [
        Call(token, "balanceOf", (int(account, 16),)).request_at(_block_id(height, block_hashes))
        for (account, token), height in probes
    ]
    answers = await _ask(endpoint, requests, [height for _, height in probes])
    return [_balance(endpoint.name, each) for each in answers]


def _block_id(height: int, block_hashes: BlockHashes) -> BlockId:
    """Return the hash of a block that is not final, the height of another one."""
    return {"block_hash": hex(int(block_hashes[height], 16))} if height in block_hashes else {"block_number": height}


def _balance(source: str, answer: bytes | NoContract) -> int:
    """Return the raw balance in an answer, 0 without a contract; BadAnswer if it is no amount."""
    if isinstance(answer, NoContract):
        return 0
    raw = decode_amount(tuple(parse_felt(source, each) for each in typed(source, answer, list[str])))
    if raw is None:
        raise BadAnswer(source, "a token answers what is no amount")
    return raw


async def _ask(endpoint: Endpoint, requests: Sequence[Request], heights: Sequence[int]) -> list[bytes | NoContract]:
    """Return the answers about past blocks, in order; NoContract is one of them, other errors are raised.

    If the node lacks the state of a height, this is stored: lower heights are then not requested again.

    Raises:
        HistoryUnavailable: The node lacks the state of a height.
        SourceError: An answer is another error.
    """
    lowest = min(heights)
    if lowest <= endpoint.lacks_state_at:
        raise HistoryUnavailable(endpoint.name, lowest, "it said so before")
    results: list[bytes | NoContract] = []
    answers: Sequence[Answer] = await endpoint.ask(requests, height=lowest)
    for answer, height in zip(answers, heights, strict=True):
        if isinstance(answer, HistoryUnavailable):
            endpoint.lacks_state_at = max(endpoint.lacks_state_at, height)
        if isinstance(answer, SourceError) and not isinstance(answer, NoContract):
            raise answer
        results.append(answer)
    return results
