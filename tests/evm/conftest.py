"""The local chain, once for each module that needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chainfolio.localchain.node import LocalNode
from tests.evm.anvil import Local, populated


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    with LocalNode() as node:
        yield populated(node)
