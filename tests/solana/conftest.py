"""A real Solana node with wallets, and the chain that reads it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from chainfolio.localchain.solana.node import SolanaNode
from tests.commands import run_json

ROOT = Path(__file__).parents[2]
GENESIS = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"


@contextmanager
def started() -> Iterator[SolanaNode]:
    """A node; without one the test is skipped."""
    try:
        node = SolanaNode().start()
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"Surfpool cannot be installed here: {error}")
    with node:
        yield node


@pytest.fixture(scope="module")
def node() -> Iterator[SolanaNode]:
    """Start one node for the tests of a module.

    Each test creates separate wallets; the node slows down with each transaction.
    """
    with started() as running:
        yield running


def facts_of(genesis: str, folder: Path) -> Path:
    """The facts of Solana, for a chain with another genesis."""
    path = folder / "facts.toml"
    path.write_text((ROOT / "configs" / "chains" / "solana.toml").read_text().replace(GENESIS, genesis))
    return path


@pytest.fixture
async def chain(node: SolanaNode, tmp_path: Path) -> AsyncIterator[SolanaChain]:
    """The chain of that node."""
    facts = facts_of(node.rpc("getGenesisHash"), tmp_path)
    settings = SolanaSettings(adapter="solana", rpc=[node.url], facts=str(facts), commitment="confirmed")
    chain = build("solana", settings, Environment(), configs=ROOT / "configs")
    yield chain
    await chain.close()


Run = Callable[..., Any]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Return a function that writes settings, given a node's genesis and address, and returns a `Run`.

    The `Run` runs commands that print one JSON document, in the folder of these settings.
    """

    def running_at(genesis: str, url: str) -> Run:
        monkeypatch.chdir(tmp_path)
        lines = [
            'adapter = "solana"',
            f"rpc = [{json.dumps(url)}]",
            f'facts = "{facts_of(genesis, tmp_path)}"',
            'index = "accounts"',
            'commitment = "confirmed"',
        ]
        (tmp_path / "chainfolio.toml").write_text("[chains.solana]\n" + "\n".join(lines) + "\n")
        return partial(run_json, capsys)

    return running_at
