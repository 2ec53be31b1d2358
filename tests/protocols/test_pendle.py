"""Pendle on its published code: market shares, principal and yield are worth what closing pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols import pendle_market, pendle_sy, pendle_yield
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted
from chainfolio.protocols import TokenAmount, UnlistedShare, UnverifiedShare
from tests.protocols.pendle_deployment import WEEK_S, Pendle, pendle
from tests.protocols.scripted import decode
from tests.protocols.world import World, parts

GAS = 3_000_000


@dataclass(frozen=True)
class Scenario:
    """The world, Pendle in it, and a snapshot."""

    world: World
    pendle: Pendle
    snapshot: Snapshot

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()

    def position(self, name: str, contract: str) -> Position:
        account_positions = [each for each in self.snapshot.positions if each.account == self.account(name)]
        (position,) = [each for each in account_positions if each.pool == self.pendle[contract]]
        return position

    def read(self, contract: str, signature: str, *args: Any) -> Any:
        return self.world.node.call(self.pendle[contract], signature, *args, block=self.snapshot.block.height)

    def payout(self, name: str, calls: list[Tx]) -> dict[str, int]:
        """Return what these calls give, after all standardized yield from them is redeemed."""
        me, share, vault = self.account(name), self.pendle["SY"], self.pendle["vault"]
        transfers = self.world.payout(me, calls, self.snapshot.block)
        raw = transfers.get(share, 0)
        redeem = tx(me, share, "redeem(address,uint256,address,uint256,bool)", me, raw, vault, 0, False, gas=GAS)
        leave = tx(me, vault, "redeem(uint256,address,address)", raw, me, me, gas=GAS)
        return self.world.payout(me, [*calls, redeem, leave], self.snapshot.block)


@pytest.fixture(scope="module", params=[True, False], ids=["current", "older"])
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = pendle(node, deployment, current=request.param)
        world = World(node, deployment, tmp_path_factory.mktemp("pendle"), {"pendle": it.file})
        yield Scenario(world, it, world.snapshot(*(deployment.accounts[name] for name in ("alice", "bob", "carol"))))


def test_everything_was_read(scenario: Scenario) -> None:
    assert scenario.snapshot.issues == ()
    assert {each.protocol for each in scenario.snapshot.positions} >= {"pendle"}


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_burning_a_market_s_shares_pays_what_is_said(scenario: Scenario, name: str) -> None:
    position, me, market = scenario.position(name, "market"), scenario.account(name), scenario.pendle["market"]
    shares = scenario.read("market", "balanceOf(address)(uint256)", me)
    payout = scenario.payout(
        name,
        [
            tx(me, market, "transfer(address,uint256)", market, shares, gas=GAS),
            tx(me, market, "burn(address,address,uint256)", me, me, shares, gas=GAS),
        ],
    )
    assert payout.pop(market) == -shares
    assert parts([position], "supplied") == payout
    assert position.type == "LIQUIDITYPOOL"


def test_what_shares_of_a_market_earned_is_what_claiming_pays(scenario: Scenario) -> None:
    position, me = scenario.position("alice", "market"), scenario.account("alice")
    payout = scenario.world.payout(
        me, [tx(me, scenario.pendle["market"], "redeemRewards(address)", me, gas=GAS)], scenario.snapshot.block
    )
    assert parts([position], "rewards") == payout
    assert payout[scenario.pendle["PENDLE"]] > 0


@pytest.mark.parametrize("expiry", ["soon", "late"])
def test_what_a_yield_token_earned_is_what_claiming_pays(scenario: Scenario, expiry: str) -> None:
    """The yield token itself counts too, until it expires."""
    me, token = scenario.account("bob"), scenario.pendle[f"{expiry} yield"]
    supplied = parts([scenario.position("bob", f"{expiry} yield")], "supplied")
    shares = scenario.read(f"{expiry} yield", "balanceOf(address)(uint256)", me)
    assert shares > 0
    assert supplied.pop(token, 0) == (shares if expiry == "late" else 0)
    claim = tx(me, token, "redeemDueInterestAndRewards(address,bool,bool)", me, True, True, gas=GAS)
    payout = scenario.payout("bob", [claim])
    assert supplied == payout
    assert payout[scenario.pendle["DAI"]] > 0


def test_principal_that_expired_is_what_redeeming_pays(scenario: Scenario) -> None:
    position, me, twin = (
        scenario.position("bob", "soon principal"),
        scenario.account("bob"),
        scenario.pendle["soon yield"],
    )
    shares = scenario.read("soon principal", "balanceOf(address)(uint256)", me)
    payout = scenario.payout(
        "bob",
        [
            tx(me, scenario.pendle["soon principal"], "transfer(address,uint256)", twin, shares, gas=GAS),
            tx(me, twin, "redeemPY(address)", me, gas=GAS),
        ],
    )
    assert payout.pop(scenario.pendle["soon principal"]) == -shares
    assert parts([position], "supplied") == payout


def test_principal_that_did_not_expire_stays_the_token_that_it_is(scenario: Scenario) -> None:
    late, alice = scenario.pendle["late principal"], scenario.account("alice")
    assert not [each for each in scenario.snapshot.positions if each.pool == late]
    (shares,) = [
        each.raw
        for each in scenario.snapshot.holdings
        if each.token.asset.shown_contract == late and each.account == alice
    ]
    assert shares == scenario.read("late principal", "balanceOf(address)(uint256)", alice)


def test_standardized_yield_is_what_redeeming_pays(scenario: Scenario) -> None:
    position, me = scenario.position("alice", "SY"), scenario.account("alice")
    shares = scenario.read("SY", "balanceOf(address)(uint256)", me)
    leave = tx(
        me,
        scenario.pendle["SY"],
        "redeem(address,uint256,address,uint256,bool)",
        me,
        shares,
        scenario.pendle["DAI"],
        0,
        False,
        gas=GAS,
    )
    payout = scenario.world.payout(me, [leave], scenario.snapshot.block)
    assert payout.pop(scenario.pendle["SY"]) == -shares
    assert parts([position], "supplied") == payout


def test_what_is_locked_is_what_withdrawing_pays_once_it_is_free(scenario: Scenario) -> None:
    position, me, node = scenario.position("carol", "escrow"), scenario.account("carol"), scenario.world.node
    assert position.type == "LOCKED"
    assert position.unlock_s == scenario.read("escrow", "positionData(address)(uint128,uint128)", me)[1]
    node.mine(1, 4 * WEEK_S)
    later = scenario.world.snapshot(me)
    payout = scenario.world.payout(me, [tx(me, scenario.pendle["escrow"], "withdraw()", gas=GAS)], later.block)
    assert parts([position], "supplied") == payout


# --- what no chain would say -----------------------------------------------------------------------------------------

ME, MARKET, FACTORY, SHARE, PRINCIPAL, YIELD, TOKEN = ("0x" + f"{at:02x}" * 20 for at in range(1, 8))
SAYS: dict[tuple[Any, ...], Any] = {
    (FACTORY, "isValidMarket"): True,
    (MARKET, "readState"): (20, 10, 5),
    (MARKET, "balanceOf"): 1,
    (MARKET, "readTokens"): (SHARE, PRINCIPAL, YIELD),
    (MARKET, "getRewardTokens"): (TOKEN,),
    (MARKET, "redeemRewards"): (7,),
    (FACTORY, "isPT"): False,
    (FACTORY, "isYT"): True,
    (YIELD, "balanceOf"): 3,
    (YIELD, "isExpired"): False,
    (YIELD, "SY"): SHARE,
    (YIELD, "getRewardTokens"): (TOKEN,),
    (YIELD, "redeemDueInterestAndRewards"): (4, (5,)),
    (SHARE, "previewRedeem"): 9,
    (TOKEN, "balanceOf"): 9,
    (SHARE, "balanceOf"): 8,
    (SHARE, "getRewardTokens"): (),
    (SHARE, "totalSupply"): 8,
    (SHARE, "yieldToken"): TOKEN,
}


def test_a_share_of_a_market_is_its_part_of_both() -> None:
    position = decode(pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=SAYS)
    assert (position.supplied, position.rewards) == (
        (TokenAmount(SHARE, 2), TokenAmount(PRINCIPAL, 4)),
        (TokenAmount(TOKEN, 7),),
    )


def test_a_market_that_the_factory_does_not_know_is_none() -> None:
    says = SAYS | {(FACTORY, "isValidMarket"): False}
    assert decode(pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=says) is None
    assert decode(pendle_market.unwrap, ProtocolMatch(ME, MARKET, FACTORY), 1, says=says) is None


def test_rewards_that_cannot_be_claimed_now_are_unknown_and_not_nothing() -> None:
    position = decode(
        pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=SAYS | {(MARKET, "redeemRewards"): Reverted()}
    )
    assert position.unknown == "its rewards"
    says = SAYS | {(YIELD, "redeemDueInterestAndRewards"): Reverted()}
    assert decode(pendle_yield.position, ProtocolMatch(ME, YIELD, FACTORY), says=says).unknown == "what it has earned"


def test_a_yield_token_that_the_factory_does_not_know_is_none() -> None:
    says = SAYS | {(FACTORY, "isYT"): False}
    assert decode(pendle_yield.position, ProtocolMatch(ME, YIELD, FACTORY), says=says) is None
    assert decode(pendle_yield.unwrap, ProtocolMatch(ME, YIELD, FACTORY), 1, says=says) is None


NO = Reverted()
MINE = (TokenAmount(TOKEN, 9),)


def test_standardized_yield_that_no_file_names_is_only_what_lies_there_for_all_of_it() -> None:
    assert decode(pendle_sy.unwrap, ProtocolMatch(ME, SHARE, TOKEN), 8, says=SAYS) == UnlistedShare(MINE)
    refusal = {(SHARE, "previewRedeem"): Reverted()}
    assert decode(pendle_sy.unwrap, ProtocolMatch(ME, SHARE, TOKEN), 8, says=SAYS | refusal) is None


@pytest.mark.parametrize(
    "changed",
    [{(TOKEN, "balanceOf"): 7}, {(SHARE, "totalSupply"): 12}, {(SHARE, "totalSupply"): 7}, {(TOKEN, "balanceOf"): NO}],
    ids=["more than there is", "others have some", "more than there are", "no token"],
)
def test_standardized_yield_that_promises_more_than_lies_there_is_not_relied_on(changed: dict[Any, Any]) -> None:
    match = ProtocolMatch(ME, SHARE, TOKEN)
    assert isinstance(decode(pendle_sy.unwrap, match, 8, says=SAYS | changed), UnverifiedShare)
    assert isinstance(decode(pendle_sy.position, match, says=SAYS | changed), UnverifiedShare)
    listed_match = replace(match, answer=SHARE, contracts={"sy": (SHARE,)})  # as the rule for listed ones meets it
    assert decode(pendle_sy.unwrap, listed_match, 8, says=SAYS | changed) == MINE


def test_standardized_yield_with_rewards_says_that_they_are_unknown() -> None:
    position = decode(
        pendle_sy.position, ProtocolMatch(ME, SHARE, TOKEN), says=SAYS | {(SHARE, "getRewardTokens"): (YIELD,)}
    )
    assert (position.supplied, position.unknown, position.is_unlisted) == (MINE, "its rewards", True)
