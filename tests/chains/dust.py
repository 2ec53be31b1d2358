"""A wallet with and without what strangers send, for every kind of chain: what the property of trust compares.

A kind takes part with an entry in `KINDS` of `tests/chains/test_dust.py`: it reads one honest wallet of its own with a
number of hostile assets of each of its `behaviours` added.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """What an answer cost its node."""

    requests: int
    gas: int = 0


@dataclass(frozen=True)
class Wallet:
    """What an answer says of the wallet: its trusted numbers (balances and prices, by name), whether it is complete,
    how many issues it has; and the work."""

    trusted: Mapping[str, object]
    is_complete: bool
    issue_count: int
    work: Work


Mix = Mapping[str, int]  # how many hostile assets there are of each behaviour


@dataclass(frozen=True)
class DustKind:
    """One kind of chain: what hostile assets can do there, how a wallet with a mix of them is read, and what work they
    may cost beyond that of the clean wallet, which is a function of their number alone."""

    behaviours: Sequence[str]
    read: Callable[[Mix], Coroutine[Any, Any, Wallet]]
    allowance: Callable[[int], Work]
