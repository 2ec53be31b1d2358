"""Maker on its own test chain: vaults and savings are worth what closing them pays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols import maker_savings, maker_vaults
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, Tx, call_data, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition, TokenAmount
from tests.protocols.maker_deployment import Maker, load_snapshot, replay
from tests.protocols.scripted import decode, read
from tests.protocols.world import ETHER as COINS
from tests.protocols.world import World, parts

RAY = 10**27
DAY_S = 86_400
ETHER, DOLLARS = b"ETH-A".ljust(32, b"\0"), b"USDC-A".ljust(32, b"\0")
URN = "urns(bytes32,address)(uint256,uint256)"
ILK = "ilks(bytes32)(uint256,uint256,uint256,uint256,uint256)"
OPEN, CLOSE = "openLockETHAndDraw", "wipeAllAndFreeETH(address,address,address,uint256,uint256)"
FROB = "frob(uint256,int256,int256)"


@dataclass(frozen=True)
class Scenario:
    """The world, Maker's contracts, the numbers of the vaults by name, and a snapshot."""

    world: World
    maker: Maker
    vaults: dict[str, int]
    snapshot: Snapshot

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()

    def read(self, contract: str, signature: str, *args: Any) -> Any:
        height = self.snapshot.block.height
        return self.world.node.call(self.maker[contract], signature, *args, block=height)

    def positions(self, name: str, kind: str) -> list[Position]:
        return [each for each in self.snapshot.positions if each.account == self.account(name) and each.type == kind]

    def vault(self, name: str) -> Position:
        """The position of a vault by the name that it has here."""
        number = f" vault {self.vaults[name]}"
        (position,) = [each for each in self.snapshot.positions if each.name.endswith(number)]
        return position


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    txs, maker = load_snapshot()
    with LocalNode(timestamp=txs[0].time_s - 1) as node:
        replay(node, txs)
        deployment = deploy(node)
        accounts = deployment.accounts
        vaults = drawn(node, maker, accounts)
        saved(node, maker, accounts)
        proxied(node, maker, accounts["dave"])
        node.mine(1, 50 * DAY_S)
        world = World(node, deployment, tmp_path_factory.mktemp("maker"), {"maker": maker.file})
        names = ("alice", "bob", "carol", "dave", "grace")
        yield Scenario(world, maker, vaults, world.snapshot(*(accounts[name] for name in names)))


def drawn(node: LocalNode, maker: Maker, accounts: Mapping[str, str]) -> dict[str, int]:
    """Open Alice's vaults of ether and dollars, one that she gives to Bob, and the deployer's."""
    alice, rich = accounts["alice"], accounts["deployer"]
    node.rpc("anvil_impersonateAccount", maker["FAUCET"])
    node.rpc("anvil_setBalance", maker["FAUCET"], hex(WAD))
    node.settle([tx(maker["FAUCET"], maker["USDC"], "transfer(address,uint256)", alice, 9_000 * 10**6)])
    numbers = {
        "ether": opened(node, maker, alice, ETHER, 50 * WAD + 1, 2_000 * WAD),
        "dollars": opened(node, maker, alice, DOLLARS, 3_000 * 10**6 + 1, 1_000 * WAD),
        "given": opened(node, maker, alice, ETHER, 7 * WAD, 0),
        "rich": opened(node, maker, rich, ETHER, 900 * WAD, 50_000 * WAD),
    }
    node.settle([tx(alice, maker["CDP_MANAGER"], "give(uint256,address)", numbers["given"], accounts["bob"])])
    node.mine(1, 40 * DAY_S)
    node.settle([tx(rich, maker["MCD_JUG"], "drip(bytes32)", ilk) for ilk in (ETHER, DOLLARS)])
    draw(node, maker, alice, numbers["ether"], 0, 100 * WAD + 7)  # which now leaves something below a unit behind
    urn = node.call(maker["CDP_MANAGER"], "urns(uint256)(address)", numbers["given"])
    node.settle(
        [  # what is in a vault and not locked there
            tx(rich, maker["MCD_JOIN_ETH_A"], "join(address,uint256)", urn, WAD // 3),
            tx(rich, maker["MCD_DAI"], "approve(address,uint256)", maker["MCD_JOIN_DAI"], MAX),
            tx(rich, maker["MCD_JOIN_DAI"], "join(address,uint256)", urn, 5 * WAD),
        ]
    )
    return numbers


def opened(node: LocalNode, maker: Maker, owner: str, ilk: bytes, raw: int, art: int) -> int:
    """A vault with so many units of its token, against which so much was drawn."""
    manager, join = maker["CDP_MANAGER"], maker["MCD_JOIN_ETH_A" if ilk == ETHER else "MCD_JOIN_USDC_A"]
    token = maker["ETH" if ilk == ETHER else "USDC"]
    node.settle(
        [
            *([tx(owner, token, "deposit()", value=raw + WAD)] if ilk == ETHER else []),
            tx(owner, token, "approve(address,uint256)", join, MAX),
            tx(owner, manager, "open(bytes32,address)", ilk, owner),
            tx(owner, maker["MCD_VAT"], "hope(address)", maker["MCD_JOIN_DAI"]),
        ]
    )
    number: int = node.call(manager, "cdpi()(uint256)")
    urn = node.call(manager, "urns(uint256)(address)", number)
    node.settle([tx(owner, join, "join(address,uint256)", urn, raw)])
    draw(node, maker, owner, number, raw if ilk == ETHER else raw * 10**12, art)
    return number


def draw(node: LocalNode, maker: Maker, owner: str, number: int, ink: int, art: int) -> None:
    """More collateral in, and Dai out, as many whole units of it as there are."""
    manager, vat = maker["CDP_MANAGER"], maker["MCD_VAT"]
    node.settle([tx(owner, manager, FROB, number, ink, art)])
    dai_raw = node.call(vat, "dai(address)(uint256)", node.call(manager, "urns(uint256)(address)", number)) // RAY
    node.settle(
        [
            tx(owner, manager, "move(uint256,address,uint256)", number, owner, dai_raw * RAY),
            tx(owner, maker["MCD_JOIN_DAI"], "exit(address,uint256)", owner, dai_raw),
        ]
    )


def saved(node: LocalNode, maker: Maker, accounts: Mapping[str, str]) -> None:
    """Alice saves by way of the manager, for Carol too; Bob in the pot itself."""
    alice, bob, manager, dai = accounts["alice"], accounts["bob"], maker["DSR_MANAGER"], maker["MCD_DAI"]
    vat, pot, join = maker["MCD_VAT"], maker["MCD_POT"], maker["MCD_JOIN_DAI"]
    node.settle(
        [
            tx(alice, dai, "approve(address,uint256)", manager, MAX),
            tx(alice, manager, "join(address,uint256)", alice, 500 * WAD + 3),
            tx(alice, manager, "join(address,uint256)", accounts["carol"], 70 * WAD),
            tx(alice, dai, "transfer(address,uint256)", bob, 300 * WAD),
            tx(bob, dai, "approve(address,uint256)", join, MAX),
            tx(bob, vat, "hope(address)", pot),
            tx(bob, vat, "hope(address)", join),
            tx(bob, join, "join(address,uint256)", bob, 300 * WAD),
            tx(bob, pot, "drip()"),
            tx(bob, pot, "join(uint256)", 290 * WAD + 1),
        ]
    )
    remainder = node.call(vat, "dai(address)(uint256)", bob)
    node.settle([tx(bob, vat, "move(address,address,uint256)", bob, accounts["deployer"], remainder)])


def proxied(node: LocalNode, maker: Maker, me: str) -> None:
    """Draw and save through a proxy, as the protocol's web pages do, and give a second proxy away."""
    node.settle([tx(me, maker["PROXY_FACTORY"], "build()", gas=2_000_000)])
    given_proxy = node.call(maker["PROXY_FACTORY"], "build()(address)", sender=me)
    node.settle(
        [
            tx(me, maker["PROXY_FACTORY"], "build()", gas=2_000_000),
            tx(me, given_proxy, "setOwner(address)", maker["FAUCET"]),
            tx(me, maker["PROXY_REGISTRY"], "build()", gas=2_000_000),
        ]
    )
    proxy = node.call(maker["PROXY_REGISTRY"], "proxies(address)(address)", me)
    node.settle([tx(me, maker["MCD_DAI"], "approve(address,uint256)", proxy, MAX)])
    terms = (maker["CDP_MANAGER"], maker["MCD_JUG"], maker["MCD_JOIN_ETH_A"], maker["MCD_JOIN_DAI"], ETHER, 900 * WAD)
    draw = by_proxy(
        me, proxy, maker["PROXY_ACTIONS"], f"{OPEN}(address,address,address,address,bytes32,uint256)", *terms
    )
    save = "join(address,address,uint256)"
    node.settle(
        [
            replace(draw, value=30 * WAD),
            by_proxy(
                me, proxy, maker["PROXY_ACTIONS_DSR"], save, maker["MCD_JOIN_DAI"], maker["MCD_POT"], 400 * WAD + 9
            ),
        ]
    )


def by_proxy(me: str, proxy: str, actions: str, signature: str, *args: Any) -> Tx:
    """Has a proxy do what is written in a contract of actions."""
    call = bytes.fromhex(call_data(signature, *args)[2:])
    return tx(me, proxy, "execute(address,bytes)", actions, call, gas=3_000_000)


def closing(scenario: Scenario, name: str, owner: str, debt: int) -> list[Tx]:
    """The deployer pays so much back; then the owner takes all collateral out."""
    maker, number, rich, me = (
        scenario.maker,
        scenario.vaults[name],
        scenario.account("deployer"),
        scenario.account(owner),
    )
    urn = scenario.read("CDP_MANAGER", "urns(uint256)(address)", number)
    ilk = scenario.read("CDP_MANAGER", "ilks(uint256)(bytes32)", number)
    ink, art = scenario.read("MCD_VAT", URN, ilk, urn)
    raw = ink + scenario.read("MCD_VAT", "gem(bytes32,address)(uint256)", ilk, urn)
    spare = 0 if art else scenario.read("MCD_VAT", "dai(address)(uint256)", urn)
    join, unit = (maker["MCD_JOIN_ETH_A"], 1) if ilk == ETHER else (maker["MCD_JOIN_USDC_A"], 10**12)
    return [
        tx(rich, maker["MCD_DAI"], "approve(address,uint256)", maker["MCD_JOIN_DAI"], MAX),
        tx(rich, maker["MCD_JOIN_DAI"], "join(address,uint256)", urn, debt),
        tx(me, maker["CDP_MANAGER"], FROB, number, -ink, -art),
        tx(me, maker["CDP_MANAGER"], "flux(uint256,address,uint256)", number, me, raw),
        tx(me, join, "exit(address,uint256)", me, raw // unit),
        tx(me, maker["CDP_MANAGER"], "move(uint256,address,uint256)", number, me, spare),
        tx(me, maker["MCD_VAT"], "hope(address)", maker["MCD_JOIN_DAI"]),
        tx(me, maker["MCD_JOIN_DAI"], "exit(address,uint256)", me, spare // RAY),
    ]


def test_everything_was_read(scenario: Scenario) -> None:
    assert scenario.snapshot.issues == ()
    names = ("alice", "bob", "carol", "dave", "grace")
    assert [len(scenario.positions(name, "LENDING")) for name in names] == [2, 1, 0, 1, 0]
    assert [len(scenario.positions(name, "DEPOSIT")) for name in names] == [1, 1, 1, 1, 0]
    assert scenario.vault("dollars").name == f"USDC-A vault {scenario.vaults['dollars']}"


@pytest.mark.parametrize(("name", "owner"), [("ether", "alice"), ("dollars", "alice"), ("given", "bob")])
def test_closing_a_vault_takes_what_is_owed_and_pays_the_collateral(scenario: Scenario, name: str, owner: str) -> None:
    position = scenario.vault(name)
    assert position.account == scenario.account(owner)
    debts = parts([position], "borrowed")
    raw = debts.get(scenario.maker["MCD_DAI"], 0)
    calls, block = closing(scenario, name, owner, raw), scenario.snapshot.block
    assert scenario.world.payout(scenario.account(owner), calls, block) == parts([position], "supplied")
    assert scenario.world.payout(scenario.account("deployer"), calls, block) == {
        token: -raw for token, raw in debts.items()
    }
    if raw:
        with pytest.raises(AssertionError, match="status"):
            scenario.world.payout(scenario.account(owner), closing(scenario, name, owner, raw - 1), block)


def test_what_drawing_left_behind_pays_a_part_of_the_debt(scenario: Scenario) -> None:
    urn = scenario.read("CDP_MANAGER", "urns(uint256)(address)", scenario.vaults["ether"])
    assert 0 < scenario.read("MCD_VAT", "dai(address)(uint256)", urn) < RAY


def test_below_a_health_of_one_a_vault_can_be_liquidated_and_above_not(scenario: Scenario) -> None:
    health = scenario.vault("ether").health
    assert health is not None
    *_, spot, _, _ = scenario.read("MCD_VAT", ILK, ETHER)
    assert lets_bite(scenario, int(spot / health * 9_999 / 10_000))
    assert not lets_bite(scenario, int(spot / health * 10_001 / 10_000))


def lets_bite(scenario: Scenario, spot: int) -> bool:
    """Return True if Alice's vault could be liquidated at this price (including the margin)."""
    maker, me = scenario.maker, scenario.account("grace")
    urn = scenario.read("CDP_MANAGER", "urns(uint256)(address)", scenario.vaults["ether"])
    file = "file(bytes32,bytes32,uint256)"
    calls = [
        tx(maker["MCD_PAUSE_PROXY"], maker["MCD_VAT"], file, ETHER, b"spot".ljust(32, b"\0"), spot),
        tx(me, maker["MCD_CAT"], "bite(bytes32,address)", ETHER, urn, gas=3_000_000),
    ]
    try:
        return scenario.world.payout(me, calls, scenario.snapshot.block) == {}
    except AssertionError:  # the contract refused
        return False


@pytest.mark.parametrize("name", ["alice", "carol"])
def test_leaving_the_savings_manager_pays_what_is_said(scenario: Scenario, name: str) -> None:
    me = scenario.account(name)
    payout = scenario.world.payout(
        me, [tx(me, scenario.maker["DSR_MANAGER"], "exitAll(address)", me)], scenario.snapshot.block
    )
    assert payout == parts(scenario.positions(name, "DEPOSIT"), "supplied")


def test_leaving_the_pot_pays_what_is_said_and_not_a_unit_more(scenario: Scenario) -> None:
    me, pot = scenario.account("bob"), scenario.maker["MCD_POT"]
    savings = parts(scenario.positions("bob", "DEPOSIT"), "supplied")
    share = scenario.read("MCD_POT", "pie(address)(uint256)", me)
    leave = [tx(me, pot, "drip()"), tx(me, pot, "exit(uint256)", share)]
    take = tx(me, scenario.maker["MCD_JOIN_DAI"], "exit(address,uint256)", me, savings[scenario.maker["MCD_DAI"]])
    assert scenario.world.payout(me, [*leave, take], scenario.snapshot.block) == savings
    excess_exit = tx(
        me, scenario.maker["MCD_JOIN_DAI"], "exit(address,uint256)", me, savings[scenario.maker["MCD_DAI"]] + 1
    )
    with pytest.raises(AssertionError, match="status"):
        scenario.world.payout(me, [*leave, excess_exit], scenario.snapshot.block)


def test_what_a_proxy_has_is_its_owner_s(scenario: Scenario) -> None:
    me, maker = scenario.account("dave"), scenario.maker
    proxy = scenario.read("PROXY_REGISTRY", "proxies(address)(address)", me)
    (vault,), (savings,) = scenario.positions("dave", "LENDING"), scenario.positions("dave", "DEPOSIT")
    debt, number = parts([vault], "borrowed")[maker["MCD_DAI"]], int(vault.name.rpartition(" ")[2])
    terms = (maker["CDP_MANAGER"], maker["MCD_JOIN_ETH_A"], maker["MCD_JOIN_DAI"], number, 30 * WAD)
    leave = by_proxy(
        me, proxy, maker["PROXY_ACTIONS_DSR"], "exitAll(address,address)", maker["MCD_JOIN_DAI"], maker["MCD_POT"]
    )
    saved = parts([savings], "supplied")
    assert scenario.world.payout(me, [leave], scenario.snapshot.block) == saved
    close = by_proxy(me, proxy, maker["PROXY_ACTIONS"], CLOSE, *terms)
    payout = scenario.world.payout(me, [leave, close], scenario.snapshot.block)
    assert payout == {COINS: 30 * WAD, maker["MCD_DAI"]: saved[maker["MCD_DAI"]] - debt}
    assert parts([vault], "supplied") == {maker["ETH"]: 30 * WAD}


# --- what no chain would say -----------------------------------------------------------------------------------------

ME, MANAGER, READER, VAT, DAI, REGISTRY, TOKEN, POT, FACTORY, PROXY = ("0x" + f"{at:02x}" * 20 for at in range(1, 11))
NOBODY = "0x" + "0" * 40
ROLES = {
    "cdp_manager": (MANAGER,),
    "get_cdps": (READER,),
    "vat": (VAT,),
    "dai": (DAI,),
    "ilk_registry": (REGISTRY,),
    "pot": (POT,),
    "proxy_factory": (FACTORY,),
}
SAYS: dict[tuple[Any, ...], Any] = {
    (MANAGER, "count"): 1,
    (READER, "getCdpsAsc"): ((5,), (ME,), (ETHER,)),
    (VAT, "urns"): (WAD, 0),
    (VAT, "ilks"): (0, RAY, RAY, 0, 0),
    (VAT, "gem"): 0,
    (VAT, "dai"): 0,
    (REGISTRY, "gem"): TOKEN,
    (REGISTRY, "dec"): 18,
}
MET = ProtocolMatch(ME, MANAGER, contracts=ROLES, time_s=1_000)


def test_without_a_registry_the_collateral_is_unknown_and_not_nothing() -> None:
    match = replace(MET, contracts={role: at for role, at in ROLES.items() if role != "ilk_registry"})
    (position,) = decode(maker_vaults.position, match, says=SAYS)
    assert isinstance(position, DecodedPosition)
    assert (position.supplied, position.unknown) == ((TokenAmount(DAI, 0),), "its collateral")


def test_a_collateral_that_the_registry_forgot_is_not_the_native_coin() -> None:
    (position,) = decode(maker_vaults.position, MET, says=SAYS | {(REGISTRY, "gem"): NOBODY, (REGISTRY, "dec"): 0})
    assert (position.supplied, position.unknown) == ((TokenAmount(DAI, 0),), "its collateral")


def test_what_lies_in_a_vault_is_told_in_units_of_its_token() -> None:
    (position,) = decode(maker_vaults.position, MET, says=SAYS | {(REGISTRY, "dec"): 6})
    assert (position.supplied, position.health) == ((TokenAmount(TOKEN, 10**6), TokenAmount(DAI, 0)), None)


def test_before_there_was_a_manager_or_a_pot_nobody_has_anything() -> None:
    assert decode(maker_vaults.position, MET, says={}) is None
    assert decode(maker_savings.position, ProtocolMatch(ME, POT, contracts=ROLES), says={}) is None


@pytest.mark.parametrize(("owner", "vaults"), [(ME, 1), (DAI, 0)])
def test_a_proxy_that_was_given_away_is_not_the_account_s(owner: str, vaults: int) -> None:
    match, says = replace(MET, contract=FACTORY, values=((PROXY,),)), SAYS | {(PROXY, "owner"): owner}
    assert len(decode(maker_vaults.position, match, says=says) or ()) == vaults
    assert decode(maker_savings.position, match, says=says | {(POT, "pie"): 0}) is None


def test_vaults_that_nobody_lists_are_unknown() -> None:
    report = read(maker_vaults.position, MET, says=SAYS | {(READER, "getCdpsAsc"): Reverted()})
    assert (report.status, "getCdpsAsc" in report.reason) == ("failed", True)


def test_savings_without_a_rate_are_unknown() -> None:
    report = read(maker_savings.position, ProtocolMatch(ME, POT, contracts=ROLES), says={(POT, "pie"): 1})
    assert (report.status, "chi" in report.reason) == ("failed", True)
