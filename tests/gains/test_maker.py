"""Maker: savings have no shares, so the deposit comes back first and the rest is income."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import Wallet
from tests.protocols.maker_deployment import Maker, load_snapshot, replay
from tests.protocols.test_maker import ETHER, by_proxy, opened

pytestmark = pytest.mark.node
DAY_S = 86_400


@pytest.fixture(scope="module")
def maker_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Maker]]:
    transactions, maker = load_snapshot()
    with LocalNode(timestamp=transactions[0].time_s - 1) as node:
        replay(node, transactions)
        deployment = deploy(node)
        rich = deployment.accounts["deployer"]
        opened(node, maker, rich, ETHER, 900 * WAD, 50_000 * WAD)
        world = World(node, deployment, tmp_path_factory.mktemp("maker"), rewards={"MCD": maker["MCD_DAI"]})
        yield world, maker


def with_dai(world: World, maker: Maker, raw: int) -> Wallet:
    """A wallet that the deployer gave some of Maker's DAI, which costs two here."""
    me = world.wallet(ETH=60 * 10**18)
    rich = world.deployment.accounts["deployer"]
    world.node.settle([tx(rich, maker["MCD_DAI"], "transfer(address,uint256)", me.address, raw)])
    me.ledger.buy("MCD", raw, me.value("MCD", raw))
    return me


def equal(world: World, me: Wallet) -> list[str]:
    """Compare with the ledger, and return the types of the transactions. The token's own name is DAI."""
    me.ledger.lots["DAI"] = me.ledger.lots.pop("MCD")
    report, records = world.read(me)
    assert_equal(report, me)
    return [each.type for each in records]


def test_savings_of_the_manager_come_back_first(maker_world: tuple[World, Maker]) -> None:
    world, maker = maker_world
    me = with_dai(world, maker, 9_000 * WAD)
    address, manager = me.address, maker["DSR_MANAGER"]
    me.do(tx(address, maker["MCD_DAI"], "approve(address,uint256)", manager, MAX))
    for raw in (5_000 * WAD, 1_000 * WAD):
        assert me.do(tx(address, manager, "join(address,uint256)", address, raw)) == {"MCD": -raw}
        world.pass_time(100 * DAY_S)
    assert me.do(tx(address, manager, "exit(address,uint256)", address, 2_000 * WAD)) == {"MCD": 2_000 * WAD}
    world.pass_time(100 * DAY_S)
    (change,) = me.do(tx(address, manager, "exitAll(address)", address)).values()
    interest = change - 4_000 * WAD
    assert interest > 0
    me.ledger.earn("MCD", interest, me.value("MCD", interest))
    assert equal(world, me)[-4:] == ["DEPOSIT", "DEPOSIT", "WITHDRAW", "WITHDRAW"]


@pytest.mark.slow("shows for a proxy what the manager's savings show")
def test_savings_by_a_proxy_are_sent_and_received_but_no_income(maker_world: tuple[World, Maker]) -> None:
    world, maker = maker_world
    me = with_dai(world, maker, 9_000 * WAD)
    node, address, actions = world.node, me.address, maker["PROXY_ACTIONS_DSR"]
    me.do(tx(address, maker["PROXY_REGISTRY"], "build()", gas=2_000_000))
    proxy = node.call(maker["PROXY_REGISTRY"], "proxies(address)(address)", address)
    me.do(tx(address, maker["MCD_DAI"], "approve(address,uint256)", proxy, MAX))
    contracts, raw = (maker["MCD_JOIN_DAI"], maker["MCD_POT"]), 4_000 * WAD
    save, leave = "join(address,address,uint256)", "exitAll(address,address)"
    assert me.do(by_proxy(address, proxy, actions, save, *contracts, raw)) == {"MCD": -raw}
    me.ledger.sell("MCD", raw, me.value("MCD", raw))
    world.pass_time(100 * DAY_S)
    (change,) = me.do(by_proxy(address, proxy, actions, leave, *contracts)).values()
    assert change > raw
    me.ledger.buy("MCD", change, me.value("MCD", change))
    equal(world, me)
