"""An address without a configured chain is an issue and free, on every route; only such ones are 501.

The engine, the store and the node are real.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from chainfolio.api.routes import ROUTES
from chainfolio.cli.main import main
from chainfolio.localchain.node import LocalNode
from tests.api.fakes import ALICE, SOL, STARKNET, TRON
from tests.api.over_nodes import (
    READS,
    WRITES,
    ask,
    completeness_of,
    cost_of,
    group_of,
    lived,
    served,
    settings_of,
    tenant_of,
)
from tests.api.tenants import World

pytestmark = pytest.mark.node
in_one_loop = pytest.mark.asyncio(loop_scope="module")
NAMES = [*READS, *WRITES]
# These name their chain, and refuse addresses of another kind as malformed; the book takes addresses of every kind.
OF_ONE_CHAIN = {"portfolio_at_block", "approvals"}
BOOK = {"create_bundle"}
KINDS = {"solana": (SOL, "Solana"), "tron": (TRON, "Tron"), "starknet": (STARKNET, "Starknet")}
UNSERVED = [pytest.param(address, name, id=kind) for kind, (address, name) in KINDS.items()]


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with lived() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(node: LocalNode, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A server with an EVM chain, which is indexed."""
    folder = tmp_path_factory.mktemp("kinds")
    config = settings_of(folder, node)
    index = ["index", "local", "--config", str(config), "--json"]
    assert await asyncio.to_thread(main, index) == 0
    async with served(config, folder) as world:
        yield world


def test_every_route_that_takes_addresses_is_tried() -> None:
    segments = ("query", "body")
    takes = {
        route.name
        for route in ROUTES
        for segment in segments
        if "addresses" in getattr(route.arguments.get(segment), "__struct_fields__", ())
    }
    # Files are tried in test_export, and the stream of statuses in test_events.
    assert takes == {*NAMES, *OF_ONE_CHAIN, *BOOK, "export_file", "events"}


@pytest.mark.slow("other kinds are refused in the same words", fast=["*-solana", "portfolio-*"])
@in_one_loop
@pytest.mark.parametrize(("address", "kind"), UNSERVED)
@pytest.mark.parametrize("name", NAMES)
async def test_addresses_without_a_chain_are_501_and_cost_nothing(
    world: World, name: str, address: str, kind: str
) -> None:
    response, cost = await ask(world, name, address)
    assert response.status == 501, response.body
    assert response.json["message"].startswith(f"No {kind} chain is configured: "), response.body
    assert cost == 0


@pytest.mark.slow("other kinds are told in the same words", fast=["*-tron", "portfolio-*"])
@in_one_loop
@pytest.mark.parametrize(("address", "kind"), UNSERVED)
@pytest.mark.parametrize("name", NAMES)
async def test_an_address_without_a_chain_beside_another_is_an_issue(
    world: World, name: str, address: str, kind: str
) -> None:
    response, cost = await ask(world, name, address, ALICE)
    assert response.status == 200, response.body
    completeness, issues = completeness_of(response)
    assert "partial" in completeness
    assert f"{address}: No {kind} chain is configured" in issues, "the address is named with the reason"
    assert f"{ALICE}: No" not in issues
    assert cost == cost_of(name), "one of the two is paid for"


@in_one_loop
async def test_a_virtual_user_without_a_chain_costs_nothing_beside_another(world: World) -> None:
    tenant, group = tenant_of(world, ALICE)
    tron_group = group_of(world, tenant, TRON)
    before = (await world.settled_balance(tenant)).available
    response = await tenant.ask("GET", f"/v1/virtual-users/portfolio?addresses=virtual:{group},virtual:{tron_group}")
    assert [each["completeness"] for each in response.json][1] == "partial"
    assert before - (await world.settled_balance(tenant)).available == 1


@in_one_loop
@pytest.mark.parametrize("name", ["portfolio_at_block", "approvals"])
async def test_a_route_of_one_chain_says_that_the_chain_is_not_configured(world: World, name: str) -> None:
    tenant = world.tenant(uuid.uuid4().hex, grants=("portfolio", "at-block"))
    before = (await world.settled_balance(tenant)).available
    paths = {
        "portfolio_at_block": f"/v1/portfolio/at-block?addresses={ALICE}&chainKey=ethereum&blockNumber=5",
        "approvals": f"/v1/approvals/ethereum?addresses={ALICE}",
    }
    response = await tenant.ask("GET", paths[name])
    assert response.status == 501
    assert response.json["message"].startswith("No chain ethereum is configured: ")
    assert (await world.settled_balance(tenant)).available == before


@in_one_loop
async def test_validators_without_a_beacon_chain_are_501_with_the_reason(world: World) -> None:
    tenant = world.tenant(uuid.uuid4().hex, grants=("enterprise",))
    response = await tenant.ask("GET", "/v1/beacon/validators/details/index/7")
    assert response.status == 501
    assert response.json["message"].startswith("No beacon chain is configured: ")


@in_one_loop
@pytest.mark.parametrize("name", NAMES)
async def test_a_server_without_chains_says_which_kind_it_lacks(tmp_path: Path, name: str) -> None:
    config = tmp_path / "chainfolio.toml"
    config.write_text(f'data = "{tmp_path}/data"\n')
    async with served(config, tmp_path) as bare:
        response, cost = await ask(bare, name, ALICE)
    assert response.status == 501, response.body
    assert response.json["message"].startswith("No EVM chain is configured: ")
    assert cost == 0
