"""Portfolios of the demo's wallets are what the chain says, at one block, to the last digit."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS, account
from chainfolio.cli.demo import WALLETS
from chainfolio.cli.main import main
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.localchain.errors import RpcError, TransactionReverted
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings
from tests.e2e.conftest import World, configured

pytestmark = pytest.mark.node

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
SHOWN = Options(sources=True, explorer_urls=False, images=False)
SYMBOLS = ("ETH", "WETH", "USDC", "DAI", "WBTC")
# Assets that are a share of another asset inside a protocol, with that asset.
SHARES = {
    "UniswapV2Pair WETH/USDC": "uniswap2",
    "UniswapV2Pair WETH/DAI": "uniswap2",
    "Vault": "erc4626",
    **{f"{kind}{symbol}": "aave3" for kind in ("a", "variableDebt") for symbol in ("USDC", "WETH", "DAI", "WBTC")},
}
BALANCE = "balanceOf(address)(uint256)"


@pytest.fixture(scope="module")
def settings(world: World, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings over an index of the whole chain: what is final by the command, the rest by following."""
    folder = tmp_path_factory.mktemp("portfolio") / "data"
    settings = configured(world, folder)
    assert main(["index", "local", "--config", str(folder / "chainfolio.toml"), "--json"]) == 0

    async def follow(system: System) -> None:
        chain = system.chain("local")
        with system.tail.lock(chain.key):
            await system.follower(chain).step()

    over(settings, follow)
    return settings


def over(settings: Settings, work: Callable[[System], Awaitable[T]]) -> T:
    async def run() -> T:
        system = System(settings)
        try:
            return await work(system)
        finally:
            await system.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def documents(world: World, settings: Settings) -> dict[str, dict[str, Any]]:
    """The portfolio of each wallet by its name, as JSON has it."""
    wallets = [account(address) for address in world.wallets.values()]
    portfolios = over(settings, lambda system: Engine(system).portfolios(wallets, SHOWN, wait=True, wallet_only=False))
    return dict(zip(world.wallets, as_json(portfolios), strict=True))


def as_json(value: object) -> Any:
    """Return a value as a client gets it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def assets(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The loose tokens of a portfolio by their contracts."""
    wallet = document["assetByProtocols"]["wallet"]
    (chain,) = wallet["chains"].values()
    return {asset["contract"]: asset for asset in chain["protocolPositions"]["WALLET"]["assets"]}


def protocol_assets(document: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every asset inside protocols, with the sign that it has in sums."""
    for key, protocol in document["assetByProtocols"].items():
        for chain in protocol["chains"].values():
            for positions in chain["protocolPositions"].values() if key != "wallet" else ():
                assert positions["assets"] == []
                for position in positions["protocolPositions"]:
                    for side, sign in (("supplyAssets", 1), ("rewardAssets", 1), ("borrowAssets", -1)):
                        yield from ((sign, asset) for asset in position[side])


def value_usd(sign: int, asset: dict[str, Any]) -> Decimal:
    return Decimal(asset["value"]) if sign > 0 else Decimal(asset["value"]).copy_negate()


def contract_of(world: World, symbol: str) -> str:
    return ZERO_ADDRESS if symbol == "ETH" else world.deployment.tokens[symbol].address.lower()


def on_chain(world: World, contract: str, wallet: str, height: int) -> int:
    if contract == ZERO_ADDRESS:
        return int(world.node.rpc("eth_getBalance", wallet, hex(height)), 16)
    raw: int = world.node.call(contract, BALANCE, wallet, block=height)
    return raw


@pytest.mark.slow("the same sums of other wallets", fast=["alice-*"])
@pytest.mark.parametrize("symbol", SYMBOLS)
@pytest.mark.parametrize("name", WALLETS)
def test_a_balance_is_the_chains_and_its_worth_is_balance_times_price(
    world: World, documents: dict[str, dict[str, Any]], name: str, symbol: str
) -> None:
    contract = contract_of(world, symbol)
    asset = assets(documents[name])[contract]
    height = int(asset["sources"]["blockNumber"])
    raw = on_chain(world, contract, world.wallets[name], height)
    decimals = 18 if symbol == "ETH" else world.deployment.tokens[symbol].decimals
    feed = world.deployment.feeds["ETH" if symbol == "WETH" else symbol]
    answer = world.node.call(feed, "latestAnswer()(int256)", block=height)
    assert asset["sources"]["raw"] == str(raw)
    assert asset["balance"] == amounts.text(amounts.amount(raw, decimals))
    assert asset["price"] == amounts.text(amounts.amount(answer, 8))
    assert asset["value"] == amounts.text(amounts.value_of(amounts.amount(raw, decimals), amounts.amount(answer, 8)))
    assert (asset["decimal"], asset["priceSource"]) == (str(decimals), "chainlink")


@pytest.mark.parametrize("name", WALLETS)
def test_every_fungible_token_that_a_wallet_holds_is_found(
    world: World, documents: dict[str, dict[str, Any]], name: str
) -> None:
    wallet, wallet_assets = world.wallets[name], assets(documents[name])
    height = int(wallet_assets[ZERO_ADDRESS]["sources"]["blockNumber"])
    raw_by_contract = {}
    for contract in {contract.lower() for contract in world.deployment.contracts.values()}:
        try:
            world.node.call(contract, "decimals()(uint8)", block=height)
            raw = on_chain(world, contract, wallet, height)
        except (RpcError, TransactionReverted, ValueError):  # it is no token
            continue
        if raw:
            raw_by_contract[contract] = str(raw)
    shares = {world.deployment.contracts[name].lower(): protocol for name, protocol in SHARES.items()}
    loose = {contract: raw for contract, raw in raw_by_contract.items() if contract not in shares}
    assert {contract: a["sources"]["raw"] for contract, a in wallet_assets.items() if contract != ZERO_ADDRESS} == loose
    assert {shares[contract] for contract in raw_by_contract if contract in shares} <= set(
        documents[name]["assetByProtocols"]
    )


@pytest.mark.parametrize("name", WALLETS)
def test_net_worth_is_the_sum_of_what_has_a_price_and_the_rest_is_counted(
    documents: dict[str, dict[str, Any]], name: str
) -> None:
    document = documents[name]
    signed_assets = [*((1, asset) for asset in assets(document).values()), *protocol_assets(document)]
    total = amounts.total([value_usd(sign, asset) for sign, asset in signed_assets if asset["value"] != "N/A"])
    assert document["networth"] == amounts.text(total)
    assert document["networth"] == amounts.text(
        amounts.total([Decimal(protocol["value"]) for protocol in document["assetByProtocols"].values()])
    )
    assert document["networth"] == document["chains"]["local"]["value"]
    assert document["unpricedAssets"] == sum(asset["value"] == "N/A" for _, asset in signed_assets)
    issues = [issue for issue in document["issues"] if issue["adapter"] != "pnl"]  # who knows what the first coins cost
    assert (document["completeness"], issues) == ("complete", [])


def test_everything_was_read_at_one_block_that_is_on_the_chain(
    world: World, documents: dict[str, dict[str, Any]]
) -> None:
    read = {
        (asset["sources"]["blockNumber"], asset["sources"]["blockHash"])
        for document in documents.values()
        for asset in (*assets(document).values(), *(asset for _, asset in protocol_assets(document)))
    }
    ((height, block_hash),) = read
    assert int(height) == world.node.height
    assert world.node.block(int(height))["hash"] == block_hash


def test_the_net_asset_value_of_all_is_the_sum_of_their_net_worths(
    world: World, settings: Settings, documents: dict[str, dict[str, Any]]
) -> None:
    wallets = [account(address) for address in world.wallets.values()]
    result = over(settings, lambda system: Engine(system).nav(wallets, "USD", wait=True))
    assert result.nav == amounts.total([Decimal(document["networth"]) for document in documents.values()])
    assert result.currency == "USD"
    assert result.conversion_price == 1


@pytest.mark.parametrize("back", [3, 20])
def test_an_earlier_block_gives_what_was_held_and_quoted_then(world: World, settings: Settings, back: int) -> None:
    height, wallet = world.node.height - back, world.wallets["carol"]
    (portfolio,) = over(settings, lambda system: Engine(system).at_block([account(wallet)], "local", height, SHOWN))
    document = as_json(portfolio)
    assert document["completeness"] == "complete"
    for symbol in SYMBOLS:
        asset = assets(document)[contract_of(world, symbol)]
        assert asset["sources"]["raw"] == str(on_chain(world, contract_of(world, symbol), wallet, height))
        assert asset["sources"]["blockHash"] == world.node.block(height)["hash"]
        feed = world.deployment.feeds["ETH" if symbol == "WETH" else symbol]
        answer = world.node.call(feed, "latestAnswer()(int256)", block=height)
        assert asset["price"] == amounts.text(amounts.amount(answer, 8))


def test_before_any_contract_there_was_only_ether_and_nobody_knew_its_price(world: World, settings: Settings) -> None:
    wallet = world.wallets["alice"]
    (portfolio,) = over(settings, lambda system: Engine(system).at_block([account(wallet)], "local", 0, SHOWN))
    document = as_json(portfolio)
    (ether,) = assets(document).values()
    assert (ether["balance"], ether["price"], ether["value"]) == ("10000", "N/A", "N/A")
    assert (document["networth"], document["unpricedAssets"]) == ("0", 1)


def test_a_wallet_nobody_knows_has_nothing_and_that_is_known(settings: Settings) -> None:
    stranger = account("0x00000000000000000000000000000000deadbeef")
    (portfolio,) = over(settings, lambda s: Engine(s).portfolios([stranger], SHOWN, wait=True, wallet_only=False))
    assert (portfolio.networth, portfolio.completeness, portfolio.unpriced_assets) == ("0", "complete", 0)


def test_indexing_once_more_changes_nothing(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    def count(system: System) -> Awaitable[dict[str, int]]:
        from chainfolio.tables import TABLES

        async def row_counts() -> dict[str, int]:
            # Every command moves prices to the lake that were used before it, and this folder's tests used some.
            return {name: system.lake.count(table) for name, table in TABLES.items() if name != "prices"}

        return row_counts()

    before = over(settings, count)
    assert main(["index", "local", "--config", str(settings.data_dir / "chainfolio.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 0
    assert over(settings, count) == before
    assert before["transfers"] > 0


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_demo_prints_one_document_and_ends(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "chainfolio.cli.main", "demo", "--once", "--json", "--blocks", "10", "--data", "demo"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), **environment()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    demo_output = json.loads(child.stdout)
    assert tuple(demo_output["wallets"]) == WALLETS
    for address, document in zip(demo_output["wallets"].values(), demo_output["portfolios"], strict=True):
        signed_assets = [*((1, asset) for asset in assets(document).values()), *protocol_assets(document)]
        values = [value_usd(sign, asset) for sign, asset in signed_assets if asset["value"] != "N/A"]
        assert document["address"] == address
        assert document["networth"] == amounts.text(amounts.total(values))
        assert document["completeness"] == "complete"
        assert len(values) >= len(SYMBOLS)


def environment() -> dict[str, str]:
    """Return the variables of this process that the local chain needs."""
    import os

    return {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "CHAINFOLIO_LOCALCHAIN_HOME")}
