"""The filter of indexed ranges that stands for one account."""

from __future__ import annotations

from typing import Final

ACCOUNT: Final = "account:"


def account_filter(address: str) -> str:
    """Return the filter of an account, from its canonical address."""
    return ACCOUNT + address


def account_of(filter_: str) -> str | None:
    """Return the account of an account filter; None for a filter of a contract, of an event, or of all."""
    return filter_.removeprefix(ACCOUNT) if filter_.startswith(ACCOUNT) else None
