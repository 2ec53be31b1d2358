"""Credits: each movement is a row that moves credits of an account from one balance to another.

    operator -grant-> available -reserve-> held -post-> earned
             <adjust-           <-void-, <-expire-

Rows never change. `balances` holds their sums, changed in the transaction that adds the rows; `check` compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, audit, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, literal, only_row

BALANCES: Final = ("available", "held", "earned")
MOVES: Final[Mapping[str, tuple[str, str]]] = {
    "grant": ("operator", "available"),
    "adjust": ("available", "operator"),
    "reserve": ("available", "held"),
    "post": ("held", "earned"),
    "void": ("held", "available"),
    "expire": ("held", "available"),
}
MAX_CREDITS: Final = 2**53 - 1  # the API gives credits as a JSON number

_LEDGER, _BALANCES = schema.ledger, schema.balances
COLUMNS: Final = ("account_id", "at_us", "kind", "amount", "debit", "credit", "call_id", "memo")
ADD = Statement(_LEDGER.insert(), COLUMNS)
# Skipped are reservations that are settled already, and those that a crash of PostgreSQL lost: their commit does not
# wait for the disk. As text, because SQLAlchemy's dialects build it differently.
_SETTLE = Statement(
    sa.text(
        f"INSERT INTO ledger ({', '.join(COLUMNS)}) SELECT {', '.join(f':{name}' for name in COLUMNS[:-2])}, "
        "call_id, '' FROM ledger reserved WHERE kind = 'reserve' AND call_id = :call_id ON CONFLICT DO NOTHING"
    )
)
BALANCE = Statement(
    sa.select(_BALANCES.c.account_id, *(_BALANCES.c[name] for name in BALANCES))
    .where(_BALANCES.c.account_id == argument("account_id"))
    .with_for_update()
)
SET_BALANCE = Statement(
    _BALANCES.update()
    .where(_BALANCES.c.account_id == argument("owner"))
    .values(available=argument("new_available"), held=argument("new_held"), earned=argument("new_earned"))
)
_SEEN = Statement(sa.select(_BALANCES.c.available).where(_BALANCES.c.account_id == argument("account_id")))
_ROWS = Statement(
    sa.select(
        _LEDGER.c.id,
        _LEDGER.c.at_us,
        _LEDGER.c.kind,
        _LEDGER.c.amount,
        _LEDGER.c.debit,
        _LEDGER.c.credit,
        _LEDGER.c.call_id,
        _LEDGER.c.memo,
    )
    .where(_LEDGER.c.account_id == argument("account_id"))
    .order_by(_LEDGER.c.id.desc())
    .suffix_with(sa.text("LIMIT :most"))
)
_TOTALS = Statement(
    sa.select(_LEDGER.c.kind, sa.cast(sa.func.sum(_LEDGER.c.amount), schema.Long), sa.func.count()).group_by(
        _LEDGER.c.kind
    )
)


def _net(balance: str) -> Any:
    is_credited, is_debited = _LEDGER.c.credit == literal(balance), _LEDGER.c.debit == literal(balance)
    change = sa.case((is_credited, _LEDGER.c.amount), (is_debited, -_LEDGER.c.amount), else_=literal(0))
    return sa.cast(sa.func.coalesce(sa.func.sum(change), literal(0)), schema.Long)


_CHECK = Statement(
    sa.select(_BALANCES.c.account_id, *(_BALANCES.c[name] for name in BALANCES), *(_net(name) for name in BALANCES))
    .select_from(_BALANCES.outerjoin(_LEDGER, _LEDGER.c.account_id == _BALANCES.c.account_id))
    .group_by(_BALANCES.c.account_id, *(_BALANCES.c[name] for name in BALANCES))
)
_SETTLING = _LEDGER.alias("settling")
OPEN = sa.and_(
    _LEDGER.c.kind == literal("reserve"),
    ~sa.exists().where(_SETTLING.c.call_id == _LEDGER.c.call_id, sa.text(f"settling.{schema.SETTLED.text}")),
)
_HELD = Statement(
    sa.select(_LEDGER.c.account_id, sa.cast(sa.func.sum(_LEDGER.c.amount), schema.Long))
    .where(OPEN)
    .group_by(_LEDGER.c.account_id)
)


@dataclass(frozen=True, slots=True)
class Bill:
    """The price of a call that changes data, paid in the transaction of the change."""

    account_id: str
    amount: int
    at_us: int
    memo: str


class InsufficientCredits(Exception):
    """The account has fewer credits than it must pay: `available`."""

    def __init__(self, available: int) -> None:
        super().__init__(f"{available} credits are there")
        self.available = available


@dataclass(frozen=True, slots=True)
class Row:
    """One movement."""

    id: int
    at_us: int
    kind: str
    amount: int
    debit: str
    credit: str
    call_id: int | None
    memo: str


@dataclass(slots=True)
class Balance:
    """The credits of an account. Only `move` changes them, so that they agree with the rows."""

    available: int = 0
    held: int = 0
    earned: int = 0

    def move(self, kind: str, amount: int) -> None:
        """Apply a movement of this kind."""
        source, target = MOVES[kind]
        if source != "operator":
            setattr(self, source, getattr(self, source) - amount)
        if target != "operator":
            setattr(self, target, getattr(self, target) + amount)


def entry(account_id: str, at_us: int, kind: str, amount: int, call_id: int | None, memo: str) -> tuple[Any, ...]:
    """Return a ledger row with the columns of ADD."""
    assert amount > 0, f"{kind} of {amount}"
    debit, credit = MOVES[kind]
    return (account_id, at_us, kind, amount, debit, credit, call_id, memo)


def settle(tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> int:
    """Add rows of `entry` without memo that end reservations; return how many of these were open."""
    return tx.run_many(_SETTLE, [row[:-1] for row in rows])


def balances(tx: Transaction, account_ids: Iterable[str]) -> dict[str, Balance]:
    """Lock the balances of accounts and return them by account; all zero for an unknown one.

    All callers lock in one order, which prevents deadlocks.
    """
    ids = sorted(set(account_ids))
    by_account = {
        account_id: Balance(*amounts) for account_id, *amounts in tx.rows_of_each(BALANCE, [(id,) for id in ids])
    }
    return {id: by_account.get(id) or Balance() for id in ids}


def store_balances(tx: Transaction, balances: Mapping[str, Balance]) -> None:
    """Store balances, which `balances` has locked in this transaction."""
    tx.run_many(SET_BALANCE, [(*(getattr(each, name) for name in BALANCES), id) for id, each in balances.items()])


def available(tx: Transaction, account_id: str) -> int:
    """Return the credits that can be spent now; 0 for an unknown account."""
    row = only_row(tx.rows(_SEEN, account_id=account_id))
    return int(row[0]) if row else 0


def check_affords(tx: Transaction, bill: Bill) -> None:
    """Check that an account can pay a bill, without locking its balance.

    Raises:
        InsufficientCredits: It cannot.
    """
    credits = available(tx, bill.account_id)
    if credits < bill.amount:
        raise InsufficientCredits(credits)


def pay(tx: Transaction, bill: Bill, call_id: int) -> None:
    """Pay a bill: add a reservation and its posting to the ledger. A bill of 0 adds nothing.

    Raises:
        InsufficientCredits: The account has too few credits; the caller rolls back its transaction.
    """
    if not bill.amount:
        return
    balance = balances(tx, [bill.account_id])[bill.account_id]
    if balance.available < bill.amount:
        raise InsufficientCredits(balance.available)
    for kind, memo in (("reserve", bill.memo), ("post", "")):
        tx.run_many(ADD, [entry(bill.account_id, bill.at_us, kind, bill.amount, call_id, memo)])
        balance.move(kind, bill.amount)
    store_balances(tx, {bill.account_id: balance})


def credit(tx: Transaction, account_id: str, amount: int, now_us: int, memo: str) -> int:
    """Add credits to an account, or take them (`amount` below zero), and return those that no call holds.

    It is recorded in the ledger and the audit. Credits that running calls hold cannot be taken.

    Raises:
        BadRequest: The account does not exist, or the amount or the new balance is out of range.
    """
    accounts.existing(tx, account_id)
    balance = balances(tx, [account_id])[account_id]
    if amount == 0 or abs(amount) > MAX_CREDITS:
        raise BadRequest("credits", f"1 to {MAX_CREDITS:,}, or that much below zero to take them back")
    if balance.available + amount < 0:
        raise BadRequest("credits", f"the account has {balance.available:,} that are not held by running calls")
    if balance.available + amount > MAX_CREDITS:
        raise BadRequest("credits", f"an account holds at most {MAX_CREDITS:,}")
    kind = "grant" if amount > 0 else "adjust"
    tx.run_many(ADD, [entry(account_id, now_us, kind, abs(amount), None, memo)])
    balance.move(kind, abs(amount))
    store_balances(tx, {account_id: balance})
    audit.record(tx, now_us, audit.OPERATOR, account_id, "credits changed", {"amount": amount, "memo": memo})
    return balance.available


def history(tx: Transaction, account_id: str, limit: int = 100) -> list[Row]:
    """Return the newest rows of an account, the newest first."""
    return [Row(*row) for row in tx.rows(_ROWS, account_id=account_id, most=limit)]


def totals(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return credits and number of rows by kind, over all accounts."""
    by_kind = {kind: (int(amount), int(rows)) for kind, amount, rows in tx.rows(_TOTALS)}
    return {kind: by_kind.get(kind, (0, 0)) for kind in MOVES}


def check(tx: Transaction) -> list[str]:
    """Return a description of each inconsistency of the ledger; empty if it is consistent.

    Compares stored balances with their rows, held credits with open calls, and reserved ones with all ends of calls.
    """
    problems = []
    reserved = {account_id: int(amount) for account_id, amount in tx.rows(_HELD)}
    for account_id, *sums in tx.rows(_CHECK):
        stored, added = sums[:3], [int(value) for value in sums[3:]]
        problems += [
            f"{account_id}: {name} is {stored_sum}, its rows add up to {row_sum}"
            for name, stored_sum, row_sum in zip(BALANCES, stored, added, strict=True)
            if stored_sum != row_sum
        ]
        if added[1] != reserved.get(account_id, 0):
            problems.append(f"{account_id}: {added[1]} held, but {reserved.get(account_id, 0)} reserved by open calls")
    by_kind = totals(tx)
    accounted = sum(by_kind[kind][0] for kind in ("post", "void", "expire")) + sum(reserved.values())
    if by_kind["reserve"][0] != accounted:
        problems.append(f"{by_kind['reserve'][0]} were reserved, {accounted} posted, voided, expired or still held")
    return problems
