"""Accounts that are other than they should be, for tests of every family. What is changed is named by a function of the
position or the pool that a test is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solders.keypair import Keypair

from tests.solana.ledger import Ledger

Change = Callable[[Ledger, Any], None]
Where = Callable[[Any], str]


def key() -> str:
    """An address of nobody."""
    return str(Keypair().pubkey())


def itself(subject: Any) -> str:
    """Where the position or the pool lies."""
    return str(subject.address)


def pool_of(position: Any) -> str:
    """Where its pool lies."""
    return str(position.pool.address)


def debt_of(subject: Any) -> str:
    """Where that lies to which somebody owes."""
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
