"""Where some accounts did something, by whichever way found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.evm.accounts.search import Change
from chainfolio.blocks import Span


@dataclass(frozen=True, slots=True)
class Status:
    """The nonce and the native coins of an account after a block."""

    nonce: int
    coins: int


@dataclass(frozen=True, slots=True)
class Touched:
    """The blocks of a span that concern some accounts. `inside`: transactions whose calls may have moved their coins,
    by height. `changes`: how the accounts themselves changed, where that is how the blocks were found. `coded`: those
    that have code, for which such a search is no proof. `sent`: the transactions that concern the accounts, by height;
    None where the blocks have to be looked through."""

    span: Span
    way: str
    heights: tuple[int, ...]
    inside: Mapping[int, frozenset[str]] = field(default_factory=dict)
    changes: tuple[Change[Status], ...] = ()
    coded: tuple[str, ...] = ()
    sent: Mapping[int, frozenset[str]] | None = None


def frozen(hashes: Mapping[int, set[str]]) -> dict[int, frozenset[str]]:
    """Hashes by height, as they are kept."""
    return {height: frozenset(several) for height, several in hashes.items()}
