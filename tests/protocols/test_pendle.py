"""Pendle on its published code: what a share of a market, principal and yield tokens give is what closing them pays."""

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
from tests.protocols.told import told
from tests.protocols.world import World, parts

GAS = 3_000_000


@dataclass(frozen=True)
class Lived:
    """The world, Pendle in it, and a snapshot."""

    world: World
    pendle: Pendle
    snapshot: Snapshot

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()

    def position(self, name: str, contract: str) -> Position:
        own = [each for each in self.snapshot.positions if each.account == self.account(name)]
        (found,) = [each for each in own if each.pool == self.pendle[contract]]
        return found

    def read(self, contract: str, signature: str, *args: Any) -> Any:
        return self.world.node.call(self.pendle[contract], signature, *args, block=self.snapshot.block.height)

    def paid(self, name: str, calls: list[Tx]) -> dict[str, int]:
        """What these calls give, once all standardized yield that they give is redeemed to the last."""
        me, share, vault = self.account(name), self.pendle["SY"], self.pendle["vault"]
        given = self.world.paid(me, calls, self.snapshot.block)
        raw = given.get(share, 0)
        redeem = tx(me, share, "redeem(address,uint256,address,uint256,bool)", me, raw, vault, 0, False, gas=GAS)
        leave = tx(me, vault, "redeem(uint256,address,address)", raw, me, me, gas=GAS)
        return self.world.paid(me, [*calls, redeem, leave], self.snapshot.block)


@pytest.fixture(scope="module", params=[True, False], ids=["current", "older"])
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = pendle(node, deployment, current=request.param)
        world = World(node, deployment, tmp_path_factory.mktemp("pendle"), {"pendle": it.file})
        yield Lived(world, it, world.snapshot(*(deployment.accounts[name] for name in ("alice", "bob", "carol"))))


def test_everything_was_read(lived: Lived) -> None:
    assert lived.snapshot.issues == ()
    assert {each.protocol for each in lived.snapshot.positions} >= {"pendle"}


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_burning_a_market_s_shares_pays_what_is_said(lived: Lived, name: str) -> None:
    position, me, market = lived.position(name, "market"), lived.account(name), lived.pendle["market"]
    held = lived.read("market", "balanceOf(address)(uint256)", me)
    paid = lived.paid(
        name,
        [
            tx(me, market, "transfer(address,uint256)", market, held, gas=GAS),
            tx(me, market, "burn(address,address,uint256)", me, me, held, gas=GAS),
        ],
    )
    assert paid.pop(market) == -held
    assert parts([position], "supplied") == paid
    assert position.type == "LIQUIDITYPOOL"


def test_what_shares_of_a_market_earned_is_what_claiming_pays(lived: Lived) -> None:
    position, me = lived.position("alice", "market"), lived.account("alice")
    paid = lived.world.paid(
        me, [tx(me, lived.pendle["market"], "redeemRewards(address)", me, gas=GAS)], lived.snapshot.block
    )
    assert parts([position], "rewards") == paid
    assert paid[lived.pendle["PENDLE"]] > 0


@pytest.mark.parametrize("expiry", ["soon", "late"])
def test_what_a_yield_token_earned_is_what_claiming_pays(lived: Lived, expiry: str) -> None:
    """Beside itself: until it expires it is a token of its own, and then nothing."""
    me, token = lived.account("bob"), lived.pendle[f"{expiry} yield"]
    supplied = parts([lived.position("bob", f"{expiry} yield")], "supplied")
    held = lived.read(f"{expiry} yield", "balanceOf(address)(uint256)", me)
    assert held > 0
    assert supplied.pop(token, 0) == (held if expiry == "late" else 0)
    claim = tx(me, token, "redeemDueInterestAndRewards(address,bool,bool)", me, True, True, gas=GAS)
    paid = lived.paid("bob", [claim])
    assert supplied == paid
    assert paid[lived.pendle["DAI"]] > 0


def test_principal_that_expired_is_what_redeeming_pays(lived: Lived) -> None:
    position, me, twin = lived.position("bob", "soon principal"), lived.account("bob"), lived.pendle["soon yield"]
    held = lived.read("soon principal", "balanceOf(address)(uint256)", me)
    paid = lived.paid(
        "bob",
        [
            tx(me, lived.pendle["soon principal"], "transfer(address,uint256)", twin, held, gas=GAS),
            tx(me, twin, "redeemPY(address)", me, gas=GAS),
        ],
    )
    assert paid.pop(lived.pendle["soon principal"]) == -held
    assert parts([position], "supplied") == paid


def test_principal_that_did_not_expire_stays_the_token_that_it_is(lived: Lived) -> None:
    late, alice = lived.pendle["late principal"], lived.account("alice")
    assert not [each for each in lived.snapshot.positions if each.pool == late]
    (held,) = [
        each.raw
        for each in lived.snapshot.holdings
        if each.token.asset.shown_contract == late and each.account == alice
    ]
    assert held == lived.read("late principal", "balanceOf(address)(uint256)", alice)


def test_standardized_yield_is_what_redeeming_pays(lived: Lived) -> None:
    position, me = lived.position("alice", "SY"), lived.account("alice")
    held = lived.read("SY", "balanceOf(address)(uint256)", me)
    leave = tx(
        me,
        lived.pendle["SY"],
        "redeem(address,uint256,address,uint256,bool)",
        me,
        held,
        lived.pendle["DAI"],
        0,
        False,
        gas=GAS,
    )
    paid = lived.world.paid(me, [leave], lived.snapshot.block)
    assert paid.pop(lived.pendle["SY"]) == -held
    assert parts([position], "supplied") == paid


def test_what_is_locked_is_what_withdrawing_pays_once_it_is_free(lived: Lived) -> None:
    position, me, node = lived.position("carol", "escrow"), lived.account("carol"), lived.world.node
    assert position.type == "LOCKED"
    assert position.unlock_s == lived.read("escrow", "positionData(address)(uint128,uint128)", me)[1]
    node.mine(1, 4 * WEEK_S)
    later = lived.world.snapshot(me)
    paid = lived.world.paid(me, [tx(me, lived.pendle["escrow"], "withdraw()", gas=GAS)], later.block)
    assert parts([position], "supplied") == paid


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
    found = told(pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=SAYS)
    assert (found.supplied, found.rewards) == (
        (TokenAmount(SHARE, 2), TokenAmount(PRINCIPAL, 4)),
        (TokenAmount(TOKEN, 7),),
    )


def test_a_market_that_the_factory_does_not_know_is_none() -> None:
    says = SAYS | {(FACTORY, "isValidMarket"): False}
    assert told(pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=says) is None
    assert told(pendle_market.unwrap, ProtocolMatch(ME, MARKET, FACTORY), 1, says=says) is None


def test_rewards_that_cannot_be_claimed_now_are_unknown_and_not_nothing() -> None:
    found = told(
        pendle_market.position, ProtocolMatch(ME, MARKET, FACTORY), says=SAYS | {(MARKET, "redeemRewards"): Reverted()}
    )
    assert found.unknown == "its rewards"
    says = SAYS | {(YIELD, "redeemDueInterestAndRewards"): Reverted()}
    assert told(pendle_yield.position, ProtocolMatch(ME, YIELD, FACTORY), says=says).unknown == "what it has earned"


def test_a_yield_token_that_the_factory_does_not_know_is_none() -> None:
    says = SAYS | {(FACTORY, "isYT"): False}
    assert told(pendle_yield.position, ProtocolMatch(ME, YIELD, FACTORY), says=says) is None
    assert told(pendle_yield.unwrap, ProtocolMatch(ME, YIELD, FACTORY), 1, says=says) is None


NO = Reverted()
MINE = (TokenAmount(TOKEN, 9),)


def test_standardized_yield_that_no_file_names_is_only_what_lies_there_for_all_of_it() -> None:
    assert told(pendle_sy.unwrap, ProtocolMatch(ME, SHARE, TOKEN), 8, says=SAYS) == UnlistedShare(MINE)
    refused = {(SHARE, "previewRedeem"): Reverted()}
    assert told(pendle_sy.unwrap, ProtocolMatch(ME, SHARE, TOKEN), 8, says=SAYS | refused) is None


@pytest.mark.parametrize(
    "changed",
    [{(TOKEN, "balanceOf"): 7}, {(SHARE, "totalSupply"): 12}, {(SHARE, "totalSupply"): 7}, {(TOKEN, "balanceOf"): NO}],
    ids=["more than there is", "others have some", "more than there are", "no token"],
)
def test_standardized_yield_that_promises_more_than_lies_there_is_not_relied_on(changed: dict[Any, Any]) -> None:
    match = ProtocolMatch(ME, SHARE, TOKEN)
    assert isinstance(told(pendle_sy.unwrap, match, 8, says=SAYS | changed), UnverifiedShare)
    assert isinstance(told(pendle_sy.position, match, says=SAYS | changed), UnverifiedShare)
    listed = replace(match, answer=SHARE, contracts={"sy": (SHARE,)})  # as the rule for listed ones meets it
    assert told(pendle_sy.unwrap, listed, 8, says=SAYS | changed) == MINE


def test_standardized_yield_with_rewards_says_that_they_are_unknown() -> None:
    found = told(
        pendle_sy.position, ProtocolMatch(ME, SHARE, TOKEN), says=SAYS | {(SHARE, "getRewardTokens"): (YIELD,)}
    )
    assert (found.supplied, found.unknown, found.is_unlisted) == (MINE, "its rewards", True)
