"""What is asked of nodes on somebody's budget: whoever has one is charged for every request, before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

from chainfolio.budgets import Budget

_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def charge_to(budget: Budget | None) -> Iterator[None]:
    """Everything that is asked meanwhile, in this task and in those that it starts, is charged to a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


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
