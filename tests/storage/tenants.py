"""An account's address book and bundles in a store, and the same as a model of two dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chainfolio.settings import Quotas
from chainfolio.storage.state import State, accounts, address_book, bundles
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.refusals import Refusal

T = TypeVar("T")
NOW_US = 1_000_000


def wallet(number: int) -> str:
    """An EVM address."""
    return f"0x{number:040x}"


def locked(state: State, account_id: str, work: Callable[[Transaction], T]) -> T:
    """Run `work` in a transaction that locks the account and return its result."""

    def work_locked(tx: Transaction) -> T:
        accounts.lock(tx, account_id)
        return work(tx)

    return state.database.write(work_locked)


def outcome(work: Callable[[], object]) -> tuple[Any, ...]:
    """Run `work` and return `("done",)`, or the code and extras of its refusal."""
    try:
        work()
    except Refusal as refusal:
        return refusal.code, refusal.extras
    return ("done",)


@dataclass
class StoredTenant:
    """An account's address book and bundles in a state store."""

    state: State
    account_id: str
    quotas: Quotas

    def _do(self, work: Callable[[Transaction], T]) -> T:
        return locked(self.state, self.account_id, work)

    def add(self, labels: dict[str, str]) -> None:
        self._do(lambda tx: address_book.add(tx, self.account_id, labels, self.quotas, NOW_US))

    def label(self, address: str, label: str) -> None:
        self._do(lambda tx: address_book.rename(tx, self.account_id, address, label))

    def remove(self, address: str) -> None:
        self._do(lambda tx: address_book.remove(tx, self.account_id, address, NOW_US))

    def create(self, id: str, name: str, addresses: list[str]) -> None:
        self._do(lambda tx: bundles.create(tx, self.account_id, id, name, addresses, self.quotas))

    def rename(self, id: str, name: str) -> None:
        self._do(lambda tx: bundles.rename(tx, self.account_id, id, name))

    def add_member(self, id: str, address: str) -> None:
        self._do(lambda tx: bundles.add_member(tx, self.account_id, id, address, self.quotas))

    def remove_member(self, id: str, address: str) -> None:
        self._do(lambda tx: bundles.remove_member(tx, self.account_id, id, address))

    def delete(self, id: str) -> None:
        self._do(lambda tx: bundles.delete(tx, self.account_id, id))

    def contents(self) -> tuple[dict[str, str], dict[str, tuple[str, list[str]]]]:
        """Return labels by address, and name and members by bundle id, in order."""
        rows = self.state.database.read(
            lambda tx: (address_book.entries(tx, self.account_id), bundles.every(tx, self.account_id))
        )
        return (
            {entry.address: entry.label for entry in rows[0]},
            {bundle.id: (bundle.name, list(bundle.addresses)) for bundle in rows[1]},
        )


@dataclass
class Model:
    """A model of `StoredTenant`: labels by address, and name and members by bundle id."""

    quotas: Quotas
    labels: dict[str, str] = field(default_factory=dict)
    bundles: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def add(self, labels: dict[str, str]) -> None:
        fresh = {address: label for address, label in labels.items() if address not in self.labels}
        if fresh and len(self.labels) + len(fresh) > self.quotas.addressbook:
            raise Refusal("ADDRESSBOOK_QUOTA_REACHED", "", quota=self.quotas.addressbook, current=len(self.labels))
        self.labels |= fresh

    def label(self, address: str, label: str) -> None:
        self._check_address(address)
        self.labels[address] = label

    def remove(self, address: str) -> None:
        self._check_address(address)
        after = {id: (name, [each for each in all_ if each != address]) for id, (name, all_) in self.bundles.items()}
        sets = [frozenset(members) for _, members in after.values()]
        if frozenset() in sets or len(set(sets)) < len(sets):
            raise Refusal("ADDRESSBOOK_ENTRY_NOT_DELETABLE", "")
        del self.labels[address]
        self.bundles = after

    def create(self, id: str, name: str, addresses: list[str]) -> None:
        self._fits(addresses)
        self._in_book(addresses)
        self._free(name)
        self._alone(addresses)
        if len(self.bundles) >= self.quotas.bundles:
            raise Refusal("BUNDLE_QUOTA_REACHED", "", quota=self.quotas.bundles)
        self.bundles[id] = (name, list(addresses))

    def rename(self, id: str, name: str) -> None:
        old, members = self._bundle(id)
        if name != old:
            self._free(name)
        self.bundles[id] = (name, members)

    def add_member(self, id: str, address: str) -> None:
        name, members = self._bundle(id)
        if address in members:
            return
        self._fits([*members, address])
        self._in_book([address])
        self._alone([*members, address])
        self.bundles[id] = (name, [*members, address])

    def remove_member(self, id: str, address: str) -> None:
        name, members = self._bundle(id)
        if address not in members:
            raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "")
        remaining = [each for each in members if each != address]
        if not remaining:
            raise Refusal("BUNDLE_EMPTY", "")
        self._alone(remaining)
        self.bundles[id] = (name, remaining)

    def delete(self, id: str) -> None:
        self._bundle(id)
        del self.bundles[id]

    def contents(self) -> tuple[dict[str, str], dict[str, tuple[str, list[str]]]]:
        """Return labels by address, and name and members by bundle id, in order."""
        return self.labels, self.bundles

    def _check_address(self, address: str) -> None:
        if address not in self.labels:
            raise Refusal("ADDRESSBOOK_ENTRY_NOT_FOUND", "")

    def _bundle(self, id: str) -> tuple[str, list[str]]:
        if id not in self.bundles:
            raise Refusal("BUNDLE_NOT_FOUND", "")
        return self.bundles[id]

    def _fits(self, addresses: list[str]) -> None:
        if len(addresses) > self.quotas.bundle_size:
            raise Refusal("BUNDLE_SIZE_LIMIT_EXCEEDED", "", limit=self.quotas.bundle_size)

    def _in_book(self, addresses: list[str]) -> None:
        strangers = [address for address in addresses if address not in self.labels]
        if strangers:
            raise Refusal("BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK", "", addresses=strangers)

    def _free(self, name: str) -> None:
        if name in [each for each, _ in self.bundles.values()]:
            raise Refusal("BUNDLE_NAME_TAKEN", "", name=name)

    def _alone(self, addresses: list[str]) -> None:
        for id, (_, members) in self.bundles.items():
            if set(members) == set(addresses):
                raise Refusal("BUNDLE_MEMBERS_ALREADY_BUNDLED", "", bundleId=id)
