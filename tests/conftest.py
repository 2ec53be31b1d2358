"""What holds for every test: how hard properties are searched. CHAINFOLIO_TESTS=deep searches for much longer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e.running import Demo, Running, as_ethereum, demonstrated
from tests.storage.stores import KINDS, Stores, postgres

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", parent=settings.get_profile("here"), max_examples=2_000)
settings.load_profile("deep" if os.environ.get("CHAINFOLIO_TESTS") == "deep" else "here")


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Fresh state stores, of either kind."""
    with postgres() as server:
        yield Stores(tmp_path_factory.mktemp("stores"), server)


@pytest.fixture(params=KINDS)
def state_url(request: pytest.FixtureRequest, stores: Stores) -> str:
    """A state store that nobody has used: whoever asks for it is run once on each kind."""
    return stores.url(request.param)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One `chainfolio demo`, for every test that is its customer."""
    with demonstrated(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="session")
def ethereum(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The demo's chain served once more, under the key `ethereum`."""
    with as_ethereum(demo, tmp_path_factory.mktemp("ethereum")) as running:
        yield running
