"""Compound V2's kind, on Venus' published code: what was supplied, owed and earned is what leaving pays and takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols.compound_v2 import position, unwrap
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.protocols import TokenAmount
from tests.protocols.compound_v2_deployment import PRICES, REWARD, SPEEDS, Venus, supply, venus
from tests.protocols.told import told
from tests.protocols.world import ETHER, World, parts

FILE = """\
key = "venus"
name = "Venus"
families = ["compound_v2"]
[options]
reward = "getXVSAddress()(address)"
rewards = "venus"
[contracts.local]
comptroller = ["{comptroller}"]
"""


@dataclass(frozen=True)
class Lived:
    """The world, its markets and a snapshot of a block in which nothing happened."""

    world: World
    venus: Venus
    snapshot: Snapshot

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()

    def position(self, name: str) -> Position:
        (position,) = [each for each in self.snapshot.positions if each.account == self.account(name)]
        return position

    def market(self, token: str) -> str:
        """The market of a token."""
        symbols = {each.address.lower(): symbol for symbol, each in self.world.deployment.tokens.items()}
        return self.venus.markets[symbols.get(token, "ETH")]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    with LocalNode() as node:
        deployment = deploy(node)
        opened = venus(node, deployment)
        files = {"venus": FILE.format(comptroller=opened.comptroller.lower())}
        world = World(node, deployment, tmp_path_factory.mktemp("venus"), files)
        lend_and_borrow(world, opened)
        accounts = [deployment.accounts[name] for name in ("alice", "bob", "carol")]
        yield Lived(world, opened, world.snapshot(*accounts))


def lend_and_borrow(world: World, opened: Venus) -> None:
    """Alice supplies dollars and owes ether; Bob supplies ether and owes two kinds of dollars; Carol only supplies."""
    node, deployment = world.node, world.deployment
    who = deployment.accounts
    usdc, dai, eth = (opened.markets[symbol] for symbol in ("USDC", "DAI", "ETH"))
    for symbol, raw in (("USDC", 10**12), ("DAI", 10**6 * WAD), ("ETH", 500 * WAD)):
        node.settle(supply(who["deployer"], opened, deployment, symbol, raw))
    node.settle(
        [
            *supply(who["alice"], opened, deployment, "USDC", 100_000 * 10**6),
            *supply(who["bob"], opened, deployment, "ETH", 60 * WAD),
            *supply(who["carol"], opened, deployment, "DAI", 7 * WAD + 3)[:2],
        ]
    )
    every = [usdc, dai, eth]
    node.settle([tx(who["deployer"], opened.comptroller, SPEEDS, every, [WAD, 3, 10**16], [WAD // 3, 10**17, 7])])
    node.settle(
        [
            tx(who["alice"], eth, "borrow(uint256)", 11 * WAD + 1),
            tx(who["bob"], usdc, "borrow(uint256)", 20_000 * 10**6),
            tx(who["bob"], dai, "borrow(uint256)", 30_000 * WAD),
        ]
    )
    node.mine(40)
    node.settle([tx(who["bob"], usdc, "repayBorrow(uint256)", 0)])  # brings one market up to date
    node.mine(3)


def leaving(lived: Lived, name: str) -> list[Tx]:
    """Have the deployer repay everything, claim, and take everything out."""
    me, rich = lived.account(name), lived.account("deployer")
    calls = []
    for token, raw in parts([lived.position(name)], "borrowed").items():
        market = lived.market(token)
        if token == ETHER:
            calls.append(tx(rich, market, "repayBorrowBehalf(address)", me, value=raw))
        else:
            calls += [
                tx(rich, token, "approve(address,uint256)", market, MAX),
                tx(rich, market, "repayBorrowBehalf(address,uint256)", me, raw),
            ]
    calls.append(tx(me, lived.venus.comptroller, "claimVenus(address)", me))
    for market in lived.venus.markets.values():
        shares = read(lived, market, "balanceOf(address)(uint256)", me)
        calls += [tx(me, market, "redeem(uint256)", shares)] if shares else []
    return calls


def read(lived: Lived, to: str, signature: str, *args: str) -> Any:
    return lived.world.node.call(to, signature, *args, block=lived.snapshot.block.height)


def test_everything_was_read(lived: Lived) -> None:
    assert lived.snapshot.issues == ()
    assert {token: raw > 0 for token, raw in parts(lived.snapshot.positions, "rewards").items()} == {
        REWARD.lower(): True
    }
    assert len(parts([lived.position("bob")], "borrowed")) == 2


@pytest.mark.parametrize("name", ["alice", "bob", "carol"])
def test_what_was_supplied_and_earned_is_what_leaving_pays(lived: Lived, name: str) -> None:
    said = parts([lived.position(name)], "supplied", "rewards")
    paid = lived.world.paid(lived.account(name), leaving(lived, name), lived.snapshot.block)
    assert {token: raw for token, raw in paid.items() if token not in shares(lived)} == said


@pytest.mark.parametrize(("name", "count"), [("alice", 1), ("bob", 2)])
def test_what_is_owed_is_what_repaying_all_of_it_takes(lived: Lived, name: str, count: int) -> None:
    owed = parts([lived.position(name)], "borrowed")
    assert len(owed) == count
    rich = lived.account("deployer")
    for token, raw in owed.items():
        market = lived.market(token)
        if token == ETHER:  # it takes any amount that is not more than what is owed, and refuses one unit more
            for more, accepted in ((0, True), (1, False)):
                repay = tx(rich, market, "repayBorrowBehalf(address)", lived.account(name), value=raw + more)
                assert succeeds(lived, repay) is accepted
        else:
            calls = [
                tx(rich, token, "approve(address,uint256)", market, MAX),
                tx(rich, market, "repayBorrowBehalf(address,uint256)", lived.account(name), MAX),
            ]
            assert lived.world.paid(rich, calls, lived.snapshot.block) == {token: -raw}


def succeeds(lived: Lived, call: Tx) -> bool:
    """Whether a call would, on top of the snapshot's block."""
    asked = {"from": call.sender, "to": call.to, "data": call.data, "value": hex(call.value)}
    states = {"blockStateCalls": [{"calls": [asked]}], "validation": False}
    (block,) = lived.world.node.rpc("eth_simulateV1", states, hex(lived.snapshot.block.height))
    return bool(block["calls"][0]["status"] == "0x1")


def shares(lived: Lived) -> set[str]:
    return {market.lower() for market in lived.venus.markets.values()}


def test_health_is_the_comptrollers_own_sum(lived: Lived) -> None:
    """Its lens says how far collateral exceeds debt; it counts interest up to when a market was last brought up to
    date, so all of them are brought up to date first."""
    world, comptroller = lived.world, lived.venus.comptroller
    world.node.settle([tx(lived.account("deployer"), at, "accrueInterest()") for at in lived.venus.markets.values()])
    accounts = [lived.account(name) for name in ("alice", "bob")]
    for each in world.snapshot(*accounts).positions:
        _, liquidity, shortfall = world.node.call(
            comptroller, "getAccountLiquidity(address)(uint256,uint256,uint256)", each.account
        )
        owed = sum(raw * PRICES[symbol_of(lived, token)] // WAD for token, raw in parts([each], "borrowed").items())
        assert each.health is not None
        assert shortfall == 0
        assert abs(int(each.health * owed) - owed - liquidity) <= owed // 10**9  # it rounds on the way
    assert lived.position("carol").health is None


def symbol_of(lived: Lived, token: str) -> str:
    return {each.address.lower(): symbol for symbol, each in lived.world.deployment.tokens.items()}.get(token, "ETH")


# --- what no chain would say -----------------------------------------------------------------------------------------

ME, COMPTROLLER, MARKET, FAKE, ASSET, ORACLE = ("0x" + f"{at:02x}" * 20 for at in range(1, 7))
HEALTHY = {
    (COMPTROLLER, "getAssetsIn"): (MARKET,),
    (COMPTROLLER, "oracle"): ORACLE,
    (COMPTROLLER, "markets", MARKET): (True, WAD // 2),
    (COMPTROLLER, "markets", FAKE): (False, 0),
    (MARKET, "getAccountSnapshot"): (0, 400, 30, WAD),
    (MARKET, "underlying"): ASSET,
    (MARKET, "balanceOfUnderlying"): 500,
    (MARKET, "borrowBalanceCurrent"): 50,
    (ORACLE, "getUnderlyingPrice"): WAD,
}
MET = ProtocolMatch(ME, COMPTROLLER, answer=COMPTROLLER, tokens=(FAKE, MARKET))


def test_a_token_that_only_claims_to_be_a_market_is_none() -> None:
    found = told(position, MET, says=HEALTHY)
    assert found.supplied == (TokenAmount(ASSET, 500),)
    assert found.borrowed == (TokenAmount(ASSET, 50),)
    assert found.replaces == (MARKET,)
    assert found.health == 5
    assert found.unknown == ""


def test_a_market_that_cannot_add_up_its_interest_says_what_it_last_did() -> None:
    silent = {key: value for key, value in HEALTHY.items() if key[1] != "borrowBalanceCurrent"}
    found = told(position, MET, says=silent)
    assert found.borrowed == (TokenAmount(ASSET, 30),)
    assert found.unknown == "the newest interest"
    assert found.health is None


def test_debt_that_is_not_read_is_said_and_leaves_no_health() -> None:
    found = told(position, MET, says={**HEALTHY, (COMPTROLLER, "mintedVAIs"): 1})
    assert found.unknown == "what it owes in VAI"
    assert found.health is None


def test_without_a_price_there_is_no_health() -> None:
    assert told(position, MET, says={**HEALTHY, (ORACLE, "getUnderlyingPrice"): 0}).health is None


def test_what_was_supplied_and_not_made_collateral_secures_nothing() -> None:
    found = told(position, MET, says={**HEALTHY, (COMPTROLLER, "getAssetsIn"): ()})
    assert found.supplied == (TokenAmount(ASSET, 500),)
    assert found.health == 0


def test_a_position_that_cannot_be_read_is_unknown_not_empty() -> None:
    with pytest.raises(ReadError):
        told(position, MET, says={key: value for key, value in HEALTHY.items() if key[1] != "getAccountSnapshot"})


def test_a_market_that_answers_with_an_error_is_unknown_not_empty() -> None:
    with pytest.raises(ReadError):
        told(position, MET, says={**HEALTHY, (MARKET, "getAccountSnapshot"): (9, 0, 0, 0)})


def test_a_comptroller_of_before_the_rewards_that_we_know_says_so_and_the_rest() -> None:
    options = {"rewards": "comp", "reward": "getCompAddress()(address)"}
    match = ProtocolMatch(ME, COMPTROLLER, answer=COMPTROLLER, tokens=(MARKET,), options=options)
    found = told(position, match, says={**HEALTHY, (COMPTROLLER, "getCompAddress"): ASSET})
    assert found.unknown == "what it earned beside interest"
    assert found.rewards == ()
    assert found.supplied == (TokenAmount(ASSET, 500),)
    assert found.health == 5


def test_a_market_s_token_inside_something_else_is_what_redeeming_it_gives() -> None:
    match = ProtocolMatch(ME, MARKET, answer=COMPTROLLER)
    ether = {(COMPTROLLER, "markets", MARKET): (True, 0), (MARKET, "exchangeRateCurrent"): 3 * WAD}
    assert told(unwrap, match, 500, says=ether) == (TokenAmount(ETHER, 1500),)
    assert told(unwrap, match, 500, says={**ether, (MARKET, "underlying"): ASSET}) == (TokenAmount(ASSET, 1500),)
    assert told(unwrap, match, 500, says={**ether, (COMPTROLLER, "markets", MARKET): (False, 0)}) is None
