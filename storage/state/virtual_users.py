"""Virtual users: portfolios that an account defines by amounts or by groups of addresses.

Call these functions in a transaction in which the account is locked (`accounts.lock`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, cast, get_args

import msgspec
import sqlalchemy as sa

from chainfolio.assets import account
from chainfolio.contracts import VirtualHolding, VirtualUser
from chainfolio.documents import ValidationError, strict
from chainfolio.errors import BadRequest
from chainfolio.storage.state import audit, schema
from chainfolio.storage.state.database import Row, Statement, Transaction, argument, only_row
from chainfolio.storage.state.refusals import Refusal

Kind = Literal["BALANCE", "CEX", "GROUP"]
TYPES: Final = get_args(Kind)
NATIVE: Final = "native"
MAX_HOLDINGS: Final = 1000
REMEDIES: Final = {
    "BALANCE": '[{"chain": "ethereum", "contract": "native", "amount": "1.5"}]',
    "CEX": '[{"symbol": "EUR", "amount": "10", "priceUsd": "1.08"}]',
    "GROUP": '{"addresses": ["0x…"]}',
}

# Decimal notation, with few enough digits for an exact sum of a thousand of them.
Amount = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,39})(\.[0-9]{1,36})?\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class _Holding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One line of the document of a BALANCE or CEX."""

    amount: Amount
    chain: Word | msgspec.UnsetType = msgspec.UNSET
    contract: Word | msgspec.UnsetType = msgspec.UNSET
    symbol: Word | msgspec.UnsetType = msgspec.UNSET
    price_usd: Amount | msgspec.UnsetType = msgspec.UNSET

    def read(self) -> VirtualHolding:
        """Return the holding.

        Raises:
            ValueError: The fields do not fit together.
        """
        if self.chain is not msgspec.UNSET and self.contract is not msgspec.UNSET:
            if self.symbol is not msgspec.UNSET or self.price_usd is not msgspec.UNSET:
                raise ValueError("a holding has chain and contract, or symbol and priceUsd")
            contract = "" if self.contract == NATIVE else _address(self.contract)
            return VirtualHolding(self.amount, self.chain, contract)
        if self.chain is not msgspec.UNSET or self.contract is not msgspec.UNSET or self.symbol is msgspec.UNSET:
            raise ValueError("a holding has chain and contract, or symbol and priceUsd")
        price = None if self.price_usd is msgspec.UNSET else self.price_usd
        return VirtualHolding(self.amount, symbol=self.symbol, usd=price)


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document of a GROUP."""

    addresses: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True)
class Content:
    """The parsed document of a virtual user."""

    holdings: tuple[VirtualHolding, ...] = ()
    accounts: tuple[str, ...] = ()


_ROWS = schema.virtual_users
_OF = argument("account_id")
_COLUMNS = (_ROWS.c.id, _ROWS.c.type, _ROWS.c.label, _ROWS.c.document)
_ALL = Statement(sa.select(*_COLUMNS).where(_ROWS.c.account_id == _OF).order_by(_ROWS.c.position))
_ONE = Statement(sa.select(*_COLUMNS).where(_ROWS.c.account_id == _OF, _ROWS.c.id == argument("id")))
_LAST = Statement(sa.select(sa.func.max(_ROWS.c.position)).where(_ROWS.c.account_id == _OF))
_ADD = Statement(_ROWS.insert())
_DROP = Statement(_ROWS.delete().where(_ROWS.c.account_id == argument("owner"), _ROWS.c.id == argument("user")))


def parse_document(type: str, document: bytes) -> Content:
    """Parse the document of a virtual user of this type.

    Raises:
        BadRequest: The type does not exist, or the document is invalid.
    """
    if type not in TYPES:
        raise BadRequest("type", f"`{type}` is no type of virtual user", remedy=f"one of {', '.join(TYPES)}")
    try:
        if type == "GROUP":
            return Content(accounts=_unique([_address(each) for each in strict(document, _Group).addresses]))
        holdings = tuple(each.read() for each in strict(document, list[_Holding]))
        _unique([each.symbol or f"{each.chain} {each.contract or NATIVE}" for each in holdings])
    except ValueError as error:
        path = ".".join(error.path) if isinstance(error, ValidationError) else ""
        message = f"at {path}: {error}" if path else str(error)
        raise BadRequest("holdings", message, remedy=f"for example {REMEDIES[type]}") from None
    if len(holdings) > MAX_HOLDINGS:
        raise BadRequest("holdings", f"{len(holdings)} lines; at most {MAX_HOLDINGS}")
    return Content(holdings=holdings)


def every(tx: Transaction, account_id: str) -> list[VirtualUser]:
    """Return an account's virtual users in the order in which they were added."""
    return [_user(row) for row in tx.rows(_ALL, account_id=account_id)]


def find_all(tx: Transaction, account_id: str, ids: Iterable[str]) -> list[VirtualUser]:
    """Return virtual users by id, in the order of the ids.

    Raises:
        Refusal: One of them does not belong to the account (FORBIDDEN).
    """
    rows = [only_row(tx.rows(_ONE, account_id=account_id, id=id)) for id in ids]
    if None in rows:
        raise Refusal("FORBIDDEN", "not all of these virtual users belong to your account")
    return [_user(row) for row in rows if row is not None]


def add(tx: Transaction, account_id: str, id: str, type: str, label: str, document: bytes, now_us: int) -> VirtualUser:
    """Add a virtual user. The document is stored as it is written.

    Raises:
        BadRequest: The type does not exist, or the document is invalid.
    """
    content = parse_document(type, document)
    last = tx.rows(_LAST, account_id=account_id)[0][0] or 0
    tx.run(_ADD, id=id, account_id=account_id, position=last + 1, type=type, label=label, document=document.decode())
    audit.record(tx, now_us, audit.OPERATOR, account_id, "virtual user added", {"id": id, "type": type, "label": label})
    return VirtualUser(id, cast(Kind, type), label, content.holdings, content.accounts)


def remove(tx: Transaction, account_id: str, id: str, now_us: int) -> bool:
    """Delete a virtual user. Return False if the account has none of that id."""
    if not tx.run(_DROP, owner=account_id, user=id):
        return False
    audit.record(tx, now_us, audit.OPERATOR, account_id, "virtual user removed", {"id": id})
    return True


def _user(row: Row) -> VirtualUser:
    id, type, label, document = row
    content = parse_document(type, document.encode())
    return VirtualUser(id, type, label, content.holdings, content.accounts)


def _address(address: str) -> str:
    try:
        return account(address).address
    except BadRequest as error:
        raise ValueError(error.reason) from None


def _unique(items: list[str]) -> tuple[str, ...]:
    for item, count in Counter(items).items():
        if count > 1:
            raise ValueError(f"{item} is there twice")
    return tuple(items)
