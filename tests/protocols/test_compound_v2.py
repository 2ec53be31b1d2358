"""Compound V2 on Venus' published code: supply, debt and rewards are what leaving pays and takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols.compound_v2 import NOT_SENT, position, unwrap
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.protocols import TokenAmount
from tests.protocols.compound_v2_deployment import PRICES, REWARD, SPEEDS, Venus, supply, venus
from tests.protocols.scripted import decode
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
class Scenario:
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
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with LocalNode() as node:
        deployment = deploy(node)
        opened = venus(node, deployment)
        files = {"venus": FILE.format(comptroller=opened.comptroller.lower())}
        world = World(node, deployment, tmp_path_factory.mktemp("venus"), files)
        lend_and_borrow(world, opened)
        accounts = [deployment.accounts[name] for name in ("alice", "bob", "carol")]
        yield Scenario(world, opened, world.snapshot(*accounts))


def lend_and_borrow(world: World, opened: Venus) -> None:
    """Let Alice borrow ether against dollars, Bob two kinds of dollars against ether; Carol supplies."""
    node, deployment = world.node, world.deployment
    accounts = deployment.accounts
    usdc, dai, eth = (opened.markets[symbol] for symbol in ("USDC", "DAI", "ETH"))
    for symbol, raw in (("USDC", 10**12), ("DAI", 10**6 * WAD), ("ETH", 500 * WAD)):
        node.settle(supply(accounts["deployer"], opened, deployment, symbol, raw))
    node.settle(
        [
            *supply(accounts["alice"], opened, deployment, "USDC", 100_000 * 10**6),
            *supply(accounts["bob"], opened, deployment, "ETH", 60 * WAD),
            *supply(accounts["carol"], opened, deployment, "DAI", 7 * WAD + 3)[:2],
        ]
    )
    every = [usdc, dai, eth]
    node.settle([tx(accounts["deployer"], opened.comptroller, SPEEDS, every, [WAD, 3, 10**16], [WAD // 3, 10**17, 7])])
    node.settle(
        [
            tx(accounts["alice"], eth, "borrow(uint256)", 11 * WAD + 1),
            tx(accounts["bob"], usdc, "borrow(uint256)", 20_000 * 10**6),
            tx(accounts["bob"], dai, "borrow(uint256)", 30_000 * WAD),
        ]
    )
    node.mine(40)
    node.settle([tx(accounts["bob"], usdc, "repayBorrow(uint256)", 0)])  # brings one market up to date
    node.mine(3)


def leaving(scenario: Scenario, name: str) -> list[Tx]:
    """Have the deployer repay everything, claim, and take everything out."""
    me, rich = scenario.account(name), scenario.account("deployer")
    calls = []
    for token, raw in parts([scenario.position(name)], "borrowed").items():
        market = scenario.market(token)
        if token == ETHER:
            calls.append(tx(rich, market, "repayBorrowBehalf(address)", me, value=raw))
        else:
            calls += [
                tx(rich, token, "approve(address,uint256)", market, MAX),
                tx(rich, market, "repayBorrowBehalf(address,uint256)", me, raw),
            ]
    calls.append(tx(me, scenario.venus.comptroller, "claimVenus(address)", me))
    for market in scenario.venus.markets.values():
        shares = read(scenario, market, "balanceOf(address)(uint256)", me)
        calls += [tx(me, market, "redeem(uint256)", shares)] if shares else []
    return calls


def read(scenario: Scenario, to: str, signature: str, *args: str) -> Any:
    return scenario.world.node.call(to, signature, *args, block=scenario.snapshot.block.height)


def test_everything_was_read(scenario: Scenario) -> None:
    assert scenario.snapshot.issues == ()
    assert {token: raw > 0 for token, raw in parts(scenario.snapshot.positions, "rewards").items()} == {
        REWARD.lower(): True
    }
    assert len(parts([scenario.position("bob")], "borrowed")) == 2


@pytest.mark.parametrize("name", ["alice", "bob", "carol"])
def test_what_was_supplied_and_earned_is_what_leaving_pays(scenario: Scenario, name: str) -> None:
    amounts = parts([scenario.position(name)], "supplied", "rewards")
    payout = scenario.world.payout(scenario.account(name), leaving(scenario, name), scenario.snapshot.block)
    assert {token: raw for token, raw in payout.items() if token not in shares(scenario)} == amounts


@pytest.mark.parametrize(("name", "count"), [("alice", 1), ("bob", 2)])
def test_what_is_owed_is_what_repaying_all_of_it_takes(scenario: Scenario, name: str, count: int) -> None:
    debts = parts([scenario.position(name)], "borrowed")
    assert len(debts) == count
    rich = scenario.account("deployer")
    for token, raw in debts.items():
        market = scenario.market(token)
        if token == ETHER:  # it takes any amount that is not more than what is owed, and refuses one unit more
            for excess, accepted in ((0, True), (1, False)):
                repay = tx(rich, market, "repayBorrowBehalf(address)", scenario.account(name), value=raw + excess)
                assert succeeds(scenario, repay) is accepted
        else:
            calls = [
                tx(rich, token, "approve(address,uint256)", market, MAX),
                tx(rich, market, "repayBorrowBehalf(address,uint256)", scenario.account(name), MAX),
            ]
            assert scenario.world.payout(rich, calls, scenario.snapshot.block) == {token: -raw}


def succeeds(scenario: Scenario, call: Tx) -> bool:
    """Return True if a call succeeds on top of the snapshot's block."""
    request = {"from": call.sender, "to": call.to, "data": call.data, "value": hex(call.value)}
    states = {"blockStateCalls": [{"calls": [request]}], "validation": False}
    (block,) = scenario.world.node.rpc("eth_simulateV1", states, hex(scenario.snapshot.block.height))
    return bool(block["calls"][0]["status"] == "0x1")


def shares(scenario: Scenario) -> set[str]:
    return {market.lower() for market in scenario.venus.markets.values()}


def test_health_is_the_comptrollers_own_sum(scenario: Scenario) -> None:
    """`getAccountLiquidity` returns by how much collateral exceeds debt.

    It counts interest up to the last accrual of a market, so all markets accrue first.
    """
    world, comptroller = scenario.world, scenario.venus.comptroller
    world.node.settle(
        [tx(scenario.account("deployer"), at, "accrueInterest()") for at in scenario.venus.markets.values()]
    )
    accounts = [scenario.account(name) for name in ("alice", "bob")]
    for each in world.snapshot(*accounts).positions:
        _, liquidity, shortfall = world.node.call(
            comptroller, "getAccountLiquidity(address)(uint256,uint256,uint256)", each.account
        )
        debt = sum(raw * PRICES[symbol_of(scenario, token)] // WAD for token, raw in parts([each], "borrowed").items())
        assert each.health is not None
        assert shortfall == 0
        assert abs(int(each.health * debt) - debt - liquidity) <= debt // 10**9  # it rounds on the way
    assert scenario.position("carol").health is None


def symbol_of(scenario: Scenario, token: str) -> str:
    return {each.address.lower(): symbol for symbol, each in scenario.world.deployment.tokens.items()}.get(token, "ETH")


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
    result = decode(position, MET, says=HEALTHY)
    assert result.supplied == (TokenAmount(ASSET, 500),)
    assert result.borrowed == (TokenAmount(ASSET, 50),)
    assert result.replaces == (MARKET,)
    assert result.health == 5
    assert result.unknown == ""


def test_a_second_market_of_an_asset_has_a_position_of_its_own() -> None:
    second = "0x" + "52" * 20
    says = {(second if part == MARKET else part, *rest): value for (part, *rest), value in HEALTHY.items()}
    says |= {(COMPTROLLER, "markets", second): (True, WAD // 2), (second, "balanceOfUnderlying"): 70}
    met = ProtocolMatch(ME, COMPTROLLER, answer=COMPTROLLER, tokens=(MARKET, second))
    both = decode(position, met, says={**says, **HEALTHY})
    parts = {each.replaces: (each.supplied, bool(each.borrowed), each.health is None) for each in both}
    assert parts == {
        (MARKET,): ((TokenAmount(ASSET, 500),), True, False),
        (second,): ((TokenAmount(ASSET, 70),), False, True),
    }


def test_a_gift_in_a_second_market_of_a_fork_leaves_the_deposit_verified() -> None:
    second = "0x" + "52" * 20
    says = {(second if part == MARKET else part, *rest): value for (part, *rest), value in HEALTHY.items()}
    says |= {(COMPTROLLER, "markets", second): (True, WAD // 2), (ASSET, "balanceOf"): 10**6}
    sent = {MARKET: frozenset({ASSET})}
    met = ProtocolMatch(ME, COMPTROLLER, answer=COMPTROLLER, tokens=(MARKET, second), is_fork=True, sent=sent)
    both = decode(position, met, says={**says, **HEALTHY})
    assert {each.replaces: each.unverified for each in both} == {(MARKET,): "", (second,): NOT_SENT}


def test_a_market_that_cannot_add_up_its_interest_says_what_it_last_did() -> None:
    silent = {key: value for key, value in HEALTHY.items() if key[1] != "borrowBalanceCurrent"}
    result = decode(position, MET, says=silent)
    assert result.borrowed == (TokenAmount(ASSET, 30),)
    assert result.unknown == "the newest interest"
    assert result.health is None


def test_debt_that_is_not_read_is_said_and_leaves_no_health() -> None:
    result = decode(position, MET, says={**HEALTHY, (COMPTROLLER, "mintedVAIs"): 1})
    assert result.unknown == "what it owes in VAI"
    assert result.health is None


def test_without_a_price_there_is_no_health() -> None:
    assert decode(position, MET, says={**HEALTHY, (ORACLE, "getUnderlyingPrice"): 0}).health is None


def test_what_was_supplied_and_not_made_collateral_secures_nothing() -> None:
    result = decode(position, MET, says={**HEALTHY, (COMPTROLLER, "getAssetsIn"): ()})
    assert result.supplied == (TokenAmount(ASSET, 500),)
    assert result.health == 0


def test_a_position_that_cannot_be_read_is_unknown_not_empty() -> None:
    with pytest.raises(ReadError):
        decode(position, MET, says={key: value for key, value in HEALTHY.items() if key[1] != "getAccountSnapshot"})


def test_a_market_that_answers_with_an_error_is_unknown_not_empty() -> None:
    with pytest.raises(ReadError):
        decode(position, MET, says={**HEALTHY, (MARKET, "getAccountSnapshot"): (9, 0, 0, 0)})


def test_a_comptroller_of_before_the_rewards_that_we_know_says_so_and_the_rest() -> None:
    options = {"rewards": "comp", "reward": "getCompAddress()(address)"}
    match = ProtocolMatch(ME, COMPTROLLER, answer=COMPTROLLER, tokens=(MARKET,), options=options)
    result = decode(position, match, says={**HEALTHY, (COMPTROLLER, "getCompAddress"): ASSET})
    assert result.unknown == "what it earned beside interest"
    assert result.rewards == ()
    assert result.supplied == (TokenAmount(ASSET, 500),)
    assert result.health == 5


def test_a_market_s_token_inside_something_else_is_what_redeeming_it_gives() -> None:
    match = ProtocolMatch(ME, MARKET, answer=COMPTROLLER)
    ether = {(COMPTROLLER, "markets", MARKET): (True, 0), (MARKET, "exchangeRateCurrent"): 3 * WAD}
    assert decode(unwrap, match, 500, says=ether) == (TokenAmount(ETHER, 1500),)
    assert decode(unwrap, match, 500, says={**ether, (MARKET, "underlying"): ASSET}) == (TokenAmount(ASSET, 1500),)
    assert decode(unwrap, match, 500, says={**ether, (COMPTROLLER, "markets", MARKET): (False, 0)}) is None
