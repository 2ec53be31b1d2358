"""Whatever two accounts do with their address books and bundles, the store says and has what two dictionaries would."""

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
from tests.storage.tenants import Kept, Model, told, wallet

SMALL = Quotas(addressbook=5, bundles=3, bundle_size=3)
WHO = st.sampled_from((0, 1))
WALLETS = st.sampled_from([wallet(number) for number in range(1, 7)])
NAMES = st.sampled_from(("a", "A", "ä", "b"))
BUNDLES = st.integers(0, 5)


@pytest.fixture
def state(state_url: str) -> Iterator[State]:
    opened = State.open(state_url, bytes(32), SystemClock(), random.Random(1))
    yield opened
    opened.close()


class Tenants(RuleBasedStateMachine):
    """Two accounts, each with its store and its model. A bundle's number may be the other account's, or nobody's."""

    def __init__(self, state: State) -> None:
        super().__init__()
        accounts = [state.create_account(name)[0].id for name in ("ann", "eve")]
        self.kept = [Kept(state, id, SMALL) for id in accounts]
        self.models = [Model(SMALL) for _ in accounts]
        self.mark = accounts[0]
        self.made = 0

    def _same(self, who: int, what: str, *arguments: object) -> None:
        expected = told(lambda: getattr(self.models[who], what)(*arguments))
        assert told(lambda: getattr(self.kept[who], what)(*arguments)) == expected

    def _id(self, number: int) -> str:
        return f"{self.mark}-{number}"

    @rule(who=WHO, labels=st.dictionaries(WALLETS, NAMES, min_size=1))
    def add(self, who: int, labels: dict[str, str]) -> None:
        self._same(who, "add", labels)

    @rule(who=WHO, address=WALLETS, label=NAMES)
    def label(self, who: int, address: str, label: str) -> None:
        self._same(who, "label", address, label)

    @rule(who=WHO, address=WALLETS)
    def remove(self, who: int, address: str) -> None:
        self._same(who, "remove", address)

    @rule(who=WHO, name=NAMES, addresses=st.lists(WALLETS, min_size=1, max_size=4, unique=True))
    def create(self, who: int, name: str, addresses: list[str]) -> None:
        self._same(who, "create", self._id(self.made), name, addresses)
        self.made += 1

    @rule(who=WHO, number=BUNDLES, name=NAMES)
    def rename(self, who: int, number: int, name: str) -> None:
        self._same(who, "rename", self._id(number), name)

    @rule(who=WHO, number=BUNDLES, address=WALLETS)
    def add_member(self, who: int, number: int, address: str) -> None:
        self._same(who, "add_member", self._id(number), address)

    @rule(who=WHO, number=BUNDLES, address=WALLETS)
    def remove_member(self, who: int, number: int, address: str) -> None:
        self._same(who, "remove_member", self._id(number), address)

    @rule(who=WHO, number=BUNDLES)
    def delete(self, who: int, number: int) -> None:
        self._same(who, "delete", self._id(number))

    @invariant()
    def all_is_as_the_models_say(self) -> None:
        for kept, model in zip(self.kept, self.models, strict=True):
            shown, expected = kept.shown(), model.shown()
            assert shown == expected
            assert [list(each) for each in shown] == [list(each) for each in expected]  # in their order, too


def test_the_store_does_what_two_dictionaries_would(state: State) -> None:
    given = settings(max_examples=settings().max_examples // 3, stateful_step_count=40)

    class Here(Tenants):
        def __init__(self) -> None:
            super().__init__(state)

    run_state_machine_as_test(Here, settings=given)
