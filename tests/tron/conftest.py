"""A Tron node of one's own, and the official client that people use it with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chainfolio.localchain.errors import InstallFailed
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.wallet import Person, TronWeb

RICH = 10**14  # sun


@pytest.fixture(scope="session")
def web() -> Iterator[TronWeb]:
    """The official client, in one process for all tests."""
    try:
        with TronWeb() as web:
            yield web
    except InstallFailed as error:
        pytest.skip(f"the client of Tron cannot be installed here: {error}")


@pytest.fixture
def node(web: TronWeb) -> Iterator[TronNode]:
    """A fresh node: two blocks are not solidified, it answers as TronGrid does, a cycle has ten blocks."""
    with TronNode(lag=2, grid=True, balances=True, maintenance=10) as node:
        yield node


@pytest.fixture
def people(node: TronNode, web: TronWeb) -> tuple[Person, Person, Person]:
    """Two with coins, and one whom the chain has not heard of."""
    alice, bob, carol = (Person(node, web, number) for number in range(3))
    node.endow(alice.hex, RICH)
    node.endow(bob.hex, RICH)
    node.advance()
    return alice, bob, carol
