"""What holds for every test: how hard properties are searched. CHAINFOLIO_TESTS=deep searches for much longer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

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
