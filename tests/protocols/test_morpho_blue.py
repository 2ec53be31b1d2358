"""Morpho Blue on its published source: supply and debt are what leaving pays and takes, to the unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols.morpho_blue import position
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.deploy import WAD, Deployer, Deployment, deploy
from chainfolio.localchain.evm import MAX, ZERO, Tx, keccak, tx, words
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.valuation import valuate
from chainfolio.protocols import TokenAmount
from tests.protocols.scripted import decode
from tests.protocols.world import World, parts

FILE = """\
key = "morpho"
name = "Morpho"
families = ["morpho_blue"]
[options]
markets = "{markets}"
[contracts.local]
morpho = ["{morpho}"]
"""
PARAMS = "(address,address,address,address,uint256)"
SHARES = "position(bytes32,address)(uint256,uint128,uint128)"
PRICE = 2_000 * 10**24  # of a raw unit of ether in raw units of dollars, times 10**36
Params = tuple[str, str, str, str, int]


@dataclass(frozen=True)
class Scenario:
    """The world, the contract, its markets by id, and a snapshot."""

    world: World
    morpho: str
    markets: Mapping[bytes, Params]
    snapshot: Snapshot

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()

    def positions(self, name: str) -> list[Position]:
        return [each for each in self.snapshot.positions if each.account == self.account(name)]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with LocalNode() as node:
        deployment = deploy(node)
        morpho, markets = opened(node, deployment)
        borrow_back(node, deployment, morpho, next(iter(markets.values())))
        lend_and_borrow(node, deployment, morpho, list(markets.values()))
        market_ids = " ".join("0x" + each.hex() for each in markets)
        files = {"morpho": FILE.format(markets=market_ids, morpho=morpho.lower())}
        world = World(node, deployment, tmp_path_factory.mktemp("morpho"), files)
        accounts = [deployment.accounts[name] for name in ("alice", "bob", "carol", "grace", "dave")]
        yield Scenario(world, morpho, markets, world.snapshot(*accounts))


def opened(node: LocalNode, deployment: Deployment) -> tuple[str, dict[bytes, Params]]:
    """Deploy three markets: dollars for ether (with a fee to Carol), ether for bitcoin, free dollars."""
    owner = deployment.accounts["deployer"]
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    token = {symbol: each.address for symbol, each in deployment.tokens.items()}
    with node.by_hand():
        morpho = deployer.create("morpho", "Morpho", ("address",), owner)
        rates = deployer.create("rates", "IrmMock")
        markets = {}
        for each in (rates, ZERO):
            deployer.do(morpho, "enableIrm(address)", each)
        deployer.do(morpho, "setFeeRecipient(address)", deployment.accounts["carol"])
        for loan, collateral, price, model, lltv, fee in (
            ("USDC", "WETH", PRICE, rates, WAD * 86 // 100, WAD // 7),
            ("WETH", "WBTC", 20 * 10**46, rates, WAD * 77 // 100, 0),
            ("USDC", "DAI", 10**24, ZERO, WAD * 91 // 100, 0),
        ):
            oracle = deployer.create(f"oracle {loan}/{collateral}", "OracleMock")
            deployer.do(oracle, "setPrice(uint256)", price)
            params = (token[loan], token[collateral], oracle, model, lltv)
            deployer.do(morpho, "enableLltv(uint256)", lltv)
            deployer.do(morpho, f"createMarket({PARAMS})", params)
            if fee:
                deployer.do(morpho, f"setFee({PARAMS},uint256)", params, fee)
            markets[keccak(bytes.fromhex(words(("address",) * 4 + ("uint256",), *params)))] = params
        deployer.settle()
    return morpho, markets


def lend_and_borrow(node: LocalNode, deployment: Deployment, morpho: str, markets: list[Params]) -> None:
    """Let Alice lend and Bob borrow in all markets; Carol has the fee alone, Grace has nothing."""
    alice, bob = deployment.accounts["alice"], deployment.accounts["bob"]
    tokens = sorted({token for params in markets for token in params[:2]})
    node.settle(
        [tx(account, token, "approve(address,uint256)", morpho, MAX) for account in (alice, bob) for token in tokens]
    )
    supply = f"supply({PARAMS},uint256,uint256,address,bytes)"
    borrow = f"borrow({PARAMS},uint256,uint256,address,address)"
    lend = f"supplyCollateral({PARAMS},uint256,address,bytes)"
    lent, secured = (400_000 * 10**6, 77 * WAD + 1, 10**9), (90 * WAD, 10 * 10**8, 5_000 * WAD)
    borrowed = (100_000 * 10**6 + 7, 61 * WAD, 10**9 // 3)
    node.settle(
        [tx(alice, morpho, supply, each, raw, 0, alice, b"") for each, raw in zip(markets, lent, strict=True)]
        + [tx(bob, morpho, lend, each, raw, bob, b"") for each, raw in zip(markets, secured, strict=True)]
    )
    node.settle([tx(bob, morpho, borrow, each, raw, 0, bob, bob) for each, raw in zip(markets, borrowed, strict=True)])
    node.mine(1, 50 * 86_400)
    node.settle([tx(bob, morpho, f"accrueInterest({PARAMS})", each) for each in markets])  # Carol gets shares
    node.mine(1, 33 * 86_400)


FORGED = 1_000_000 * 10**6


def borrow_back(node: LocalNode, deployment: Deployment, morpho: str, like: Params) -> None:
    """Let Ivan open a hostile market, supply a million there for Dave, and borrow it back."""
    usdc, _, _, rates, lltv = like
    ivan, dave = deployment.accounts["ivan"], deployment.accounts["dave"]
    deployer = Deployer(node, ivan, int(node.rpc("eth_getTransactionCount", ivan, "pending"), 16))
    with node.by_hand():
        junk = deployer.create("junk", "Token", ("string", "string", "uint8"), "Junk", "JUNK", 18)
        oracle = deployer.create("oracle", "OracleMock")
        deployer.do(oracle, "setPrice(uint256)", PRICE)
        params = (usdc, junk, oracle, rates, lltv)
        deployer.do(morpho, f"createMarket({PARAMS})", params)
        deployer.do(junk, "mint(address,uint256)", ivan, 10**6 * WAD)
        deployer.do(usdc, "mint(address,uint256)", ivan, FORGED)
        for token in (usdc, junk):
            deployer.do(token, "approve(address,uint256)", morpho, MAX)
        deployer.do(morpho, f"supply({PARAMS},uint256,uint256,address,bytes)", params, FORGED, 0, dave, b"")
        deployer.do(morpho, f"supplyCollateral({PARAMS},uint256,address,bytes)", params, 10**6 * WAD, ivan, b"")
        deployer.do(morpho, f"borrow({PARAMS},uint256,uint256,address,address)", params, FORGED, 0, ivan, ivan)
        deployer.settle()


def test_what_a_stranger_supplied_and_borrowed_back_has_no_value(scenario: Scenario) -> None:
    """The attack is free, and claimed a million dollars and more every day."""
    (paper,) = scenario.positions("dave")
    assert sum(part.raw for part in paper.supplied) > FORGED
    assert "than could be withdrawn now" in paper.unverified
    (valued,) = [each for each in valuate([scenario.snapshot]).positions if each.account == scenario.account("dave")]
    assert [part.value_usd for part in valued.parts] == [None]
    assert valued.value_usd == 0
    (issue,) = [each for each in scenario.snapshot.issues if each.account == scenario.account("dave")]
    assert ("it cannot be verified" in issue.reason, issue.makes_partial) == (True, False)


def leaving(scenario: Scenario, name: str) -> list[Tx]:
    """Repay everything with the deployer's money, and take everything out."""
    me, rich, morpho = scenario.account(name), scenario.account("deployer"), scenario.morpho
    calls = [tx(rich, token, "approve(address,uint256)", morpho, MAX) for token in sorted({*_loans(scenario)})]
    # What others owe has to come back first, for there is not enough in the contract to pay all lenders.
    for each, params in scenario.markets.items():
        _, borrowed, _ = shares(scenario, each, scenario.account("bob"))
        repay = f"repay({PARAMS},uint256,uint256,address,bytes)"
        calls.append(tx(rich, morpho, repay, params, 0, borrowed, scenario.account("bob"), b""))
    for each, params in scenario.markets.items():
        supplied, _, collateral = shares(scenario, each, me)
        if supplied:
            withdraw = f"withdraw({PARAMS},uint256,uint256,address,address)"
            calls.append(tx(me, morpho, withdraw, params, 0, supplied, me, me))
        if collateral:
            take = f"withdrawCollateral({PARAMS},uint256,address,address)"
            calls.append(tx(me, morpho, take, params, collateral, me, me))
    return calls


def _loans(scenario: Scenario) -> list[str]:
    return [params[0] for params in scenario.markets.values()]


def shares(scenario: Scenario, market: bytes, account: str) -> tuple[int, int, int]:
    position_data: tuple[int, int, int] = scenario.world.node.call(
        scenario.morpho, SHARES, market, account, block=scenario.snapshot.block.height
    )
    return position_data


def test_everything_was_read(scenario: Scenario) -> None:
    assert [issue for issue in scenario.snapshot.issues if issue.makes_partial] == []
    assert [len(scenario.positions(name)) for name in ("alice", "bob", "carol", "grace")] == [3, 3, 1, 0]


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_what_was_supplied_is_what_leaving_pays(scenario: Scenario, name: str) -> None:
    payout = scenario.world.payout(scenario.account(name), leaving(scenario, name), scenario.snapshot.block)
    assert parts(scenario.positions(name), "supplied") == payout


def test_what_is_owed_is_what_repaying_every_share_takes(scenario: Scenario) -> None:
    rich = scenario.account("deployer")
    repayments = leaving(scenario, "grace")  # who has nothing to take out
    payout = scenario.world.payout(rich, repayments, scenario.snapshot.block)
    assert {token: -raw for token, raw in payout.items()} == parts(scenario.positions("bob"), "borrowed")


def test_who_takes_the_fee_has_what_it_has_grown_by(scenario: Scenario) -> None:
    """Shares that the next accrual of the market mints are counted: the next call of any account accrues."""
    carol = scenario.account("carol")
    (market, params), *_ = scenario.markets.items()
    calls = leaving(scenario, "grace")
    before, _, _ = shares(scenario, market, carol)
    supplied = parts(scenario.positions("carol"), "supplied")[params[0].lower()]
    withdraw = f"withdraw({PARAMS},uint256,uint256,address,address)"
    of_shares = scenario.world.payout(
        carol, [*calls, tx(carol, scenario.morpho, withdraw, params, 0, before, carol, carol)], scenario.snapshot.block
    )
    of_all = scenario.world.payout(
        carol,
        [*calls, tx(carol, scenario.morpho, withdraw, params, supplied, 0, carol, carol)],
        scenario.snapshot.block,
    )
    assert of_shares[params[0].lower()] < supplied == of_all[params[0].lower()]
    excess = tx(carol, scenario.morpho, withdraw, params, supplied + 1, 0, carol, carol)
    with pytest.raises(AssertionError, match="status"):
        scenario.world.payout(carol, [*calls, excess], scenario.snapshot.block)


def test_below_a_health_of_one_a_borrower_can_be_liquidated_and_above_not(scenario: Scenario) -> None:
    """The price at which health comes to one is the one at which the contract turns."""
    params = next(iter(scenario.markets.values()))
    (bobs_position,) = [each for each in scenario.positions("bob") if params[1].lower() in parts([each], "supplied")]
    assert bobs_position.health is not None
    at_one = PRICE / bobs_position.health
    assert lets_liquidate(scenario, params, int(at_one * 9_999 / 10_000))
    assert not lets_liquidate(scenario, params, int(at_one * 10_001 / 10_000))


def lets_liquidate(scenario: Scenario, params: Params, price: int) -> bool:
    """Return True if Bob could be liquidated in a market at this price."""
    rich = scenario.account("deployer")
    liquidate = f"liquidate({PARAMS},address,uint256,uint256,bytes)"
    calls = [
        tx(rich, params[2], "setPrice(uint256)", price),
        tx(rich, params[0], "approve(address,uint256)", scenario.morpho, MAX),
        tx(rich, scenario.morpho, liquidate, params, scenario.account("bob"), 10**15, 0, b""),
    ]
    try:
        return bool(scenario.world.payout(rich, calls, scenario.snapshot.block))
    except AssertionError:  # the contract refused
        return False


# --- what no chain would say -----------------------------------------------------------------------------------------

ME, MORPHO, LOAN, COLLATERAL, ORACLE, RATES, NOBODY = ("0x" + f"{at:02x}" * 20 for at in range(1, 8))
ID = bytes(range(32))
HEALTHY: dict[tuple[Any, ...], Any] = {
    (MORPHO, "position"): (5 * 10**6, 3 * 10**6, 400),
    (MORPHO, "market"): (10, 9 * 10**6, 6, 5 * 10**6, 1_000, 0),
    (MORPHO, "idToMarketParams"): (LOAN, COLLATERAL, ORACLE, RATES, WAD // 2),
    (MORPHO, "feeRecipient"): NOBODY,
    (ORACLE, "price"): 10**36,
    (RATES, "borrowRateView"): 0,
}
MET = ProtocolMatch(ME, MORPHO, options={"markets": "0x" + ID.hex()}, time_s=1_000)


def test_a_file_without_markets_asks_nothing() -> None:
    with pytest.raises(StopIteration):
        next(position(ProtocolMatch(ME, MORPHO, time_s=1_000)))


def test_a_market_that_an_event_and_the_file_name_is_one() -> None:
    (result,) = decode(position, replace(MET, values=((ID,),)), says=HEALTHY)
    assert result.supplied == (TokenAmount(LOAN, 5), TokenAmount(COLLATERAL, 400))


@pytest.mark.parametrize(("values", "position_count"), [(((),), 0), (((), (ID, ME)), 1)])
def test_fees_in_markets_that_no_file_lists_are_unknown(
    values: tuple[tuple[bytes, ...], ...], position_count: int
) -> None:
    *positions, fees = decode(position, ProtocolMatch(ME, MORPHO, values=values, time_s=1_000), says=HEALTHY)
    assert (len(positions), fees.supplied) == (position_count, ())
    assert "fees" in fees.unknown
    positions = decode(position, replace(MET, values=values), says=HEALTHY)
    assert [each.unknown for each in positions] == [""]


OTHER = "0x" + "77" * 20


@pytest.mark.parametrize(
    ("values", "sent_tokens", "borrowed", "counts"),
    [
        ((ID, ME), {}, 6, True),
        ((ID, OTHER), {OTHER: frozenset({LOAN})}, 6, True),
        ((ID, OTHER), {}, 5, True),
        ((ID, OTHER), {OTHER: frozenset({COLLATERAL})}, 6, False),
        ((ID,), {}, 6, False),
    ],
    ids=["by itself", "by a helper that it gave it to", "somebody else, it is there", "somebody else", "nobody known"],
)
def test_what_others_supplied_counts_only_where_it_could_be_withdrawn(
    values: tuple[Any, ...], sent_tokens: dict[str, frozenset[str | None]], borrowed: int, counts: bool
) -> None:
    says = HEALTHY | {(MORPHO, "market"): (10, 9 * 10**6, borrowed, 5 * 10**6, 1_000, 0)}
    first, *paper = decode(
        position, ProtocolMatch(ME, MORPHO, values=(values,), time_s=1_000, sent=sent_tokens), says=says
    )
    assert (TokenAmount(LOAN, 5) in first.supplied, first.unverified) == (counts, "")
    assert TokenAmount(COLLATERAL, 400) in first.supplied
    assert [(each.supplied, "another account" in each.unverified) for each in paper] == [
        ((TokenAmount(LOAN, 5),), True)
    ] * (not counts)


def test_what_is_owed_is_rounded_up_and_what_is_held_down() -> None:
    (result,) = decode(position, MET, says=HEALTHY)
    assert result.supplied == (TokenAmount(LOAN, 5), TokenAmount(COLLATERAL, 400))
    assert result.borrowed == (TokenAmount(LOAN, 4),)
    assert result.health == 50


def test_an_oracle_that_is_silent_takes_the_health_and_nothing_else() -> None:
    (result,) = decode(position, MET, says={key: value for key, value in HEALTHY.items() if key[0] != ORACLE})
    assert result.health is None
    assert result.borrowed == (TokenAmount(LOAN, 4),)


def test_a_rate_that_cannot_be_read_leaves_the_position_unknown() -> None:
    with pytest.raises(ReadError):
        decode(position, MET, says={key: value for key, value in HEALTHY.items() if key[0] != RATES})
