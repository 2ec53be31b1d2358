"""A failing chain removes its own rows only: answers name it, and are 503 if no chain answers.

The engine, the store and the node are real; two other chains have nodes that are down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chainfolio.cli.main import main
from chainfolio.localchain.node import LocalNode
from tests.api.fakes import ALICE, BOB, SOL
from tests.api.over_nodes import ask, completeness_of, lived, served, settings_of
from tests.api.tenants import World

pytestmark = pytest.mark.node
in_one_loop = pytest.mark.asyncio(loop_scope="module")
DOWN = (
    '[chains.base]\nrpc = ["http://127.0.0.1:9"]\n[chains.solana]\nadapter = "solana"\nrpc = ["http://127.0.0.1:9"]\n'
)
NAMES = [
    "portfolio",
    "wallet",
    "nav",
    "historical",
    "token_overview",
    "performance",
    "gains",
    "virtual_users_portfolio",
]
# Of the past nothing is known of a chain whose nodes are down: not even whether it had begun.
NOW = ["portfolio", "wallet", "nav", "virtual_users_portfolio"]


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with lived() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(node: LocalNode, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A server with a chain that is indexed, and two chains whose nodes are down."""
    folder = tmp_path_factory.mktemp("failing")
    config = settings_of(folder, node)
    index = ["index", "local", "--config", str(config), "--json"]
    assert await asyncio.to_thread(main, index) == 0
    config.write_text(config.read_text() + DOWN)
    async with served(config, folder) as world:
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dead(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A server all of whose nodes are down."""
    folder = tmp_path_factory.mktemp("dead")
    config = folder / "chainfolio.toml"
    config.write_text(f'data = "{folder}/data"\n{DOWN}')
    async with served(config, folder) as world:
        yield world


def worth_of(document: dict[str, Any]) -> Decimal:
    """The net worth of a portfolio, or the value of /nav."""
    return Decimal(document["networth"] if "networth" in document else document["nav"])


@in_one_loop
@pytest.mark.parametrize("name", ["portfolio", "wallet", "nav", "historical", "virtual_users_portfolio"])
async def test_a_chain_that_is_down_is_named_beside_what_the_others_have(world: World, name: str) -> None:
    response, cost = await ask(world, name, ALICE)
    assert response.status == 200, response.body
    completeness, _ = completeness_of(response)
    document: dict[str, Any] = response.json[0] if isinstance(response.json, list) else response.json
    assert completeness == {"partial"}
    assert [each["adapter"] for each in document["issues"] if "could not be read" in each["reason"]] == ["base"]
    assert worth_of(document) == 6000
    assert cost == 1


@in_one_loop
async def test_tokens_of_a_day_say_that_a_chain_is_missing(world: World) -> None:
    response, _ = await ask(world, "token_overview", ALICE)
    assert (response.status, completeness_of(response)[0], response.json[0]["value"]) == (200, {"partial"}, "6000")


@in_one_loop
@pytest.mark.parametrize("name", NAMES)
async def test_an_address_none_of_whose_chains_answers_is_503_and_costs_nothing(world: World, name: str) -> None:
    response, cost = await ask(world, name, SOL)
    assert (response.status, cost) == (503, 0), response.body


@in_one_loop
@pytest.mark.parametrize("name", NOW)
@pytest.mark.parametrize("extra", ["", "&waitForSync=true"])
async def test_an_address_none_of_whose_chains_answers_costs_another_one_nothing(
    world: World, name: str, extra: str
) -> None:
    response, cost = await ask(world, name, SOL, ALICE, extra="" if name == "wallet" else extra)
    assert (response.status, cost) == (200, 1), response.body
    documents = response.json if isinstance(response.json, list) else [response.json]
    assert sum(map(worth_of, documents)) == 6000
    assert {each["adapter"] for each in documents for each in each["issues"] if "could not" in each["reason"]} == {
        "base",
        "solana",
    }


@in_one_loop
@pytest.mark.parametrize("name", NAMES)
async def test_if_no_chain_answers_several_addresses_are_503_and_cost_nothing(dead: World, name: str) -> None:
    response, cost = await ask(dead, name, ALICE, SOL, BOB)
    assert (response.status, cost) == (503, 0), response.body


async def test_days_that_are_stored_are_answered_beside_a_chain_that_is_down(node: LocalNode, tmp_path: Path) -> None:
    config = settings_of(tmp_path, node)
    assert await asyncio.to_thread(main, ["index", "local", "--config", str(config), "--json"]) == 0
    async with served(config, tmp_path) as online:
        response, _ = await ask(online, "performance", ALICE)
        assert (response.status, response.json["completeness"]) == (200, "complete"), response.body
        days = response.json["days"]
    config.write_text(config.read_text().replace(node.url, "http://127.0.0.1:9"))
    (tmp_path / "state.db").unlink()  # its accounts have the same ids
    async with served(config, tmp_path) as down:
        response, _ = await ask(down, "performance", ALICE)
        assert (response.status, response.json["days"]) == (200, days), "what is kept needs no node"
        longer = "&startDate=2023-11-15&endDate=2023-11-16"
        response, cost = await ask(down, "performance", ALICE, extra=longer)
    assert (response.status, response.json["completeness"], cost) == (200, "partial", 1), response.body
    assert response.json["days"] == days
    assert "the chain could not be read" in "".join([*response.json["remarks"], *response.json["reasons"]])
