"""The address books and bundles of two accounts in a store behave as a model of two dictionaries."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from chainfolio.environment import SystemClock
from chainfolio.settings import Quotas
from chainfolio.storage.state import State
from tests.storage.tenants import Model, StoredTenant, outcome, wallet

SMALL = Quotas(addressbook=5, bundles=3, bundle_size=3)
TENANTS = st.sampled_from((0, 1))
WALLETS = st.sampled_from([wallet(number) for number in range(1, 7)])
NAMES = st.sampled_from(("a", "A", "ä", "b"))
BUNDLES = st.integers(0, 5)


@pytest.fixture
def state(state_url: str) -> Iterator[State]:
    opened = State.open(state_url, bytes(32), SystemClock(), random.Random(1))
    yield opened
    opened.close()


class Tenants(RuleBasedStateMachine):
    """Two accounts with their stores and models; a bundle's number may be unused or the other account's."""

    def __init__(self, state: State) -> None:
        super().__init__()
        accounts = [state.create_account(name)[0].id for name in ("ann", "eve")]
        self.stored = [StoredTenant(state, id, SMALL) for id in accounts]
        self.models = [Model(SMALL) for _ in accounts]
        self.mark = accounts[0]
        self.bundle_count = 0

    def _compare(self, tenant: int, action: str, *arguments: object) -> None:
        expected = outcome(lambda: getattr(self.models[tenant], action)(*arguments))
        assert outcome(lambda: getattr(self.stored[tenant], action)(*arguments)) == expected

    def _id(self, number: int) -> str:
        return f"{self.mark}-{number}"

    @rule(tenant=TENANTS, labels=st.dictionaries(WALLETS, NAMES, min_size=1))
    def add(self, tenant: int, labels: dict[str, str]) -> None:
        self._compare(tenant, "add", labels)

    @rule(tenant=TENANTS, address=WALLETS, label=NAMES)
    def label(self, tenant: int, address: str, label: str) -> None:
        self._compare(tenant, "label", address, label)

    @rule(tenant=TENANTS, address=WALLETS)
    def remove(self, tenant: int, address: str) -> None:
        self._compare(tenant, "remove", address)

    @rule(tenant=TENANTS, name=NAMES, addresses=st.lists(WALLETS, min_size=1, max_size=4, unique=True))
    def create(self, tenant: int, name: str, addresses: list[str]) -> None:
        self._compare(tenant, "create", self._id(self.bundle_count), name, addresses)
        self.bundle_count += 1

    @rule(tenant=TENANTS, number=BUNDLES, name=NAMES)
    def rename(self, tenant: int, number: int, name: str) -> None:
        self._compare(tenant, "rename", self._id(number), name)

    @rule(tenant=TENANTS, number=BUNDLES, address=WALLETS)
    def add_member(self, tenant: int, number: int, address: str) -> None:
        self._compare(tenant, "add_member", self._id(number), address)

    @rule(tenant=TENANTS, number=BUNDLES, address=WALLETS)
    def remove_member(self, tenant: int, number: int, address: str) -> None:
        self._compare(tenant, "remove_member", self._id(number), address)

    @rule(tenant=TENANTS, number=BUNDLES)
    def delete(self, tenant: int, number: int) -> None:
        self._compare(tenant, "delete", self._id(number))

    @invariant()
    def all_is_as_the_models_say(self) -> None:
        for stored, model in zip(self.stored, self.models, strict=True):
            contents, expected = stored.contents(), model.contents()
            assert contents == expected
            assert [list(each) for each in contents] == [list(each) for each in expected]  # in their order, too


def test_the_store_does_what_two_dictionaries_would(state: State) -> None:
    limits = settings(max_examples=settings().max_examples // 3, stateful_step_count=40)

    class Here(Tenants):
        def __init__(self) -> None:
            super().__init__(state)

    run_state_machine_as_test(Here, settings=limits)
