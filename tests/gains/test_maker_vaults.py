"""Maker's vaults through a proxy of the wallet: collateral stays the owner's, and drawn Dai is a loan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.protocols.maker_deployment import Maker, load_snapshot, replay
from tests.protocols.test_maker import CLOSE, ETHER, OPEN, by_proxy, opened

pytestmark = pytest.mark.node
DAY_S = 86_400
TRANSFER = "transfer(address,uint256)"


@dataclass
class ProxyOwner:
    """A wallet with a proxy, which has one vault at most."""

    world: World
    maker: Maker
    wallet: Wallet
    proxy: str

    @classmethod
    def new(cls, world: World, maker: Maker) -> ProxyOwner:
        """A new wallet builds its proxy, and lets it take Dai."""
        me = world.wallet(ETH=60 * WAD)
        me.do(tx(me.address, maker["PROXY_REGISTRY"], "build()", gas=2_000_000))
        proxy = world.node.call(maker["PROXY_REGISTRY"], "proxies(address)(address)", me.address)
        me.do(tx(me.address, maker["MCD_DAI"], "approve(address,uint256)", proxy, MAX))
        return cls(world, maker, me, proxy.lower())

    def do(self, function: str, *args: Any, value: int = 0, actions: str = "PROXY_ACTIONS") -> dict[str, int]:
        """Let the proxy do something, and return what the wallet moved."""
        call = by_proxy(self.wallet.address, self.proxy, self.maker[actions], function, *args)
        return self.wallet.do(replace(call, value=value))

    def open(self, collateral: int, drawn: int) -> int:
        """Open a vault with ether, and return its number; the drawn Dai is a loan at its price of now."""
        signature = f"{OPEN}(address,address,address,address,bytes32,uint256)"
        names = ("CDP_MANAGER", "MCD_JUG", "MCD_JOIN_ETH_A", "MCD_JOIN_DAI")
        changes = self.do(signature, *(self.maker[name] for name in names), ETHER, drawn, value=collateral)
        assert changes == {ETH: -collateral, "MCD": drawn}
        self.wallet.ledger.buy("MCD", drawn, self.wallet.value("MCD", drawn))
        return int(self.world.node.call(self.maker["CDP_MANAGER"], "cdpi()(uint256)"))

    def call(self, function: str, number: int, *args: Any, value: int = 0) -> dict[str, int]:
        """Let the proxy change its vault by actions that take manager, ether's join and Dai's join."""
        contracts = (self.maker[name] for name in ("CDP_MANAGER", "MCD_JOIN_ETH_A", "MCD_JOIN_DAI"))
        return self.do(function, *contracts, number, *args, value=value)

    def repay(self, raw: int, debt: int) -> None:
        """Take repaid Dai out of the ledger at its cost; what is beyond the loan is interest, a fee."""
        ledger = self.wallet.ledger
        ledger.sell("MCD", min(raw, debt), ledger.cost_of("MCD", min(raw, debt)))
        if raw > debt:
            ledger.sell("MCD", raw - debt, self.wallet.value("MCD", raw - debt))


@pytest.fixture(scope="module")
def maker_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Maker]]:
    transactions, maker = load_snapshot()
    with LocalNode(timestamp=transactions[0].time_s - 1) as node:
        replay(node, transactions)
        deployment = deploy(node)
        opened(node, maker, deployment.accounts["deployer"], ETHER, 900 * WAD, 50_000 * WAD)
        folder = tmp_path_factory.mktemp("maker")
        files, rewards = {"maker": maker.file}, {"MCD": maker["MCD_DAI"]}
        yield World(node, deployment, folder, files, rewards, wrapped=maker["ETH"]), maker


def equal(me: ProxyOwner) -> list[str]:
    """Compare with the ledger and return the types of the transactions with movements besides fees."""
    ledger = me.wallet.ledger
    if "MCD" in ledger.lots:
        ledger.lots["DAI"] = ledger.lots.pop("MCD")
    report, records = me.world.read(me.wallet)
    assert_equal(report, me.wallet)
    return [each.type for each in records]


def test_an_open_vault_keeps_its_collateral_and_its_dai_is_a_loan(maker_world: tuple[World, Maker]) -> None:
    me = ProxyOwner.new(*maker_world)
    me.open(30 * WAD, 900 * WAD)
    equal(me)


def test_a_vault_is_opened_added_to_and_closed_without_a_sale(maker_world: tuple[World, Maker]) -> None:
    me = ProxyOwner.new(*maker_world)
    world, maker, wallet = me.world, me.maker, me.wallet
    extra = 100 * WAD
    world.node.settle([tx(world.deployment.accounts["deployer"], maker["MCD_DAI"], TRANSFER, wallet.address, extra)])
    wallet.ledger.buy("MCD", extra, wallet.value("MCD", extra))
    number = me.open(20 * WAD, 900 * WAD)
    lock = "lockETH(address,address,uint256)"
    assert me.do(lock, maker["CDP_MANAGER"], maker["MCD_JOIN_ETH_A"], number, value=10 * WAD) == {ETH: -10 * WAD}
    world.pass_time(100 * DAY_S)
    part = "wipeAndFreeETH(address,address,address,uint256,uint256,uint256)"
    assert me.call(part, number, 5 * WAD, 300 * WAD) == {ETH: 5 * WAD, "MCD": -300 * WAD}
    me.repay(300 * WAD, 900 * WAD)
    set_price(world.node, world.deployment, "ETH", 2_900 * 10**8)
    changes = me.call(CLOSE, number, 25 * WAD)
    assert changes[ETH] == 25 * WAD
    assert changes["MCD"] <= -600 * WAD
    me.repay(-changes["MCD"], 600 * WAD)
    equal(me)


def test_a_vault_without_a_proxy_closes_without_a_sale(maker_world: tuple[World, Maker]) -> None:
    world, maker = maker_world
    me = world.wallet(ETH=60 * WAD)
    address, vat, dai_join = me.address, maker["MCD_VAT"], maker["MCD_JOIN_DAI"]
    owner, ether, join = ProxyOwner(world, maker, me, ""), maker["ETH"], maker["MCD_JOIN_ETH_A"]
    me.do(tx(address, ether, "deposit()", value=31 * WAD), tx(address, ether, "approve(address,uint256)", join, MAX))
    me.do(tx(address, maker["MCD_DAI"], "approve(address,uint256)", dai_join, MAX))
    me.do(tx(address, vat, "hope(address)", dai_join))
    frob = "frob(bytes32,address,address,address,int256,int256)"
    for raw in (20 * WAD, 10 * WAD):
        me.do(tx(address, join, "join(address,uint256)", address, raw))
    me.do(tx(address, vat, frob, ETHER, address, address, address, 30 * WAD, 900 * WAD))
    drawn = world.node.call(vat, "dai(address)(uint256)", address) // 10**27
    assert me.do(tx(address, dai_join, "exit(address,uint256)", address, drawn)) == {"MCD": drawn}
    me.ledger.buy("MCD", drawn, me.value("MCD", drawn))
    set_price(world.node, world.deployment, "ETH", 2_900 * 10**8)
    for raw in (300 * WAD, drawn - 300 * WAD):
        assert me.do(tx(address, dai_join, "join(address,uint256)", address, raw)) == {"MCD": -raw}
        owner.repay(raw, raw)
    me.do(tx(address, vat, frob, ETHER, address, address, address, -30 * WAD, -900 * WAD))
    for raw in (12 * WAD, 18 * WAD):
        me.do(tx(address, join, "exit(address,uint256)", address, raw))
    equal(owner)


def test_savings_of_a_proxy_come_back_with_interest(maker_world: tuple[World, Maker]) -> None:
    me = ProxyOwner.new(*maker_world)
    world, maker, wallet = me.world, me.maker, me.wallet
    raw = 4_000 * WAD
    world.node.settle([tx(world.deployment.accounts["deployer"], maker["MCD_DAI"], TRANSFER, wallet.address, raw)])
    wallet.ledger.buy("MCD", raw, wallet.value("MCD", raw))
    contracts = (maker["MCD_JOIN_DAI"], maker["MCD_POT"])
    save, leave = "join(address,address,uint256)", "exitAll(address,address)"
    assert me.do(save, *contracts, raw, actions="PROXY_ACTIONS_DSR") == {"MCD": -raw}
    world.pass_time(100 * DAY_S)
    (change,) = me.do(leave, *contracts, actions="PROXY_ACTIONS_DSR").values()
    assert change > raw
    wallet.ledger.earn("MCD", change - raw, wallet.value("MCD", change - raw))
    equal(me)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_collateral_of_a_proxy_that_was_given_away_has_no_known_gain(maker_world: tuple[World, Maker]) -> None:
    me = ProxyOwner.new(*maker_world)
    me.open(30 * WAD, 900 * WAD)
    me.wallet.do(tx(me.wallet.address, me.proxy, "setOwner(address)", me.world.deployment.accounts["ivan"]))
    report, _ = me.world.read(me.wallet)
    [collateral] = report.unexplained
    assert (collateral.symbol, collateral.raw, collateral.place) == ("eth", str(-30 * WAD), "protocols")
    assert (report.open_pnl, report.income) == ("N/A", "0")
