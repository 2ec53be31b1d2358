"""Bundles: named groups of addresses out of the address book; never empty, and no two of an account alike.

Functions of a transaction in which the account is locked (`accounts.lock`). Who raises a Refusal changed nothing.

Every function takes addresses in their one form (`address_book.distinct`), and looks in this order: is the bundle there
(BUNDLE_NOT_FOUND); does it have that member (ADDRESSBOOK_ENTRY_NOT_FOUND); is it too large
(BUNDLE_SIZE_LIMIT_EXCEEDED) or would it be empty (BUNDLE_EMPTY); are its members in the address book
(BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK); is its name free (BUNDLE_NAME_TAKEN); are its members those of no other bundle
(BUNDLE_MEMBERS_ALREADY_BUNDLED); is there room for one more (BUNDLE_QUOTA_REACHED).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.settings import Quotas
from storage.state import quotas, schema
from storage.state.database import Statement, Transaction, argument, one
from storage.state.refusals import Refusal


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
_HOLDING = Statement(
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
    """An account's bundles in the order in which they were made."""
    return _bundles(tx.rows(_ALL, account_id=account_id))


def find(tx: Transaction, account_id: str, id: str) -> Bundle:
    """One bundle; Refusal where the account has none of that id, in the same words whoever else may have it."""
    found = _bundles(tx.rows(_ONE, account_id=account_id, id=id)) if _ID.match(id) else []
    if not found:
        raise Refusal("BUNDLE_NOT_FOUND", "there is no bundle of that id")
    return found[0]


def create(tx: Transaction, account_id: str, id: str, name: str, addresses: Sequence[str], defaults: Quotas) -> Bundle:
    """A new bundle."""
    assert addresses, "a bundle is never empty"
    _fits(tx, account_id, len(addresses), defaults)
    _in_book(tx, account_id, addresses)
    _free(tx, account_id, name)
    _alone(tx, account_id, addresses)
    count, last = tx.rows(_COUNT, account_id=account_id)[0]
    quota = quotas.limit(tx, account_id, "bundles", defaults)
    if count >= quota:
        raise Refusal("BUNDLE_QUOTA_REACHED", f"the account has {count} of at most {quota} bundles", quota=quota)
    tx.run(_ADD, id=id, account_id=account_id, position=(last or 0) + 1, name=name, members=_digest(addresses))
    tx.many(_ADD_MEMBER, [(id, address, place) for place, address in enumerate(addresses, 1)])
    return Bundle(id, name, tuple(addresses))


def rename(tx: Transaction, account_id: str, id: str, name: str) -> Bundle:
    """Give a bundle another name; its own is no change."""
    found = find(tx, account_id, id)
    if found.name != name:
        _free(tx, account_id, name)
        tx.run(_RENAME, bundle=id, new_name=name)
    return find(tx, account_id, id)


def add_member(tx: Transaction, account_id: str, id: str, address: str, defaults: Quotas) -> Bundle:
    """Put one more address into a bundle; one that is in it already is no change."""
    found = find(tx, account_id, id)
    if address in found.addresses:
        return found
    members = (*found.addresses, address)
    _fits(tx, account_id, len(members), defaults)
    _in_book(tx, account_id, [address])
    _alone(tx, account_id, members)
    last = tx.rows(_LAST_MEMBER, id=id)[0][0]
    tx.run(_ADD_MEMBER, bundle_id=id, address=address, position=last + 1)
    tx.run(_SET_MEMBERS, bundle=id, new_members=_digest(members))
    return find(tx, account_id, id)


def remove_member(tx: Transaction, account_id: str, id: str, address: str) -> Bundle:
    """Take an address out of a bundle; it stays in the address book."""
    found = find(tx, account_id, id)
    if address not in found.addresses:
        raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "this address is not in the bundle")
    rest = _without(found, address)
    if not rest:
        raise Refusal("BUNDLE_EMPTY", "this is the bundle's last address: delete the bundle instead")
    _alone(tx, account_id, rest)
    _take_out(tx, id, address, rest)
    return find(tx, account_id, id)


def delete(tx: Transaction, account_id: str, id: str) -> None:
    """Delete a bundle; its addresses stay in the address book."""
    find(tx, account_id, id)
    tx.run(_DROP_MEMBERS, bundle=id)
    tx.run(_DROP, bundle=id)


def leave(tx: Transaction, account_id: str, address: str) -> None:
    """Take an address out of every bundle that it is in, because it leaves the address book: out of all, or none."""
    found = every(tx, account_id)
    rests = {bundle.id: _without(bundle, address) for bundle in found if address in bundle.addresses}
    others = {frozenset(bundle.addresses): bundle for bundle in found if bundle.id not in rests}
    for bundle in found:
        rest = rests.get(bundle.id)
        if rest is None:
            continue
        if not rest:
            raise Refusal(
                "ADDRESSBOOK_ENTRY_NOT_DELETABLE", f"this is the last address of the bundle {bundle.name} ({bundle.id})"
            )
        if twin := others.get(frozenset(rest)):
            raise Refusal(
                "ADDRESSBOOK_ENTRY_NOT_DELETABLE",
                f"without this address the bundle {bundle.name} ({bundle.id}) would be the same as {twin.name}",
            )
    for id, rest in rests.items():
        _take_out(tx, id, address, rest)


# --- what is looked at before anything is changed --------------------------------------------------------------------


def _fits(tx: Transaction, account_id: str, size: int, defaults: Quotas) -> None:
    most = quotas.limit(tx, account_id, "bundle-size", defaults)
    if size > most:
        raise Refusal("BUNDLE_SIZE_LIMIT_EXCEEDED", f"{size} addresses: a bundle holds at most {most}", limit=most)


def _in_book(tx: Transaction, account_id: str, addresses: Iterable[str]) -> None:
    unknown = [each for each in addresses if not tx.rows(_IN_BOOK, account_id=account_id, address=each)]
    if unknown:
        raise Refusal(
            "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
            f"not in the address book: {', '.join(unknown)}",
            addresses=unknown,
        )


def _free(tx: Transaction, account_id: str, name: str) -> None:
    if tx.rows(_NAMED, account_id=account_id, name=name):
        raise Refusal("BUNDLE_NAME_TAKEN", "another bundle has this name", name=name)


def _alone(tx: Transaction, account_id: str, addresses: Iterable[str]) -> None:
    """Refused where a bundle holds exactly these: by the set that is asked for, so its own members are never asked."""
    twin = one(tx.rows(_HOLDING, account_id=account_id, members=_digest(addresses)))
    if twin:
        raise Refusal(
            "BUNDLE_MEMBERS_ALREADY_BUNDLED", "another bundle holds exactly these addresses", bundleId=twin[0]
        )


def _take_out(tx: Transaction, id: str, address: str, rest: Iterable[str]) -> None:
    tx.run(_DROP_MEMBER, bundle=id, wallet=address)
    tx.run(_SET_MEMBERS, bundle=id, new_members=_digest(rest))


def _without(bundle: Bundle, address: str) -> tuple[str, ...]:
    return tuple(each for each in bundle.addresses if each != address)


def _digest(addresses: Iterable[str]) -> bytes:
    """The same for the same members, in whatever order."""
    return hashlib.sha256("\n".join(sorted(addresses)).encode()).digest()


def _bundles(rows: Iterable[tuple[str, str, str]]) -> list[Bundle]:
    """Bundles from rows of bundle and member, one row a member."""
    members: dict[tuple[str, str], list[str]] = {}
    for id, name, address in rows:
        members.setdefault((id, name), []).append(address)
    return [Bundle(id, name, tuple(addresses)) for (id, name), addresses in members.items()]
