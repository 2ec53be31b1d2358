"""Credits: every movement is a row that is only ever added, from one place of an account to another.

    operator -grant-> available -reserve-> held -post-> earned
             <adjust-           <-void-, <-expire-

`balances` holds the sums of the rows, changed in the transaction that adds them; `check` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from storage.state import accounts, audit, schema
from storage.state.database import Statement, Transaction, argument, literal, one

PLACES: Final = ("available", "held", "earned")
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
# What was settled before is skipped: text, because each dialect of SQLAlchemy would build it another way.
SETTLE = Statement(
    sa.text(
        f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)}) "
        "ON CONFLICT DO NOTHING"
    )
)
BALANCE = Statement(
    sa.select(_BALANCES.c.account_id, *(_BALANCES.c[place] for place in PLACES))
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
        _LEDGER.c.id, _LEDGER.c.at_us, _LEDGER.c.kind, _LEDGER.c.amount, _LEDGER.c.debit, _LEDGER.c.credit,
        _LEDGER.c.call_id, _LEDGER.c.memo,
    )
    .where(_LEDGER.c.account_id == argument("account_id"))
    .order_by(_LEDGER.c.id.desc())
    .suffix_with(sa.text("LIMIT :most"))
)  # fmt: skip
_TOTALS = Statement(
    sa.select(_LEDGER.c.kind, sa.cast(sa.func.sum(_LEDGER.c.amount), schema.Long), sa.func.count()).group_by(
        _LEDGER.c.kind
    )
)


def _net(place: str) -> Any:
    came, went = _LEDGER.c.credit == literal(place), _LEDGER.c.debit == literal(place)
    moved = sa.case((came, _LEDGER.c.amount), (went, -_LEDGER.c.amount), else_=literal(0))
    return sa.cast(sa.func.coalesce(sa.func.sum(moved), literal(0)), schema.Long)


_CHECK = Statement(
    sa.select(_BALANCES.c.account_id, *(_BALANCES.c[place] for place in PLACES), *(_net(place) for place in PLACES))
    .select_from(_BALANCES.outerjoin(_LEDGER, _LEDGER.c.account_id == _BALANCES.c.account_id))
    .group_by(_BALANCES.c.account_id, *(_BALANCES.c[place] for place in PLACES))
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
    """What a call that changes something costs, to be paid in the transaction that makes the change."""

    account_id: str
    amount: int
    at_us: int
    memo: str


class Short(Exception):
    """The account has fewer credits than it is asked for: `available`."""

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
    """Where an account's credits are; changed by `move`, so that it and the rows cannot differ."""

    available: int = 0
    held: int = 0
    earned: int = 0

    def move(self, kind: str, amount: int) -> None:
        """Do what a row of this kind says."""
        source, target = MOVES[kind]
        if source != "operator":
            setattr(self, source, getattr(self, source) - amount)
        if target != "operator":
            setattr(self, target, getattr(self, target) + amount)


def entry(account_id: str, at_us: int, kind: str, amount: int, call_id: int | None, memo: str) -> tuple[Any, ...]:
    """A row of the ledger, as `many` takes it for ADD."""
    assert amount > 0, f"{kind} of {amount}"
    debit, credit = MOVES[kind]
    return (account_id, at_us, kind, amount, debit, credit, call_id, memo)


def balances(tx: Transaction, account_ids: Iterable[str]) -> dict[str, Balance]:
    """Balances of accounts, locked until the transaction ends, in one order for all: nobody locks in a circle."""
    ids = sorted(set(account_ids))
    found = {account_id: Balance(*places) for account_id, *places in tx.each(BALANCE, [(id,) for id in ids])}
    return {id: found.get(id) or Balance() for id in ids}


def keep(tx: Transaction, found: Mapping[str, Balance]) -> None:
    """Write balances back."""
    tx.many(SET_BALANCE, [(*(getattr(each, place) for place in PLACES), id) for id, each in found.items()])


def available(tx: Transaction, account_id: str) -> int:
    """Credits that can be spent now."""
    row = one(tx.rows(_SEEN, account_id=account_id))
    return int(row[0]) if row else 0


def check_affords(tx: Transaction, bill: Bill) -> None:
    """Short where the account has less than the bill says; nothing is locked, so that others go on meanwhile."""
    found = available(tx, bill.account_id)
    if found < bill.amount:
        raise Short(found)


def pay(tx: Transaction, bill: Bill, call_id: int) -> None:
    """Take what a bill says; Short, and nothing of the transaction is done, where it is not there any more."""
    if not bill.amount:
        return
    found = balances(tx, [bill.account_id])[bill.account_id]
    if found.available < bill.amount:
        raise Short(found.available)
    for kind, memo in (("reserve", bill.memo), ("post", "")):
        tx.many(ADD, [entry(bill.account_id, bill.at_us, kind, bill.amount, call_id, memo)])
        found.move(kind, bill.amount)
    keep(tx, {bill.account_id: found})


def credit(tx: Transaction, account_id: str, amount: int, now_us: int, memo: str) -> int:
    """Give credits, or take (`amount` below zero) of those that are not held; the balance afterwards."""
    accounts.existing(tx, account_id)
    found = balances(tx, [account_id])[account_id]
    if amount == 0 or abs(amount) > MAX_CREDITS:
        raise BadRequest("credits", f"1 to {MAX_CREDITS:,}, or that much below zero to take them back")
    if found.available + amount < 0:
        raise BadRequest("credits", f"the account has {found.available:,} that are not held by running calls")
    if found.available + amount > MAX_CREDITS:
        raise BadRequest("credits", f"an account holds at most {MAX_CREDITS:,}")
    kind = "grant" if amount > 0 else "adjust"
    tx.many(ADD, [entry(account_id, now_us, kind, abs(amount), None, memo)])
    found.move(kind, abs(amount))
    keep(tx, {account_id: found})
    audit.note(tx, now_us, audit.OPERATOR, account_id, "credits changed", {"amount": amount, "memo": memo})
    return found.available


def history(tx: Transaction, account_id: str, most: int = 100) -> list[Row]:
    """The newest rows of an account."""
    return [Row(*row) for row in tx.rows(_ROWS, account_id=account_id, most=most)]


def totals(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Over all accounts: credits moved and rows, by kind."""
    found = {kind: (int(amount), int(rows)) for kind, amount, rows in tx.rows(_TOTALS)}
    return {kind: found.get(kind, (0, 0)) for kind in MOVES}


def check(tx: Transaction) -> list[str]:
    """What does not add up, in words; an empty list is a sound ledger."""
    wrong = []
    reserved = {account_id: int(amount) for account_id, amount in tx.rows(_HELD)}
    for account_id, *sums in tx.rows(_CHECK):
        kept, added = sums[:3], [int(value) for value in sums[3:]]
        wrong += [
            f"{account_id}: {place} is {one_kept}, its rows add up to {one_added}"
            for place, one_kept, one_added in zip(PLACES, kept, added, strict=True)
            if one_kept != one_added
        ]
        if added[1] != reserved.get(account_id, 0):
            wrong.append(f"{account_id}: {added[1]} held, but {reserved.get(account_id, 0)} reserved by open calls")
    moved = totals(tx)
    settled = sum(moved[kind][0] for kind in ("post", "void", "expire")) + sum(reserved.values())
    if moved["reserve"][0] != settled:
        wrong.append(f"{moved['reserve'][0]} were reserved, {settled} posted, voided, expired or still held")
    return wrong
