"""Changes to accounts that make them invalid, for the tests of every protocol family.

The account to change is named by a function of the position or pool under test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solders.keypair import Keypair

from tests.solana.ledger import Ledger

Change = Callable[[Ledger, Any], None]
Where = Callable[[Any], str]


def key() -> str:
    """Return a random address."""
    return str(Keypair().pubkey())


def itself(subject: Any) -> str:
    """Return the address of a position or pool."""
    return str(subject.address)


def pool_of(position: Any) -> str:
    """Return the address of a position's pool."""
    return str(position.pool.address)


def debt_of(subject: Any) -> str:
    """Return the address of the bank or reserve of the first debt."""
    return str(subject.debts[0][0].address)


def spliced(at: int, content: bytes, of: Where = itself) -> Change:
    """An account with some other bytes."""

    def change(ledger: Ledger, subject: Any) -> None:
        owner, before = ledger.accounts[of(subject)]
        ledger.put(of(subject), owner, before[:at] + content + before[at + len(content) :])

    return change


def sized(by: int, of: Where = itself) -> Change:
    """An account that breaks off so many bytes earlier, or goes on for so many."""

    def change(ledger: Ledger, subject: Any) -> None:
        owner, before = ledger.accounts[of(subject)]
        ledger.put(of(subject), owner, before[:by] if by < 0 else before + bytes(by))

    return change


def without(of: Where) -> Change:
    """An account is gone."""

    def change(ledger: Ledger, subject: Any) -> None:
        del ledger.accounts[of(subject)]

    return change


def taken_over(of: Where) -> Change:
    """An account belongs to another program."""

    def change(ledger: Ledger, subject: Any) -> None:
        ledger.put(of(subject), key(), ledger.accounts[of(subject)][1])

    return change


stolen = taken_over(itself)


def strange(vault: Where) -> Change:
    """A vault holds another token."""

    def change(ledger: Ledger, subject: Any) -> None:
        ledger.put_vault(vault(subject), key(), key(), 5)

    return change
