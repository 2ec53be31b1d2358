"""Bundles: named groups of addresses of the address book.

A bundle is never empty, and no two bundles of an account have the same members. Call these functions in a transaction
in which the account is locked (`accounts.lock`). A function that raises a Refusal changed nothing.

Addresses are canonical (`address_book.distinct`). The checks run in this order: the bundle exists (BUNDLE_NOT_FOUND),
it has the member (ADDRESSBOOK_ENTRY_NOT_FOUND), it is not too large (BUNDLE_SIZE_LIMIT_EXCEEDED) or empty
(BUNDLE_EMPTY), its members are in the address book (BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK), its name is free
(BUNDLE_NAME_TAKEN), no other bundle has the same members (BUNDLE_MEMBERS_ALREADY_BUNDLED), and there is room for it
(BUNDLE_QUOTA_REACHED).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.settings import Quotas
from chainfolio.storage.state import quotas, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row
from chainfolio.storage.state.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Bundle:
    """A named group of addresses, in the order in which they were added."""

    id: str
    name: str
    addresses: tuple[str, ...]


_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z", re.ASCII)
_BUNDLES, _MEMBERS, _ENTRIES = schema.bundles, schema.bundle_members, schema.entries
_OF = argument("account_id")
_WITH_MEMBERS = (
    sa.select(_BUNDLES.c.id, _BUNDLES.c.name, _MEMBERS.c.address)
    .select_from(_BUNDLES.join(_MEMBERS))
    .where(_BUNDLES.c.account_id == _OF)
    .order_by(_BUNDLES.c.position, _MEMBERS.c.position)
)
_ALL = Statement(_WITH_MEMBERS)
_ONE = Statement(_WITH_MEMBERS.where(_BUNDLES.c.id == argument("id")))
_NAMED = Statement(sa.select(_BUNDLES.c.id).where(_BUNDLES.c.account_id == _OF, _BUNDLES.c.name == argument("name")))
_WITH_THESE_MEMBERS = Statement(
    sa.select(_BUNDLES.c.id).where(_BUNDLES.c.account_id == _OF, _BUNDLES.c.members == argument("members"))
)
_COUNT = Statement(
    sa.select(sa.func.count(), sa.func.max(_BUNDLES.c.position))
    .select_from(_BUNDLES)
    .where(_BUNDLES.c.account_id == _OF)
)
_LAST_MEMBER = Statement(sa.select(sa.func.max(_MEMBERS.c.position)).where(_MEMBERS.c.bundle_id == argument("id")))
_IN_BOOK = Statement(
    sa.select(_ENTRIES.c.address).where(_ENTRIES.c.account_id == _OF, _ENTRIES.c.address == argument("address"))
)
_ADD = Statement(_BUNDLES.insert())
_ADD_MEMBER = Statement(_MEMBERS.insert())
_RENAME = Statement(_BUNDLES.update().where(_BUNDLES.c.id == argument("bundle")).values(name=argument("new_name")))
_SET_MEMBERS = Statement(
    _BUNDLES.update().where(_BUNDLES.c.id == argument("bundle")).values(members=argument("new_members"))
)
_DROP_MEMBER = Statement(
    _MEMBERS.delete().where(_MEMBERS.c.bundle_id == argument("bundle"), _MEMBERS.c.address == argument("wallet"))
)
_DROP_MEMBERS = Statement(_MEMBERS.delete().where(_MEMBERS.c.bundle_id == argument("bundle")))
_DROP = Statement(_BUNDLES.delete().where(_BUNDLES.c.id == argument("bundle")))


def every(tx: Transaction, account_id: str) -> list[Bundle]:
    """Return an account's bundles in the order in which they were created."""
    return _bundles(tx.rows(_ALL, account_id=account_id))


def find(tx: Transaction, account_id: str, id: str) -> Bundle:
    """Return one bundle.

    Raises:
        Refusal: The account has none of that id (BUNDLE_NOT_FOUND), whether or not another account has it.
    """
    bundles = _bundles(tx.rows(_ONE, account_id=account_id, id=id)) if _ID.match(id) else []
    if not bundles:
        raise Refusal("BUNDLE_NOT_FOUND", "there is no bundle of that id")
    return bundles[0]


def create(tx: Transaction, account_id: str, id: str, name: str, addresses: Sequence[str], defaults: Quotas) -> Bundle:
    """Add a bundle after the account's other bundles, and return it.

    Args:
        id: Identifier of the new bundle.
        addresses: Distinct addresses, at least one, in the order of display.
        defaults: Quotas of accounts that have none of their own.

    Raises:
        Refusal: It is too large, an address is not in the address book, another bundle has the name or the same
            addresses, or the account has no room for another one.
    """
    assert addresses, "a bundle is never empty"
    _check_size(tx, account_id, len(addresses), defaults)
    _check_in_book(tx, account_id, addresses)
    _check_name_is_free(tx, account_id, name)
    _check_members_are_new(tx, account_id, addresses)
    count, last = tx.rows(_COUNT, account_id=account_id)[0]
    quota = quotas.limit(tx, account_id, "bundles", defaults)
    if count >= quota:
        raise Refusal("BUNDLE_QUOTA_REACHED", f"the account has {count} of at most {quota} bundles", quota=quota)
    tx.run(_ADD, id=id, account_id=account_id, position=(last or 0) + 1, name=name, members=_digest(addresses))
    tx.run_many(_ADD_MEMBER, [(id, address, position) for position, address in enumerate(addresses, 1)])
    return Bundle(id, name, tuple(addresses))


def rename(tx: Transaction, account_id: str, id: str, name: str) -> Bundle:
    """Change the name of a bundle, and return the bundle.

    Raises:
        Refusal: There is no such bundle, or another one has the name.
    """
    bundle = find(tx, account_id, id)
    if bundle.name != name:
        _check_name_is_free(tx, account_id, name)
        tx.run(_RENAME, bundle=id, new_name=name)
    return find(tx, account_id, id)


def add_member(tx: Transaction, account_id: str, id: str, address: str, defaults: Quotas) -> Bundle:
    """Add an address to a bundle, and return the bundle. A present address changes nothing.

    Raises:
        Refusal: There is no such bundle, it would be too large or equal to another one, or the address is not in the
            address book.
    """
    bundle = find(tx, account_id, id)
    if address in bundle.addresses:
        return bundle
    members = (*bundle.addresses, address)
    _check_size(tx, account_id, len(members), defaults)
    _check_in_book(tx, account_id, [address])
    _check_members_are_new(tx, account_id, members)
    last = tx.rows(_LAST_MEMBER, id=id)[0][0]
    tx.run(_ADD_MEMBER, bundle_id=id, address=address, position=last + 1)
    tx.run(_SET_MEMBERS, bundle=id, new_members=_digest(members))
    return find(tx, account_id, id)


def remove_member(tx: Transaction, account_id: str, id: str, address: str) -> Bundle:
    """Remove an address from a bundle, and return the bundle. The address stays in the address book.

    Raises:
        Refusal: There is no such bundle, the address is not in it or is its last one, or another bundle has the
            remaining members.
    """
    bundle = find(tx, account_id, id)
    if address not in bundle.addresses:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "this address is not in the bundle")
    remaining = _without(bundle, address)
    if not remaining:
        raise Refusal("BUNDLE_EMPTY", "this is the bundle's last address: delete the bundle instead")
    _check_members_are_new(tx, account_id, remaining)
    _delete_member(tx, id, address, remaining)
    return find(tx, account_id, id)


def delete(tx: Transaction, account_id: str, id: str) -> None:
    """Delete a bundle. Its addresses stay in the address book.

    Raises:
        Refusal: There is no such bundle (BUNDLE_NOT_FOUND).
    """
    find(tx, account_id, id)
    tx.run(_DROP_MEMBERS, bundle=id)
    tx.run(_DROP, bundle=id)


def remove_from_all(tx: Transaction, account_id: str, address: str) -> None:
    """Remove an address from all bundles, because it is deleted from the address book.

    Raises:
        Refusal: A bundle would become empty or equal to another one (ADDRESSBOOK_ENTRY_NOT_DELETABLE).
    """
    bundles = every(tx, account_id)
    remaining_by_id = {bundle.id: _without(bundle, address) for bundle in bundles if address in bundle.addresses}
    unchanged = {frozenset(bundle.addresses): bundle for bundle in bundles if bundle.id not in remaining_by_id}
    for bundle in bundles:
        remaining = remaining_by_id.get(bundle.id)
        if remaining is None:
            continue
        if not remaining:
            raise Refusal(
                "ADDRESSBOOK_ENTRY_NOT_DELETABLE", f"this is the last address of the bundle {bundle.name} ({bundle.id})"
            )
        if twin := unchanged.get(frozenset(remaining)):
            raise Refusal(
                "ADDRESSBOOK_ENTRY_NOT_DELETABLE",
                f"without this address the bundle {bundle.name} ({bundle.id}) would be the same as {twin.name}",
            )
    for id, remaining in remaining_by_id.items():
        _delete_member(tx, id, address, remaining)


# --- checks before a change -------------------------------------------------------------------------------------------


def _check_size(tx: Transaction, account_id: str, size: int, defaults: Quotas) -> None:
    limit = quotas.limit(tx, account_id, "bundle-size", defaults)
    if size > limit:
        raise Refusal("BUNDLE_SIZE_LIMIT_EXCEEDED", f"{size} addresses: a bundle holds at most {limit}", limit=limit)


def _check_in_book(tx: Transaction, account_id: str, addresses: Iterable[str]) -> None:
    """Raise Refusal if an address is not in the account's address book."""
    unknown = [each for each in addresses if not tx.rows(_IN_BOOK, account_id=account_id, address=each)]
    if unknown:
        raise Refusal(
            "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
            f"not in the address book: {', '.join(unknown)}",
            addresses=unknown,
        )


def _check_name_is_free(tx: Transaction, account_id: str, name: str) -> None:
    if tx.rows(_NAMED, account_id=account_id, name=name):
        raise Refusal("BUNDLE_NAME_TAKEN", "another bundle has this name", name=name)


def _check_members_are_new(tx: Transaction, account_id: str, addresses: Iterable[str]) -> None:
    """Refuse if a bundle has exactly these members.

    A bundle is never compared with its own present members: callers pass changed ones.
    """
    twin = only_row(tx.rows(_WITH_THESE_MEMBERS, account_id=account_id, members=_digest(addresses)))
    if twin:
        raise Refusal(
            "BUNDLE_MEMBERS_ALREADY_BUNDLED", "another bundle holds exactly these addresses", bundleId=twin[0]
        )


def _delete_member(tx: Transaction, id: str, address: str, remaining: Iterable[str]) -> None:
    tx.run(_DROP_MEMBER, bundle=id, wallet=address)
    tx.run(_SET_MEMBERS, bundle=id, new_members=_digest(remaining))


def _without(bundle: Bundle, address: str) -> tuple[str, ...]:
    return tuple(each for each in bundle.addresses if each != address)


def _digest(addresses: Iterable[str]) -> bytes:
    """Return a digest of the members that does not depend on their order."""
    return hashlib.sha256("\n".join(sorted(addresses)).encode()).digest()


def _bundles(rows: Iterable[tuple[str, str, str]]) -> list[Bundle]:
    """Return bundles from rows of bundle and member, one row per member."""
    members: dict[tuple[str, str], list[str]] = {}
    for id, name, address in rows:
        members.setdefault((id, name), []).append(address)
    return [Bundle(id, name, tuple(addresses)) for (id, name), addresses in members.items()]
