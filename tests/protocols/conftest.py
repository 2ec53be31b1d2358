"""The demo's chain, once for all tests of its protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.protocols.artifact_deployment import PublishedChain
from tests.protocols.world import World


@pytest.fixture(scope="session")
def demo_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, blocks=160, seed=11)
        yield World(node, deployment, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def published_chain() -> Iterator[PublishedChain]:
    """A chain for contracts whose code their authors publish; each module deploys its own."""
    with LocalNode(no_mining=True, extra_args=("--code-size-limit", "60000")) as node:
        yield PublishedChain(node)
