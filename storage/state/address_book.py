"""The address book: which wallets an account knows, by which name, and on which plan each is.

Functions of a transaction in which the account is locked (`accounts.lock`). Who raises a Refusal changed nothing.

Every function takes addresses in their one form (`canonical`, `distinct`: VALIDATION_ERROR), and looks in this order:
is the entry there (ADDRESSBOOK_ENTRY_NOT_FOUND); may it go (ADDRESSBOOK_ENTRY_NOT_DELETABLE); is there room for it
(ADDRESSBOOK_QUOTA_REACHED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.assets import account
from chainfolio.errors import BadRequest
from chainfolio.settings import Quotas
from storage.state import accounts, audit, bundles, quotas, schema
from storage.state.database import Statement, Transaction, argument, one
from storage.state.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Entry:
    """One wallet of an account. A lapsed plan keeps its name and its end."""

    address: str
    label: str
    plan: str
    expires_us: int | None
    owner_authorized: bool

    def paid(self, now_us: int) -> bool:
        """Whether its plan is paid for now."""
        return self.expires_us is not None and self.expires_us > now_us


_ENTRIES: Final = schema.entries
_COLUMNS = [_ENTRIES.c[name] for name in Entry.__slots__]
_OF = argument("account_id")
_ALL = Statement(
    sa.select(*_COLUMNS)
    .where(_ENTRIES.c.account_id == _OF)
    .order_by(_ENTRIES.c.position)
    .suffix_with(sa.text("LIMIT :most OFFSET :skipped"))
)
_COUNT = Statement(sa.select(sa.func.count()).select_from(_ENTRIES).where(_ENTRIES.c.account_id == _OF))
_ONE = Statement(sa.select(*_COLUMNS).where(_ENTRIES.c.account_id == _OF, _ENTRIES.c.address == argument("address")))
_LAST = Statement(sa.select(sa.func.max(_ENTRIES.c.position)).where(_ENTRIES.c.account_id == _OF))
_ADD = Statement(_ENTRIES.insert())
_MINE = (_ENTRIES.c.account_id == argument("owner"), _ENTRIES.c.address == argument("wallet"))
_RENAME = Statement(_ENTRIES.update().where(*_MINE).values(label=argument("new_label")))
_SET_PLAN = Statement(
    _ENTRIES.update()
    .where(*_MINE)
    .values(plan=argument("new_plan"), expires_us=argument("until"), owner_authorized=argument("authorized"))
)
_DROP = Statement(_ENTRIES.delete().where(*_MINE))


def canonical(written: str) -> str:
    """An address in the one form that is kept; Refusal where it is none."""
    try:
        return account(written).address
    except BadRequest as error:
        raise Refusal("VALIDATION_ERROR", error.reason, remedy=error.remedy) from None


def distinct(written: Iterable[str]) -> list[str]:
    """Addresses in their order; Refusal where one is none, or is there twice, in whatever spelling."""
    found: dict[str, None] = {}
    for each in written:
        address = canonical(each)
        if address in found:
            raise Refusal("VALIDATION_ERROR", f"{address} is given more than once")
        found[address] = None
    return list(found)


def entries(tx: Transaction, account_id: str, limit: int = quotas.MAX_QUOTA, offset: int = 0) -> list[Entry]:
    """The book, or a part of it, in the order in which entries were added."""
    return [_entry(row) for row in tx.rows(_ALL, account_id=account_id, most=limit, skipped=offset)]


def entry(tx: Transaction, account_id: str, address: str) -> Entry:
    """One entry; Refusal where the book has none."""
    row = one(tx.rows(_ONE, account_id=account_id, address=address))
    if row is None:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "this address is not in the address book")
    return _entry(row)


def add(tx: Transaction, account_id: str, labels: Mapping[str, str], defaults: Quotas, now_us: int) -> None:
    """Add addresses with their labels: all of them, or none.

    An address that the book has keeps its entry as it is, label included.
    """
    ((known,),) = tx.rows(_COUNT, account_id=account_id)
    fresh = [address for address in labels if not tx.rows(_ONE, account_id=account_id, address=address)]
    if fresh:
        quota = quotas.limit(tx, account_id, "addressbook", defaults)
        if _paid(tx, account_id, now_us):
            quota = max(quota, defaults.addressbook_paid)
        if known + len(fresh) > quota:
            raise Refusal(
                "ADDRESSBOOK_QUOTA_REACHED",
                f"the address book holds {known} of at most {quota} entries; {len(fresh)} more do not fit",
                quota=quota,
                current=known,
            )
    last = (tx.rows(_LAST, account_id=account_id)[0][0] or 0) if fresh else 0
    tx.many(
        _ADD,
        [
            (account_id, address, last + place, labels[address], "FREE", None, 0)
            for place, address in enumerate(fresh, 1)
        ],
    )


def rename(tx: Transaction, account_id: str, address: str, label: str) -> Entry:
    """Give an entry another label; the entry as it is now."""
    entry(tx, account_id, address)
    tx.run(_RENAME, owner=account_id, wallet=address, new_label=label)
    return entry(tx, account_id, address)


def remove(tx: Transaction, account_id: str, address: str, now_us: int) -> None:
    """Take an entry out of the book, and out of the bundles that it is in.

    Refused while its plan is paid for (one that has lapsed is not), where the wallet's owner authorised it, and where
    a bundle would be left empty or equal to another one.
    """
    found = entry(tx, account_id, address)
    if found.paid(now_us):
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_DELETABLE", f"this address is on the paid plan {found.plan}")
    if found.owner_authorized:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_DELETABLE", "this address was authorized by the wallet's owner")
    bundles.leave(tx, account_id, address)
    tx.run(_DROP, owner=account_id, wallet=address)


def set_plan(
    tx: Transaction,
    account_id: str,
    address: str,
    plan: str,
    until_us: int | None,
    now_us: int,
    *,
    owner_authorized: bool | None = None,
) -> Entry:
    """Move an entry to another plan, by the operator; `owner_authorized` None leaves that as it is.

    A paid plan has an end, and FREE has none: BadRequest otherwise.
    """
    accounts.checked_plan(plan)
    if (plan == "FREE") != (until_us is None):
        reason = "FREE has no end" if plan == "FREE" else f"{plan} needs a moment at which it lapses"
        raise BadRequest("expires", reason, remedy="--expires 2027-01-01T00:00:00Z with LITE or PRO, none with FREE")
    accounts.existing(tx, account_id)
    before = entry(tx, account_id, address)
    authorized = before.owner_authorized if owner_authorized is None else owner_authorized
    tx.run(_SET_PLAN, owner=account_id, wallet=address, new_plan=plan, until=until_us, authorized=int(authorized))
    after = entry(tx, account_id, address)
    detail = {
        "address": after.address, "from": before.plan, "to": after.plan, "expires_us": after.expires_us,
        "owner_authorized": after.owner_authorized,
    }  # fmt: skip
    audit.note(tx, now_us, audit.OPERATOR, account_id, "address plan changed", detail)
    return after


def _paid(tx: Transaction, account_id: str, now_us: int) -> bool:
    """Whether the account has a paid plan that has not lapsed."""
    owner = accounts.existing(tx, account_id)
    return owner.plan != "FREE" and (owner.plan_expires_us is None or owner.plan_expires_us > now_us)


def _entry(row: tuple[str, str, str, int | None, int]) -> Entry:
    address, label, plan, expires_us, owner_authorized = row
    return Entry(address, label, plan, expires_us, bool(owner_authorized))
