"""Where accounts did something, by nothing but the state of past blocks: their nonces and their native coins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.evm.accounts import past
from adapters.evm.accounts.search import Probe, changes
from adapters.evm.accounts.touched import Status, Touched
from adapters.evm.endpoint import OTHER_UNITS
from adapters.evm.hexadecimal import quantity
from adapters.evm.node import hex_of
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError
from transport import metering
from transport.endpoint import Endpoint
from transport.wire import Request, typed

WAY = "state"
CALLS = 1_000  # of one request, where the node takes so many
MOST = 5_000  # changes of a window
CAREFUL = 4  # calls of a round for each request that is left of a budget, before it is known how many go into one
CALLS_EACH, CALLS_NEAR = 16, 6  # that the search takes for one change, about; near heights that logs name
STRANGERS = 16  # heights more than twice the own transactions at which logs may name an account as the actor
METHODS = ("eth_getTransactionCount", "eth_getBalance")


async def find(
    endpoint: Endpoint,
    span: Span,
    accounts: Sequence[str],
    hashes: Mapping[int, str],
    acts: Mapping[str, Sequence[int]] | None = None,
) -> Touched:
    """The blocks of a window in which the accounts changed.

    Args:
        endpoint: whose state is read.
        span: the window, from its start as far as goes at once.
        accounts: whose blocks are searched.
        hashes: of blocks that may still go, by which they are named.
        acts: heights at which logs name an account as the actor: it probably changed there.

    Raises:
        HistoryUnavailable: the node has no such state.
    """

    async def read(probes: Sequence[Probe]) -> list[Status]:
        return await statuses(endpoint, probes, hashes)

    def most() -> int:
        """Half of a budget is for the search, by what one change of many costs, the other half for the blocks."""
        calls = CALLS_NEAR if acts and any(acts.values()) else CALLS_EACH
        affordable = metering.affords(2 * calls / at_once(endpoint) + 0.2, 4 * OTHER_UNITS * calls)
        return max(1, int(min(MOST, affordable)))

    def near(account: str, before: Status, after: Status) -> Sequence[int]:
        """The heights of its acts, unless most of them must be forged: anybody can write a log that names it."""
        heights = (acts or {}).get(account, ())
        return heights if len(heights) <= 2 * (after.nonce - before.nonce) + STRANGERS else ()

    if not hashes:
        await past.check(endpoint, span)
    window, found = await changes(read, accounts, span, at_once=lambda: at_once(endpoint), most=most, near=near)
    if falls := [each for each in found if each.after.nonce < each.before.nonce]:
        raise BadAnswer(
            endpoint.name, f"the nonce of {falls[0].account} is lower after block {falls[0].height} than before"
        )
    if hashes:
        return Touched(window, WAY, tuple(sorted({each.height for each in found})), changes=tuple(found))
    coded = await with_code(endpoint, window.last, accounts, hashes)
    return Touched(window, WAY, tuple(sorted({each.height for each in found})), changes=tuple(found), coded=coded)


def at_once(endpoint: Endpoint, calls_each: int = len(METHODS)) -> int:
    """How many probes of so many calls go into one request. What is not known to fit is not tried on a budget."""
    calls = min(CALLS, metering.affords(1 / CAREFUL, 1)) if "max_batch" not in endpoint.capabilities else CALLS
    return max(2, int(min(calls, endpoint.capabilities.get("max_batch", calls)))) // calls_each


async def with_code(
    endpoint: Endpoint, height: int, accounts: Sequence[str], hashes: Mapping[int, str]
) -> tuple[str, ...]:
    """Which accounts have code at a height."""
    codes = await _answers(endpoint, [("eth_getCode", (each, height)) for each in accounts], hashes)
    return tuple(each for each, code in zip(accounts, codes, strict=True) if code != "0x")


async def statuses(endpoint: Endpoint, probes: Sequence[Probe], hashes: Mapping[int, str]) -> list[Status]:
    """Accounts at some heights, each by its nonce and its native coins."""
    told = await _answers(endpoint, [(method, probe) for probe in probes for method in METHODS], hashes)
    numbers = [quantity(endpoint.name, each) for each in told]
    return [Status(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


async def coins(endpoint: Endpoint, probes: Sequence[Probe]) -> list[int]:
    """The native coins of accounts at some final heights."""
    told = await _answers(endpoint, [("eth_getBalance", probe) for probe in probes], {})
    return [quantity(endpoint.name, each) for each in told]


async def _answers(endpoint: Endpoint, asked: Sequence[tuple[str, Probe]], hashes: Mapping[int, str]) -> list[str]:
    lowest = min(height for _, (_, height) in asked)
    if lowest <= endpoint.lacks_state_at:
        raise HistoryUnavailable(endpoint.name, lowest, "it said so before")
    reads = [Request(method, (account, _tag(height, hashes))) for method, (account, height) in asked]
    found = []
    for answer, (_, (_, height)) in zip(await endpoint.ask(reads, height=lowest), asked, strict=True):
        if isinstance(answer, HistoryUnavailable):
            endpoint.lacks_state_at = max(endpoint.lacks_state_at, height)
        if isinstance(answer, SourceError):
            raise answer
        found.append(typed(endpoint.name, answer, str))
    return found


def _tag(height: int, hashes: Mapping[int, str]) -> Any:
    return {"blockHash": hashes[height]} if height in hashes else hex_of(height)
