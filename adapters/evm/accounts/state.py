"""Find active blocks from past state: the blocks that changed nonce or native coins of an account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.adapters.evm.accounts import archive_check
from chainfolio.adapters.evm.accounts.active_blocks import AccountState, ActiveBlocks
from chainfolio.adapters.evm.accounts.search import Change, Probe, find_changes
from chainfolio.adapters.evm.endpoint import OTHER_UNITS
from chainfolio.adapters.evm.hexadecimal import quantity
from chainfolio.adapters.evm.node import hex_of, results_of
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError
from chainfolio.transport import metering
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

METHOD = "state"
MAX_BATCH = 1_000  # calls of one request, if the endpoint accepts so many
MAX_CHANGES = 5_000  # of a window
BUDGETED_CALLS = 4  # of a round, per request left in a budget, until the endpoint's batch size is known
CALLS_PER_CHANGE, CALLS_PER_HINTED_CHANGE = 16, 6  # estimates for one change; less near heights that logs name
MAX_FOREIGN_HEIGHTS = 16  # hints accepted above twice the number of own transactions
STATE_METHODS = ("eth_getTransactionCount", "eth_getBalance")
NO_CODE = "0x"
DELEGATION = "0xef0100"  # how the code of an account begins that delegates to a contract (EIP-7702)


async def find_active_blocks(
    endpoint: Endpoint,
    span: Span,
    accounts: Sequence[str],
    hashes: Mapping[int, str],
    actor_heights: Mapping[str, Sequence[int]] | None = None,
) -> ActiveBlocks:
    """Find the blocks of a window in which the accounts' state changed.

    The window ends after about MAX_CHANGES changes, or earlier on a budget. Without `hashes`, the endpoint must have
    past state (`check_past_state`), and accounts are read for which the search may lack changes.

    Args:
        endpoint: The endpoint whose state is read.
        span: The blocks to search; the window starts with the first of them.
        accounts: Addresses in lower case.
        hashes: Block hashes by height, for blocks that are not final.
        actor_heights: Heights at which logs name an account as the actor: its state probably changed there.

    Raises:
        HistoryUnavailable: The endpoint does not have such state.
        BadAnswer: The nonce of an account without code falls.
    """

    async def read(probes: Sequence[Probe]) -> list[AccountState]:
        return await read_states(endpoint, probes, hashes)

    def max_changes() -> int:
        """Return how many changes half of the budget pays for; the other half is for reading their blocks."""
        calls = CALLS_PER_HINTED_CHANGE if actor_heights and any(actor_heights.values()) else CALLS_PER_CHANGE
        affordable = metering.affords(2 * calls / batch_size(endpoint) + 0.2, 4 * OTHER_UNITS * calls)
        return max(1, int(min(MAX_CHANGES, affordable)))

    def likely_heights(account: str, before: AccountState, after: AccountState) -> Sequence[int]:
        """Return the account's hints; none if most must be forged: anyone can emit logs that name it."""
        heights = (actor_heights or {}).get(account, ())
        return heights if len(heights) <= 2 * (after.nonce - before.nonce) + MAX_FOREIGN_HEIGHTS else ()

    if not hashes:
        await archive_check.check_past_state(endpoint, span)
    window, changes = await find_changes(
        read,
        accounts,
        span,
        batch_size=lambda: batch_size(endpoint),
        max_changes=max_changes,
        likely_heights=likely_heights,
    )
    await _check_falls(endpoint, [each for each in changes if each.after.nonce < each.before.nonce], hashes)
    heights = tuple(sorted({each.height for each in changes}))
    if hashes:
        return ActiveBlocks(window, METHOD, heights, changes=tuple(changes))
    contracts = await accounts_with_code(endpoint, window.last, accounts, hashes)
    others = [each for each in accounts if each not in contracts]
    unproven = await _possible_contracts(endpoint, window.last, others) if others else ()
    return ActiveBlocks(window, METHOD, heights, changes=tuple(changes), contracts=contracts, unproven=unproven)


async def _check_falls(endpoint: Endpoint, falls: Sequence[Change[AccountState]], hashes: Mapping[int, str]) -> None:
    """Check that accounts whose nonce fell had code before: only contracts may destroy themselves.

    Raises:
        BadAnswer: One had no code.
        SourceError: The endpoint refused a call.
    """
    calls = [("eth_getCode", (each.account, each.height - 1)) for each in falls]
    codes = await _results(endpoint, calls, hashes) if calls else []
    for each, code in zip(falls, codes, strict=True):
        if code == NO_CODE:
            reason = f"the nonce of {each.account} is lower after block {each.height} than before"
            raise BadAnswer(endpoint.name, reason)


async def _possible_contracts(endpoint: Endpoint, height: int, accounts: Sequence[str]) -> tuple[str, ...]:
    """Return those of some accounts without code at a height that may have been contracts before it.

    A contract that destroyed itself has no nonce and no coins. An account that ever sent a transaction, up to now,
    never was a contract; neither was one with a delegation. One that has coins now is a wallet that only received.

    Raises:
        SourceError: The endpoint refused a call.
    """
    nonces = await _results(endpoint, [("eth_getTransactionCount", (each, height)) for each in accounts], {})
    unused = [each for each, nonce in zip(accounts, nonces, strict=True) if not quantity(endpoint.name, nonce)]
    methods = (*STATE_METHODS, "eth_getCode")
    requests = [Request(method, (each, "latest")) for each in unused for method in methods]
    answers = iter(await results_of(endpoint, requests) if requests else ())
    possible = []
    for account, nonce, coins, code in zip(unused, answers, answers, answers, strict=True):
        was_used = any(quantity(endpoint.name, typed(endpoint.name, each, str)) for each in (nonce, coins))
        current_code = typed(endpoint.name, code, str)
        if not was_used or not (current_code == NO_CODE or current_code.startswith(DELEGATION)):
            possible.append(account)
    return tuple(possible)


def batch_size(endpoint: Endpoint, calls_per_probe: int = len(STATE_METHODS)) -> int:
    """Return how many probes go into one request; fewer on a budget while the endpoint's limit is unknown."""
    calls = (
        MAX_BATCH if "max_batch" in endpoint.capabilities else min(MAX_BATCH, metering.affords(1 / BUDGETED_CALLS, 1))
    )
    return max(2, int(min(calls, endpoint.capabilities.get("max_batch", calls)))) // calls_per_probe


async def accounts_with_code(
    endpoint: Endpoint, height: int, accounts: Sequence[str], hashes: Mapping[int, str]
) -> tuple[str, ...]:
    """Return the accounts, of at least one, that have code at a height.

    The block is named by its hash if `hashes` has one for the height.

    Raises:
        SourceError: The endpoint refused a call.
    """
    codes = await _results(endpoint, [("eth_getCode", (each, height)) for each in accounts], hashes)
    return tuple(each for each, code in zip(accounts, codes, strict=True) if code != NO_CODE)


async def read_states(endpoint: Endpoint, probes: Sequence[Probe], hashes: Mapping[int, str]) -> list[AccountState]:
    """Read nonce and native coins of accounts at heights, in order.

    Raises:
        SourceError: The endpoint refused a call.
    """
    results = await _results(endpoint, [(method, probe) for probe in probes for method in STATE_METHODS], hashes)
    numbers = [quantity(endpoint.name, each) for each in results]
    return [AccountState(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


async def read_coins(endpoint: Endpoint, probes: Sequence[Probe]) -> list[int]:
    """Read the native coins (raw) of accounts at final heights, in order.

    Raises:
        SourceError: The endpoint refused a call.
    """
    results = await _results(endpoint, [("eth_getBalance", probe) for probe in probes], {})
    return [quantity(endpoint.name, each) for each in results]


async def _results(endpoint: Endpoint, calls: Sequence[tuple[str, Probe]], hashes: Mapping[int, str]) -> list[str]:
    """Return the results of calls at heights as texts, in order; `calls` are not empty.

    Raises:
        HistoryUnavailable: The endpoint lacks the state; heights up to this one are not requested again.
        SourceError: Another call failed.
    """
    lowest = min(height for _, (_, height) in calls)
    if lowest <= endpoint.lacks_state_at:
        raise HistoryUnavailable(endpoint.name, lowest, "it said so before")
    requests = [Request(method, (account, _block_tag(height, hashes))) for method, (account, height) in calls]
    results = []
    for answer, (_, (_, height)) in zip(await endpoint.ask(requests, height=lowest), calls, strict=True):
        if isinstance(answer, HistoryUnavailable):
            endpoint.lacks_state_at = max(endpoint.lacks_state_at, height)
        if isinstance(answer, SourceError):
            raise answer
        results.append(typed(endpoint.name, answer, str))
    return results


def _block_tag(height: int, hashes: Mapping[int, str]) -> str | dict[str, str]:
    return {"blockHash": hashes[height]} if height in hashes else hex_of(height)
