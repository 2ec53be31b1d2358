"""Budgets of requests to nodes: each request is charged before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

from chainfolio.budgets import Budget

_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def charge_to(budget: Budget | None) -> Iterator[None]:
    """Charge requests within the context to a budget if there is one, also those of tasks started in it."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def charge(cost: int) -> None:
    """Charge one request of `cost` units to the current budget; OverBudget if it exceeds the budget.

    Without a budget nothing happens.
    """
    budget = _budget.get()
    if budget is not None:
        budget.charge(1, cost)


def affords(requests_each: float, units_each: float) -> float:
    """Return how many items the current budget still allows, as a fraction; infinity without a budget.

    An item costs `requests_each` requests and `units_each` units.
    """
    budget, count = _budget.get(), inf
    if budget is not None and budget.max_requests is not None:
        count = (budget.max_requests - budget.requests) / requests_each
    if budget is not None and budget.max_units is not None:
        count = min(count, (budget.max_units - budget.units) / units_each)
    return count
