"""`chainfolio nav` and `portfolio` with a chain that is down: others are answered, and it is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.localchain.node import LocalNode
from tests.api.fakes import ALICE, SOL, TRON
from tests.api.over_nodes import lived, settings_of
from tests.cli.conftest import Run

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with lived() as running:
        yield running


def configured(folder: Path, node: LocalNode, dead: str) -> None:
    """Settings with a chain, and two chains whose nodes are down."""
    config = settings_of(folder, node)
    down = f'[chains.base]\nrpc = ["{dead}"]\n[chains.solana]\nadapter = "solana"\nrpc = ["{dead}"]\n'
    config.write_text(config.read_text() + down)


def test_a_net_asset_value_names_the_chains_that_are_missing(
    run: Run, here: Path, node: LocalNode, dead: str, waited: list[float]
) -> None:
    configured(here, node, dead)
    ran = run("nav", ALICE, SOL)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("6,000.00 USD, not everything could be read")
    assert f"base: {ALICE}: the chain could not be read" in ran.err
    assert f"solana: {SOL}: the chain could not be read" in ran.err
    document = json.loads(run("nav", ALICE, SOL, "--json").out)
    assert (document["nav"], document["completeness"]) == (6000, "partial")
    assert {"base", "solana"} <= {each["adapter"] for each in document["issues"]}


def test_a_portfolio_names_the_chains_that_are_missing(
    run: Run, here: Path, node: LocalNode, dead: str, waited: list[float]
) -> None:
    configured(here, node, dead)
    first, second = json.loads(run("portfolio", ALICE, SOL, "--json").out)
    assert (first["networth"], first["completeness"], second["completeness"]) == ("6000", "partial", "partial")
    assert "solana" in {each["adapter"] for each in second["issues"]}


@pytest.mark.parametrize("command", ["portfolio", "nav"])
def test_if_no_chain_answers_the_command_fails(
    run: Run, here: Path, node: LocalNode, dead: str, waited: list[float], command: str
) -> None:
    configured(here, node, dead)
    ran = run(command, SOL)
    assert (ran.code, ran.out) == (3, "")


@pytest.mark.parametrize("command", ["portfolio", "nav"])
def test_an_address_without_a_chain_fails_with_the_reason(
    run: Run, here: Path, node: LocalNode, dead: str, command: str
) -> None:
    configured(here, node, dead)
    ran = run(command, TRON)
    assert ran.code != 0
    assert "Tron" in ran.err or "tron" in ran.err, ran.err
