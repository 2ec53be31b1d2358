"""The past of a real chain through the engine: a block, a day, blocks above the head, and pruned blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio import amounts
from chainfolio.api.app import make_app
from chainfolio.api.serve import listening
from chainfolio.assets import ZERO_ADDRESS, account
from chainfolio.cli.main import main
from chainfolio.engine.chain_blocks import block_at
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.results import ApprovalsPage
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest, HistoryUnavailable, NodeBehind, NotFound, NotSupported, Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings
from tests.api.fakes import KEY, FakeKeys
from tests.api.sessions import client_session
from tests.e2e.conftest import Serving, World, configured, history
from tests.e2e.test_portfolio import SHOWN, SYMBOLS, as_json, assets, contract_of, on_chain, over

pytestmark = pytest.mark.node

DAY = date(2024, 2, 29)
MIDNIGHT_S = midnight_us(DAY) // 1_000_000


@pytest.fixture(scope="module")
def past() -> Iterator[tuple[World, int]]:
    """A chain with trades on both sides of a midnight, and the height of the last block before it."""
    with LocalNode(timestamp=MIDNIGHT_S - 86_400) as node:
        world = history(node)
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S - 1)
        last = node.mine()
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S)
        node.mine()
        alice, carol = (world.deployment.accounts[name] for name in ("alice", "carol"))
        node.send(Tx(alice, carol, value=10**18, gas=21_000))
        node.mine(5)
        yield world, last


@pytest.fixture(scope="module")
def world_settings(past: tuple[World, int], tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return indexed(past[0], tmp_path_factory.mktemp("past") / "data")


def indexed(world: World, folder: Path) -> Settings:
    """Settings over an index of the whole chain."""
    settings = configured(world, folder)
    assert main(["index", "local", "--config", str(folder / "chainfolio.toml"), "--json"]) == 0

    async def follow(system: System) -> None:
        chain = system.chain("local")
        with system.tail.lock(chain.key):
            await system.follower(chain).step()

    over(settings, follow)
    return settings


def the_day(settings: Settings, wallets: list[str], day: date = DAY) -> list[dict[str, Any]]:
    accounts = [account(wallet) for wallet in wallets]
    documents: list[dict[str, Any]] = as_json(over(settings, lambda system: Engine(system).historical(accounts, day)))
    return documents


def test_a_day_is_what_the_last_block_before_it_says(past: tuple[World, int], world_settings: Settings) -> None:
    world, last = past
    names = ("alice", "carol")
    for name, document in zip(names, the_day(world_settings, [world.wallets[name] for name in names]), strict=True):
        wallet = world.wallets[name]
        assert (document["address"], document["completeness"]) == (wallet, "complete")
        assert document["lastUpdated"] == str(MIDNIGHT_S * 1000)
        assert "blockNumber" not in document
        assert list(document["chains"]) == ["local"]
        values = []
        for symbol in SYMBOLS:
            contract = contract_of(world, symbol)
            asset, raw = assets(document)[contract], on_chain(world, contract, wallet, last)
            decimals = 18 if symbol == "ETH" else world.deployment.tokens[symbol].decimals
            feed = world.deployment.feeds["ETH" if symbol == "WETH" else symbol]
            price = amounts.amount(world.node.call(feed, "latestAnswer()(int256)", block=last), 8)
            assert asset["balance"] == amounts.text(amounts.amount(raw, decimals))
            assert asset["price"] == amounts.text(price)
            values.append(amounts.value_of(amounts.amount(raw, decimals), price))
        assert document["assetByProtocols"]["wallet"]["value"] == amounts.text(amounts.total(values)) != "0"
        assert on_chain(world, ZERO_ADDRESS, wallet, last) != on_chain(world, ZERO_ADDRESS, wallet, world.node.height)


def test_a_day_before_the_chain_began_is_not_found(past: tuple[World, int], world_settings: Settings) -> None:
    for day in (DAY - timedelta(days=1), date(1999, 12, 31)):
        with pytest.raises(NotFound, match=rf"{past[0].wallets['alice']} can be built for {day}"):
            the_day(world_settings, [past[0].wallets["alice"]], day)


def test_a_day_that_the_chain_has_not_reached_is_an_error(past: tuple[World, int], world_settings: Settings) -> None:
    with pytest.raises(NodeBehind):
        the_day(world_settings, [past[0].wallets["alice"]], DAY + timedelta(days=1))


def test_an_address_without_a_chain_is_named_beside_the_others(
    past: tuple[World, int], world_settings: Settings
) -> None:
    solana, alice = "So11111111111111111111111111111111111111112", past[0].wallets["alice"]
    without, with_chain = the_day(world_settings, [solana, alice])
    issues = [(each["subject"], each["reason"]) for each in without["issues"]]
    assert (without["completeness"], issues) == ("partial", [(solana, "No Solana chain is configured")])
    assert with_chain == the_day(world_settings, [alice])[0]
    with pytest.raises(NotSupported, match=f"No Solana chain is configured: .*{solana}"):
        the_day(world_settings, [solana])


def test_one_chain_that_is_gone_is_an_issue_of_the_others_answer(
    past: tuple[World, int], world_settings: Settings
) -> None:
    lost_chain = msgspec.structs.replace(
        world_settings.chains["local"],
        rpc=["http://127.0.0.1:9"],
        facts=str(world_settings.data_dir / "lost.toml"),
        timeout_s=1,
    )
    facts = (world_settings.data_dir / "local.toml").read_text()
    (world_settings.data_dir / "lost.toml").write_text(facts.replace('key = "local"', 'key = "lost"'))
    both = msgspec.structs.replace(world_settings, chains={**world_settings.chains, "lost": lost_chain})
    (document,) = the_day(both, [past[0].wallets["alice"]])
    assert document["completeness"] == "partial"
    assert [issue["adapter"] for issue in document["issues"]] == ["lost"]
    assert document["chains"]["local"]["value"] == document["networth"] != "0"
    only = msgspec.structs.replace(world_settings, chains={"lost": lost_chain})
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        the_day(only, [past[0].wallets["alice"]])


def test_at_a_block_everything_is_as_it_was(past: tuple[World, int], world_settings: Settings) -> None:
    world, last = past
    wallet = world.wallets["alice"]
    (portfolio,) = over(world_settings, lambda system: Engine(system).at_block([account(wallet)], "local", last, SHOWN))
    document = as_json(portfolio)
    assert (document["blockNumber"], document["priceAdapters"]) == (str(last), [])
    assert list(document["chains"]) == ["local"]
    for symbol in SYMBOLS:
        asset = assets(document)[contract_of(world, symbol)]
        assert asset["sources"]["raw"] == str(on_chain(world, contract_of(world, symbol), wallet, last))
        assert asset["sources"]["blockHash"] == world.node.block(last)["hash"]
        assert asset["price"] is not None


@pytest.mark.parametrize("above", [1, 1000, 2**60, 10**70])
def test_a_block_above_the_head_is_refused_with_the_head(
    past: tuple[World, int], world_settings: Settings, above: int
) -> None:
    world, _ = past
    alice, head = account(world.wallets["alice"]), world.node.height
    with pytest.raises(BadRequest, match=f"which is block {head}") as error:
        over(world_settings, lambda system: Engine(system).at_block([alice], "local", head + above, Options()))
    assert error.value.field == "blockNumber"


def test_the_head_itself_is_answered_though_it_is_not_indexed_yet(
    past: tuple[World, int], world_settings: Settings
) -> None:
    world, _ = past
    world.node.mine()
    head, wallet = world.node.height, world.wallets["bob"]
    (portfolio,) = over(world_settings, lambda system: Engine(system).at_block([account(wallet)], "local", head, SHOWN))
    ether = assets(as_json(portfolio))[ZERO_ADDRESS]
    assert ether["sources"]["blockHash"] == world.node.block(head)["hash"]
    assert (portfolio.block_number, portfolio.completeness) == (str(head), "partial")
    assert [issue.adapter for issue in portfolio.issues] == ["daily", "index"]


def test_a_chain_that_is_not_configured_is_not_served(world_settings: Settings) -> None:
    alice = account("0x" + "a1" * 20)
    for work in (
        lambda system: Engine(system).at_block([alice], "monad", 5, Options()),
        lambda system: Engine(system).approvals("base", [alice], 5, None),
    ):
        with pytest.raises(NotSupported):
            over(world_settings, work)


def test_what_the_node_has_forgotten_is_an_error_and_never_a_zero(tmp_path: Path) -> None:
    with LocalNode(timestamp=MIDNIGHT_S - 86_400, archive=False, extra_args=["--prune-history", "5"]) as node:
        world = history(node)
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S)
        node.mine()
        node.mine(100)
        settings = indexed(world, tmp_path / "data")
        alice = account(world.wallets["alice"])
        with pytest.raises(HistoryUnavailable):
            the_day(settings, [alice.address])
        with pytest.raises(HistoryUnavailable):
            over(settings, lambda system: Engine(system).at_block([alice], "local", 30, Options()))


async def test_over_http_what_the_node_has_forgotten_is_500_in_words_and_costs_nothing(serving: Serving) -> None:
    forgetful = ["--prune-history", "5"]
    with LocalNode(timestamp=MIDNIGHT_S - 86_400, archive=False, extra_args=forgetful) as node:
        world = history(node)
        node.mine(100)
        async with serving(world) as server:
            before = await server.json("/v1/credits")
            path = f"/v1/portfolio/at-block?addresses={world.wallets['alice']}&chainKey=local&blockNumber="
            status, body, headers = await server.get(path + "30")
            assert (status, headers["Content-Type"].partition(";")[0]) == (500, "text/plain")
            assert body == b"the portfolio at that block could not be fetched: the node keeps no state of it"
            assert await server.json("/v1/credits") == before
            assert (await server.get(path + str(node.height)))[0] == 200
            assert await server.json("/v1/credits") == before - 1


async def test_a_block_that_the_node_has_no_header_of_any_more_is_forgotten_too(
    world_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_block(height: int) -> Any:
        raise NodeBehind("one.test", f"does not have block {height}")

    system = System(world_settings)
    chain = system.chain("local")
    try:
        head = (await chain.heads()).latest.height
        monkeypatch.setattr(chain, "block", no_block)
        with pytest.raises(HistoryUnavailable, match="block 5"):
            await Engine(system).at_block([account("0x" + "a1" * 20)], "local", 5, Options())
        with pytest.raises(NodeBehind):
            await block_at(chain, head + 1)
    finally:
        await system.close()


def test_approvals_come_through_the_engine_with_what_their_tokens_are_worth(
    past: tuple[World, int], world_settings: Settings
) -> None:
    world, _ = past
    alice = account(world.wallets["alice"])

    async def read_approvals(system: System) -> ApprovalsPage:
        engine = Engine(system)
        await engine.portfolios([alice], Options(), wait=True, wallet_only=True)  # what its tokens are is known by now
        return await engine.approvals("local", [alice], 100, None)

    page = over(world_settings, read_approvals)
    assert page.items
    assert page.next_position is None
    tokens = {token.address.lower() for token in world.deployment.tokens.values()}
    assert page.assets
    assert {token for _, token in page.assets} <= {item.token for item in page.items} & tokens
    for (owner, token), asset in page.assets.items():
        balance = on_chain(world, token, owner, world.node.height)
        assert asset.balance == amounts.amount(balance, asset.decimals)
        assert asset.value == amounts.value_of(asset.balance, asset.price)


def test_a_sync_reads_in_the_background_once_and_status_shows_it(
    past: tuple[World, int], world_settings: Settings
) -> None:
    alice, bob = (account(past[0].wallets[name]) for name in ("alice", "bob"))

    async def synced(system: System) -> None:
        engine = Engine(system)
        assert await engine.sync([alice]) is True
        assert [each.in_progress for each in await engine.status([alice, bob])] == [True, False]
        assert await engine.sync([alice]) is False
        assert await engine.sync([alice, bob]) is True
        await engine.portfolios([alice, bob], Options(), wait=True, wallet_only=False)
        await asyncio.sleep(0)
        statuses = await engine.status([alice, bob])
        assert [each.in_progress for each in statuses] == [False, False]
        before = [each.portfolio_us for each in statuses]
        assert None not in before
        assert await engine.sync([alice]) is True
        await asyncio.gather(*(shared.task for shared in engine._accounts._reads._running.values()))
        await asyncio.sleep(0)
        after = [each.portfolio_us or 0 for each in await engine.status([alice, bob])]
        assert after[0] > (before[0] or 0)
        assert after[1] == before[1]

    over(world_settings, synced)


async def test_the_past_over_http(past: tuple[World, int], world_settings: Settings) -> None:
    world, last = past
    wallet = world.wallets["alice"]
    chains = {"local": msgspec.structs.replace(world_settings.chains["local"], at_block=True)}
    settings = msgspec.structs.replace(world_settings, chains=chains)
    system = System(settings)
    keys = FakeKeys(subscriptions={"acc_1": {wallet}})
    app = make_app(Engine(system), keys, settings, system.environment)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with listening(app, "127.0.0.1", 0, drain_s=1) as port, client_session(headers=headers) as client:

        async def get(path: str) -> tuple[int, Any]:
            async with client.get(f"http://127.0.0.1:{port}/v1{path}") as answer:
                is_json = answer.content_type == "application/json"
                return answer.status, await (answer.json() if is_json else answer.text())

        status, (then,) = await get(f"/portfolio/at-block?addresses={wallet}&chainKey=local&blockNumber={last}")
        assert (status, then["blockNumber"], then["priceAdapters"]) == (200, str(last), [])
        status, (day,) = await get(f"/historical?addresses={wallet}&date={DAY}")
        assert (status, day["networth"]) == (200, then["networth"])
        status, body = await get(f"/historical?addresses={world.wallets['bob']}&date={DAY}")
        assert (status, body["error"]) == (403, "Forbidden")
        status, body = await get(f"/portfolio/at-block?addresses={wallet}&chainKey=local&blockNumber=10000000")
        assert (status, body["error"]) == (400, "Validation Failed")
        assert f"which is block {world.node.height}" in body["message"]
        status, body = await get(f"/portfolio/at-block?addresses={wallet}&chainKey=monad&blockNumber=5")
        assert (status, body["error"]) == (501, "Not Served")
        assert (await get(f"/approvals/ethereum?addresses={wallet}"))[0] == 501
        status, body = await get(f"/transactions?addresses={wallet}&limit=5&offset=0")
        assert (status, len(body["transactions"])) == (200, 5)
        status, body = await get(f"/transactions?addresses={wallet}&limit=5&offset=0&networks=linea")
        assert (status, body["message"]) == (400, "`networks` cannot hold 'linea': it is one of local")
        solana = "DYw8jCTfwHNRJhhmFcbXvVDTqWMEVFBX6ZKUmG5CNSKK"
        status, body = await get(f"/transactions?addresses={wallet},{solana}&limit=5&offset=0")
        assert (status, len(body["transactions"]), body["completeness"]) == (200, 5, "partial")
        assert "No Solana chain is configured" in [each["reason"] for each in body["issues"]]
        assert (await get(f"/transactions?addresses={solana}&limit=5&offset=0&networks=local"))[0] == 501
        response = await client.post(f"http://127.0.0.1:{port}/v1/sync-transactions", json={"addresses": [wallet]})
        assert await response.text() == '"Address is syncing"'
        assert (await get(f"/portfolio?addresses={wallet}&waitForSync=true"))[0] == 200
    await system.close()
