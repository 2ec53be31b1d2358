"""The API over a real chain: answers, follows, outlives its node, and can be read and tried in a browser."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from chainfolio import amounts
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from tests.e2e.conftest import Server, Serving, World, history

pytestmark = pytest.mark.node

STRANGER = "0x00000000000000000000000000000000deadbeef"


def raws(document: dict[str, Any]) -> dict[str, int]:
    """Return the raw balances of a portfolio with sources, by contract."""
    return {asset["contract"]: int(asset["sources"]["raw"]) for asset in assets(document)}


def assets(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The loose tokens; a wallet without any has none on no chain."""
    chains = document["assetByProtocols"]["wallet"]["chains"].values()
    return [asset for chain in chains for asset in chain["protocolPositions"]["WALLET"]["assets"]]


def gift(world: World, raw: int) -> Tx:
    """Send some of Alice's USDC to an address that never had any."""
    usdc = world.deployment.tokens["USDC"].address
    return tx(world.deployment.accounts["alice"], usdc, "transfer(address,uint256)", STRANGER, raw)


async def test_every_operation_answers_and_the_same_question_twice_gets_the_same_bytes(
    world: World, serving: Serving
) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        both = f"{world.wallets['alice']},{world.wallets['bob']}"
        for path in (
            f"/v1/portfolio?addresses={both}&includeSources=true",
            f"/v1/nav?addresses={both}",
            f"/v1/status?addresses={both}",
            "/v1/chains",
            "/healthz",
            "/openapi.json",
            "/docs",
        ):
            first, second = await server.get(path), await server.get(path)
            assert (first[0], second[0]) == (200, 200), path
            assert first[1] == second[1], path
        assert (await server.get(f"/v1/wallet?addresses={both}"))[0] == 200
        assert (await server.get("/", key=""))[0] == 200
        assert (await server.get(f"/v1/portfolio?addresses={both}", key="cf_live_x"))[0] == 401


async def test_each_free_operation_of_the_description_is_served(world: World, serving: Serving) -> None:
    async with serving(world) as server:
        description = await server.json("/openapi.json")
        assert description["openapi"].startswith("3.1")
        public = [
            path for path, methods in description["paths"].items() if methods.get("get", {}).get("security") == []
        ]
        assert {"/healthz", "/readyz", "/docs"} <= set(public)
        assert {path: (await server.get(path, key=""))[0] for path in public} == dict.fromkeys(public, 200)


async def test_the_answers_of_all_operations_agree(world: World, serving: Serving) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        addresses = ",".join(world.wallets.values())
        portfolios = await server.json(f"/v1/portfolio?addresses={addresses}")
        wallets = await server.json(f"/v1/wallet?addresses={addresses}")
        status, body, _ = await server.get(f"/v1/nav?addresses={addresses}")
        assert [each["address"] for each in portfolios] == list(world.wallets.values())
        loose = [each["assetByProtocols"]["wallet"]["value"] for each in portfolios]
        assert loose == [each["networth"] for each in wallets]
        value_usd = amounts.text(amounts.total([Decimal(each["networth"]) for each in portfolios]))
        assert status == 200
        assert f'"nav":{value_usd},'.encode() in body.replace(b" ", b"")


async def test_what_happens_on_the_chain_is_seen_when_one_waits_for_it(world: World, serving: Serving) -> None:
    snapshot = world.node.snapshot()
    try:
        async with serving(world, cache_s=0) as server:
            await server.at(world.node.height)
            usdc = world.deployment.tokens["USDC"].address.lower()
            assert raws(await server.portfolio(STRANGER, "&includeSources=true")) == {}
            await server.at(world.node.settle([gift(world, 1_234_567)]))
            after = await server.portfolio(STRANGER, "&includeSources=true&waitForSync=true")
            assert raws(after)[usdc] == 1_234_567
            assert after["completeness"] == "complete"
            final = world.node.mine(12) - 8
            await server.until(lambda chain: chain["indexed"] >= final + 8 and chain["lagBlocks"] == 0)
            second = await server.portfolio(STRANGER, "&includeSources=true&waitForSync=true")
            assert raws(second) == raws(after)
    finally:
        world.node.revert(snapshot)


@pytest.mark.slow("tests/engine/test_transaction_reorgs.py takes back what a reorganisation undoes")
async def test_a_reorg_takes_back_what_it_undoes(world: World, serving: Serving) -> None:
    snapshot = world.node.snapshot()
    try:
        async with serving(world, cache_s=0) as server:
            usdc = world.deployment.tokens["USDC"].address.lower()
            await server.at(world.node.settle([gift(world, 5)]))
            assert raws(await server.portfolio(STRANGER, "&includeSources=true&waitForSync=true"))[usdc] == 5
            world.node.reorg(1)
            await server.at(world.node.mine())
            assert raws(await server.portfolio(STRANGER, "&includeSources=true&waitForSync=true")) == {}
            giver = await server.portfolio(world.wallets["alice"], "&includeSources=true")
            for source in (asset["sources"] for asset in assets(giver)):
                assert source["blockHash"] == world.node.block(int(source["blockNumber"]))["hash"]
    finally:
        world.node.revert(snapshot)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_without_its_node_it_answers_what_it_knows_and_recovers_with_it(serving: Serving) -> None:
    with LocalNode() as node:
        world = history(node)
        alice, bob = world.wallets["alice"], world.wallets["bob"]
        async with serving(world, cache_s=0) as server:
            await server.at(node.height)
            before = await server.portfolio(alice)
            node.stop()
            await server.until(lambda chain: chain["reason"] is not None)
            await knows_what_it_knew(server, alice, before)
            for path in (f"/v1/portfolio?addresses={bob}", f"/v1/portfolio?addresses={alice}&waitForSync=true"):
                await says_when_to_try_again(server, path)
            # The same chain on the same port, as after a restart.
            with LocalNode(port=node.port) as back:
                usdc = world.deployment.tokens["USDC"].address.lower()
                second_history = history(back)
                assert second_history.deployment == world.deployment
                await server.at(back.settle([gift(second_history, 77)]))
                after = await server.portfolio(STRANGER, "&includeSources=true&waitForSync=true")
                assert raws(after)[usdc] == 77
                recovered = await server.until(lambda chain: chain["reason"] is None)
                assert recovered["healthy"] is True
                fresh = await server.portfolio(alice, "&waitForSync=true")
                assert int(fresh["lastUpdated"]) > int(before["lastUpdated"])
                assert fresh["completeness"] == "complete"


async def knows_what_it_knew(server: Server, address: str, before: dict[str, Any]) -> None:
    """The answer of before the trouble, with its age: nothing in it is new, and it says so."""
    stale = await server.portfolio(address)
    assert stale == before
    (status,) = await server.json(f"/v1/status?addresses={address}")
    assert status["portfolioLastSync"] is not None


async def says_when_to_try_again(server: Server, path: str) -> None:
    status, body, headers = await server.get(path)
    assert status == 503
    assert int(headers["Retry-After"]) >= 1
    assert set(msgspec.json.decode(body)) >= {"error", "message"}
    assert b"127.0.0.1" not in body
