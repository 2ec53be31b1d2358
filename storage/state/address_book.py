"""The address book: the wallets of an account, with a label and a plan each.

Call these functions in a transaction in which the account is locked (`accounts.lock`). A function that raises a Refusal
changed nothing.

Addresses are canonical (`canonical`, `distinct`: VALIDATION_ERROR). The checks run in this order: the entry exists
(ADDRESSBOOK_ENTRY_NOT_FOUND), it can be deleted (ADDRESSBOOK_ENTRY_NOT_DELETABLE), there is room for it
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
from chainfolio.storage.state import accounts, audit, bundles, quotas, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row
from chainfolio.storage.state.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Entry:
    """One wallet of an account. An expired plan keeps its name and its end."""

    address: str
    label: str
    plan: str
    expires_us: int | None
    owner_authorized: bool

    def is_paid(self, now_us: int) -> bool:
        """Return True if its plan is paid for at this time."""
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


def canonical(address: str) -> str:
    """Return the canonical form of an address.

    Raises:
        Refusal: The text is no address (VALIDATION_ERROR).
    """
    try:
        return account(address).address
    except BadRequest as error:
        raise Refusal("VALIDATION_ERROR", error.reason, remedy=error.remedy) from None


def distinct(texts: Iterable[str]) -> list[str]:
    """Return addresses in canonical form, in their order.

    Raises:
        Refusal: One is no address, or appears twice in any notation (VALIDATION_ERROR).
    """
    addresses: dict[str, None] = {}
    for each in texts:
        address = canonical(each)
        if address in addresses:
            raise Refusal("VALIDATION_ERROR", f"{address} is given more than once")
        addresses[address] = None
    return list(addresses)


def entries(tx: Transaction, account_id: str, limit: int = quotas.MAX_QUOTA, offset: int = 0) -> list[Entry]:
    """Return entries in the order in which they were added."""
    return [_entry(row) for row in tx.rows(_ALL, account_id=account_id, most=limit, skipped=offset)]


def entry(tx: Transaction, account_id: str, address: str) -> Entry:
    """Return one entry.

    Raises:
        Refusal: The book does not have it (ADDRESSBOOK_ENTRY_NOT_FOUND).
    """
    row = only_row(tx.rows(_ONE, account_id=account_id, address=address))
    if row is None:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "this address is not in the address book")
    return _entry(row)


def add(tx: Transaction, account_id: str, labels: Mapping[str, str], defaults: Quotas, now_us: int) -> None:
    """Add addresses with their labels: all of them, or none. Existing entries are not changed.

    Raises:
        Refusal: They exceed the quota (ADDRESSBOOK_QUOTA_REACHED).
    """
    ((count,),) = tx.rows(_COUNT, account_id=account_id)
    fresh = [address for address in labels if not tx.rows(_ONE, account_id=account_id, address=address)]
    if fresh:
        quota = quotas.limit(tx, account_id, "addressbook", defaults)
        if _has_paid_plan(tx, account_id, now_us):
            quota = max(quota, defaults.addressbook_paid)
        if count + len(fresh) > quota:
            raise Refusal(
                "ADDRESSBOOK_QUOTA_REACHED",
                f"the address book holds {count} of at most {quota} entries; {len(fresh)} more do not fit",
                quota=quota,
                current=count,
            )
    last = (tx.rows(_LAST, account_id=account_id)[0][0] or 0) if fresh else 0
    tx.run_many(
        _ADD,
        [
            (account_id, address, last + index, labels[address], "FREE", None, 0)
            for index, address in enumerate(fresh, 1)
        ],
    )


def rename(tx: Transaction, account_id: str, address: str, label: str) -> Entry:
    """Change the label of an entry, and return the entry.

    Raises:
        Refusal: The book does not have the address (ADDRESSBOOK_ENTRY_NOT_FOUND).
    """
    entry(tx, account_id, address)
    tx.run(_RENAME, owner=account_id, wallet=address, new_label=label)
    return entry(tx, account_id, address)


def remove(tx: Transaction, account_id: str, address: str, now_us: int) -> None:
    """Delete an entry, and remove its address from all bundles.

    Raises:
        Refusal: The plan is paid for, the wallet's owner authorised the entry, or a bundle would become empty or equal
            to another one (ADDRESSBOOK_ENTRY_NOT_DELETABLE).
        Refusal: The book does not have it (ADDRESSBOOK_ENTRY_NOT_FOUND).
    """
    removed = entry(tx, account_id, address)
    if removed.is_paid(now_us):
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_DELETABLE", f"this address is on the paid plan {removed.plan}")
    if removed.owner_authorized:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_DELETABLE", "this address was authorized by the wallet's owner")
    bundles.remove_from_all(tx, account_id, address)
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
    """Change the plan of an entry as the operator, record it in the audit, and return the entry.

    Args:
        until_us: End of the plan; required for paid plans, None for FREE.
        owner_authorized: None leaves the present value.

    Raises:
        BadRequest: The plan or account does not exist, or the plan's end is missing or superfluous.
        Refusal: The book does not have the address.
    """
    accounts.validated_plan(plan)
    if (plan == "FREE") != (until_us is None):
        reason = "FREE has no end" if plan == "FREE" else f"{plan} needs a moment at which it lapses"
        raise BadRequest("expires", reason, remedy="--expires 2027-01-01T00:00:00Z with LITE or PRO, none with FREE")
    accounts.existing(tx, account_id)
    before = entry(tx, account_id, address)
    authorized = before.owner_authorized if owner_authorized is None else owner_authorized
    tx.run(_SET_PLAN, owner=account_id, wallet=address, new_plan=plan, until=until_us, authorized=int(authorized))
    after = entry(tx, account_id, address)
    detail = {
        "address": after.address,
        "from": before.plan,
        "to": after.plan,
        "expires_us": after.expires_us,
        "owner_authorized": after.owner_authorized,
    }
    audit.record(tx, now_us, audit.OPERATOR, account_id, "address plan changed", detail)
    return after


def _has_paid_plan(tx: Transaction, account_id: str, now_us: int) -> bool:
    """Return True if the account has a paid plan that has not expired."""
    owner = accounts.existing(tx, account_id)
    return owner.plan != "FREE" and (owner.plan_expires_us is None or owner.plan_expires_us > now_us)


def _entry(row: tuple[str, str, str, int | None, int]) -> Entry:
    address, label, plan, expires_us, owner_authorized = row
    return Entry(address, label, plan, expires_us, bool(owner_authorized))
