"""Each test here runs once for each other maker's node, on one history of wrapping and paying."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from chainfolio.localchain.node import LocalNode
from tests.nodes.nodes import Ganache, Hardhat
from tests.nodes.small import SmallSubject

MAKERS: dict[str, type[LocalNode]] = {"anvil": LocalNode, "hardhat": Hardhat, "ganache": Ganache}


def started(maker: str) -> LocalNode:
    """A running node; skips where npm cannot install it."""
    try:
        return MAKERS[maker]().start()
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"{maker} cannot be installed here: {error}")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("hardhat", marks=pytest.mark.slow("one more maker, whose node is installed first")),
        "ganache",
    ],
)
def small_subject(request: pytest.FixtureRequest) -> Iterator[SmallSubject]:
    """A node of another maker with a history, to which tests may add."""
    node = started(request.param)
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield SmallSubject(node, Path(folder), request.param)
        finally:
            node.stop()
