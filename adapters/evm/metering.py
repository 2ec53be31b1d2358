"""What is asked of nodes on somebody's budget: whoever has one is charged for every request, before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Final

from adapters.evm.wire import Request
from chainfolio.budgets import Budget

# Compute units of single calls, about as large providers count them; a batch costs what its calls cost.
UNITS: Final = {
    "eth_chainId": 1, "eth_getLogs": 60, "eth_call": 26, "trace_filter": 40, "trace_transaction": 40, "trace_block": 40,
    "debug_traceTransaction": 40, "debug_traceBlockByHash": 40, "debug_traceBlockByNumber": 40, "eth_simulateV1": 40,
}  # fmt: skip
OTHER_UNITS: Final = 20

_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def on(budget: Budget | None) -> Iterator[None]:
    """Everything that is asked meanwhile, in this task and in those that it starts, is charged to a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def units(requests: Sequence[Request]) -> int:
    """What some calls cost."""
    return sum(UNITS.get(request.method, OTHER_UNITS) for request in requests)


def charge(cost: int) -> None:
    """Charge one request; OverBudget where it is more than is left."""
    budget = _budget.get()
    if budget is not None:
        budget.charge(1, cost)


def affords(requests_each: float, units_each: float) -> float:
    """How many of something the budget of the moment allows, by what one costs."""
    budget, most = _budget.get(), inf
    if budget is not None and budget.max_requests is not None:
        most = (budget.max_requests - budget.requests) / requests_each
    if budget is not None and budget.max_units is not None:
        most = min(most, (budget.max_units - budget.units) / units_each)
    return most
