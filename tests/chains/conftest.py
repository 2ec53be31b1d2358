"""Every test here runs once for each kind of chain in SUBJECTS. A new kind is a file like `evm.py` and one line.

A test that needs what a subject declares to lack is skipped for it: `needs` names capabilities, `needs_rows` tables.
That the declarations are true, and no longer than they have to be, is tested in `test_capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chainfolio import addresses
from chainfolio.addresses import CHAINS
from chainfolio.assets import account
from tests.chains.beacon import beacon
from tests.chains.evm import evm
from tests.chains.invented.chainfolio_invented.kind import InventedKind
from tests.chains.invented_subject import invented
from tests.chains.solana import solana
from tests.chains.starknet import starknet
from tests.chains.subject import ChainUnderTest, Opening
from tests.chains.tron import tron_chain

SUBJECTS: dict[str, Opening] = {
    "beacon": beacon,
    "evm": evm,
    "invented": invented,
    "solana": solana,
    "starknet": starknet,
    "tron": tron_chain,
}
IN_MEMORY = ("invented", "starknet")
PARAMS = [pytest.param(name, marks=() if name in IN_MEMORY else pytest.mark.node) for name in SUBJECTS]
SHARED = [pytest.param(name, marks=(*marks, pytest.mark.xdist_group(name))) for (name,), marks, _ in PARAMS]
TRADED = 120  # blocks of the chain that all tests read and none changes
SHORT = 75  # blocks of a chain that one test may change: more than are final behind the head


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): of the chain; a subject declares those that it lacks")
    config.addinivalue_line("markers", "needs_rows(*tables): that the chain fills; a subject declares those it has not")


@pytest.fixture(scope="package", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the invented kind: its entry point is found, and with it the rules of its addresses."""
    site = tmp_path_factory.mktemp("site")
    info = site / "chainfolio_invented-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chainfolio-invented\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{CHAINS}]\ninvented = {InventedKind.__module__}:KIND\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        _look_again()
        yield
    _look_again()


def _look_again() -> None:
    for cached_function in (addresses.installed, addresses.burn_addresses, account):
        cached_function.cache_clear()


@pytest.fixture(scope="package", params=SHARED)
def traded(request: pytest.FixtureRequest) -> Iterator[ChainUnderTest]:
    """A chain with a history, for reading."""
    with SUBJECTS[request.param](TRADED) as subject:
        yield subject


@pytest.fixture(params=PARAMS)
def living(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A chain of one's own, to be changed."""
    with SUBJECTS[request.param](SHORT) as subject:
        yield subject


@pytest.fixture(autouse=True)
def _declared(request: pytest.FixtureRequest) -> None:
    """Skip what the subject declares to lack."""
    used = [name for name in ("traded", "living") if name in request.fixturenames]
    if not used:
        return
    subject: ChainUnderTest = request.getfixturevalue(used[0])
    needed = {each for mark in request.node.iter_markers("needs") for each in mark.args} & subject.lacks
    rows = {each for mark in request.node.iter_markers("needs_rows") for each in mark.args} & subject.no_rows
    if needed or rows:
        pytest.skip(f"declared as lacking: {', '.join(sorted([*needed, *(f'rows of {each}' for each in rows)]))}")
