"""Blocks in which accounts were active, as each search method returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chainfolio.adapters.evm.accounts.search import Change
from chainfolio.blocks import Span


@dataclass(frozen=True, slots=True)
class AccountState:
    """Nonce and native coins (raw) of an account after a block."""

    nonce: int
    coins: int


@dataclass(frozen=True, slots=True)
class ActiveBlocks:
    """The blocks of a span in which some accounts were active.

    Attributes:
        span: The searched blocks, which may end before the requested span.
        method: The search method: `trace_filter`, `ots`, `explorer` or `state`.
        heights: The blocks, in order.
        traced_hashes: By height, the transactions whose calls may have moved coins of the accounts.
        changes: The state changes that were found; only from a search by state.
        contracts: The accounts with code, for which a search by state can miss transfers.
        unproven: The accounts that may have been contracts and destroyed themselves: it can miss their transfers, too.
        tx_hashes: By height, all transactions of the accounts; None if whole blocks must be read.
    """

    span: Span
    method: str
    heights: tuple[int, ...]
    traced_hashes: Mapping[int, frozenset[str]] = field(default_factory=dict)
    changes: tuple[Change[AccountState], ...] = ()
    contracts: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    tx_hashes: Mapping[int, frozenset[str]] | None = None


def freeze(hashes: Mapping[int, set[str]]) -> dict[int, frozenset[str]]:
    """Return sets of hashes by height as frozen sets."""
    return {height: frozenset(each) for height, each in hashes.items()}
