"""Every test here runs once for each chain in SUBJECTS. A new family is one file like `evm.py` and one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chains.evm import evm
from tests.chains.subject import ChainUnderTest, Opening

SUBJECTS: dict[str, Opening] = {"evm": evm}
TRADED = 120  # blocks of the chain that all read and nobody changes
SHORT = 75  # blocks of a chain that one test may change: more than are final behind the head


@pytest.fixture(scope="module", params=SUBJECTS)
def traded(request: pytest.FixtureRequest) -> Iterator[ChainUnderTest]:
    """A chain with a history, for reading."""
    with SUBJECTS[request.param](TRADED) as subject:
        yield subject


@pytest.fixture(params=SUBJECTS)
def living(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A chain of one's own, to be changed."""
    with SUBJECTS[request.param](SHORT) as subject:
        yield subject
