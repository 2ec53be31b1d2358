"""Two releases of Aave on one chain: two markets, both kinds of debt, and claimed rewards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols.aave import NOT_EARNED, position, unwrap
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, Deployer, Deployment, deploy
from chainfolio.localchain.evm import MAX, Tx, created_address, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Answer, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.protocols import TokenAmount
from tests.protocols import aave_v2_deployment
from tests.protocols.scripted import decode
from tests.protocols.world import World, parts

FILE = """\
key = "aave2"
name = "Aave V2"
families = ["aave_v2"]
[contracts.local]
pool = ["{pool}"]
"""
FORK = """\
key = "{key}"
name = "{key}"
is_fork = true
families = {families}
[contracts.local]
{role} = ["{at}"]
"""
RIGHT = {"aave2": ["aave_v2"], "aave3": ["aave_v3"]}
OTHER = {"aave2": ["aave_v3"], "aave3": ["aave_v2"]}
ALL = {key: ["aave", "aave_v2", "aave_v3"] for key in RIGHT}
ACCOUNT = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
STABLE, VARIABLE = 1, 2
CONFIGURE = "configureAssets((uint88,uint256,uint32,address,address,address,address)[])"


@dataclass(frozen=True)
class Scenario:
    """The world, the older pool, who pays the newer one's rewards, and a snapshot."""

    world: World
    old: str
    controller: str
    snapshot: Snapshot
    by_provider: Snapshot  # where files name data providers, and no pools
    wrong: Mapping[str, Snapshot]  # where files name the wrong release, or both, by what they name
    fake: str  # a token that says it owes dollars at the newer market

    def position(self, name: str, protocol: str) -> Position:
        me = self.world.deployment.accounts[name].lower()
        (position,) = [each for each in self.snapshot.positions if (each.account, each.protocol) == (me, protocol)]
        return position


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with LocalNode() as node:
        deployment = deploy(node)
        old, controller = aave_v2_deployment.aave_v2(node, deployment), rewards(node, deployment)
        lend_and_borrow(node, deployment, old)
        world = World(node, deployment, tmp_path_factory.mktemp("aave"), {"aave2": FILE.format(pool=old.lower())})
        accounts = [deployment.accounts[name] for name in ("alice", "bob")]
        pools = {"aave2": old.lower(), "aave3": deployment.contracts["Pool"].lower()}
        providers = {
            "aave2": data_provider(node, deployment, old).lower(),
            "aave3": deployment.contracts["AaveProtocolDataProvider"].lower(),
        }

        def forked(name: str, role: str, at: Mapping[str, str], families: Mapping[str, list[str]]) -> Snapshot:
            files = {key: FORK.format(key=key, families=json.dumps(families[key]), role=role, at=at[key]) for key in at}
            return World(node, deployment, tmp_path_factory.mktemp(name), files).snapshot(*accounts)

        snapshot, by_provider = world.snapshot(*accounts), forked("forks", "data_provider", providers, RIGHT)
        both = {key: both_getters(node, deployment, pool) for key, pool in pools.items()}
        fake = fake_debt(node, deployment)
        wrong = {
            "pool": forked("pool", "pool", pools, OTHER),
            "provider": forked("provider", "data_provider", providers, OTHER),
            "both": forked("both", "data_provider", both, OTHER),
            "right": forked("right", "data_provider", both, RIGHT),
            "twice": forked("twice", "pool", pools, ALL),
            "twice_led": forked("twice_led", "data_provider", providers, ALL),
        }
        yield Scenario(world, old, controller, snapshot, by_provider, wrong, fake)


def both_getters(node: LocalNode, deployment: Deployment, pool: str) -> str:
    """A data provider and provider of addresses in one, that answers as those of both releases do."""
    attacker = deployment.accounts["ivan"]
    at = created_address(attacker, int(node.rpc("eth_getTransactionCount", attacker, "pending"), 16)).lower()
    addresses = {"ADDRESSES_PROVIDER()": at, "getPool()": pool, "getLendingPool()": pool}
    hostile(node, attacker, {signature: gives("address", answer) for signature, answer in addresses.items()})
    return at


def fake_debt(node: LocalNode, deployment: Deployment) -> str:
    """A token that says what a debt token of the newer market says, and that Alice owes everything."""
    attacker, alice = deployment.accounts["ivan"], deployment.accounts["alice"]
    at = created_address(attacker, int(node.rpc("eth_getTransactionCount", attacker, "pending"), 16)).lower()
    answers = {
        "POOL()": gives("address", deployment.contracts["Pool"]),
        "UNDERLYING_ASSET_ADDRESS()": gives("address", deployment.tokens["USDC"].address),
        "DEBT_TOKEN_REVISION()": gives("uint256", 1),
        "balanceOf(address)": gives("uint256", 10**30),
        "scaledBalanceOf(address)": gives("uint256", 10**30),
    }
    hostile(node, attacker, answers)
    to = "0x" + "00" * 12 + alice[2:].lower()
    node.settle([log_tx(attacker, at, Log([TRANSFER, "0x" + "00" * 32, to], words(["uint256"], 10**30)))])
    return at


def hostile(node: LocalNode, sender: str, answers: Mapping[str, Answer]) -> None:
    """Deploy a contract that answers so."""
    rows = [answer.row(signature) for signature, answer in {**GOOD, **answers}.items()]
    code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
    node.settle([Tx(sender, None, code, gas=5_000_000)])


def data_provider(node: LocalNode, deployment: Deployment, old: str) -> str:
    """The older market's."""
    owner = deployment.accounts["deployer"]
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    addresses = node.call(old, "getAddressesProvider()(address)")
    with node.by_hand():
        provider: str = deployer.create("data", "AaveV2 AaveProtocolDataProvider", ("address",), addresses)
        deployer.settle()
    return provider


def rewards(node: LocalNode, deployment: Deployment) -> str:
    """Two tokens for those who supply dollars to the newer market, one for those who borrow ether there."""
    owner, at = deployment.accounts["deployer"], deployment.contracts
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    with node.by_hand():
        controller = deployer.create("controller", "RewardsController", ("address",), owner)
        deployer.do(controller, "initialize(address)", owner)
        pulled = deployer.create("pulled", "PullRewardsTransferStrategy", ("address",) * 3, controller, owner, owner)
        for token in ("aUSDC", "variableDebtWETH"):
            deployer.do(at[token], "setIncentivesController(address)", controller)
        end = node.block()["timestamp"]
        end_s = int(end, 16) + 10**7
        oracle = deployment.feeds["DAI"]
        dai, wbtc = deployment.tokens["DAI"].address, deployment.tokens["WBTC"].address
        deployer.do(
            controller,
            CONFIGURE,
            [
                (WAD // 100, 0, end_s, at["aUSDC"], dai, pulled, oracle),
                (31, 0, end_s, at["aUSDC"], wbtc, pulled, oracle),
                (7, 0, end_s, at["variableDebtWETH"], wbtc, pulled, oracle),
            ],
        )
        for token in (dai, wbtc):
            deployer.do(token, "approve(address,uint256)", pulled, MAX)
        deployer.settle()
    return controller


def lend_and_borrow(node: LocalNode, deployment: Deployment, old: str) -> None:
    """Let Alice lend and borrow in both markets (at both rates in the old one), and Bob lend in the old one."""
    alice, bob, new = deployment.accounts["alice"], deployment.accounts["bob"], deployment.contracts["Pool"]
    token = {symbol: each.address for symbol, each in deployment.tokens.items()}
    borrow = "borrow(address,uint256,uint256,uint16,address)"
    node.settle(
        [
            *(tx(alice, token["USDC"], "approve(address,uint256)", pool, MAX) for pool in (old, new)),
            tx(alice, old, "deposit(address,uint256,address,uint16)", token["USDC"], 300_000 * 10**6, alice, 0),
            tx(alice, new, "supply(address,uint256,address,uint16)", token["USDC"], 200_000 * 10**6, alice, 0),
            tx(bob, token["WBTC"], "approve(address,uint256)", old, MAX),
            tx(bob, old, "deposit(address,uint256,address,uint16)", token["WBTC"], 123_456_789, bob, 0),
        ]
    )
    node.settle(
        [
            tx(alice, old, borrow, token["WETH"], 20 * WAD, VARIABLE, 0, alice),
            tx(alice, old, borrow, token["DAI"], 70_000 * WAD, STABLE, 0, alice),
            tx(alice, old, borrow, token["WBTC"], 10**7, VARIABLE, 0, alice),
            tx(alice, new, borrow, token["WETH"], 30 * WAD, VARIABLE, 0, alice),
        ]
    )
    node.mine(1, 40 * 86_400)
    node.mine(1)


def test_everything_was_read(scenario: Scenario) -> None:
    assert scenario.snapshot.issues == ()
    assert sorted(each.protocol for each in scenario.snapshot.positions) == ["aave2", "aave2", "aave3"]


def sides(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Account, protocol, side and token of each part of what was supplied and borrowed."""
    return sorted(
        (each.account, each.protocol, side, part.token.asset.shown_contract)
        for each in snapshot.positions
        for side, parts in (("supplied", each.supplied), ("borrowed", each.borrowed))
        for part in parts
    )


def test_a_market_is_found_by_its_data_provider_too(scenario: Scenario) -> None:
    assert sides(scenario.by_provider) == sides(scenario.snapshot)
    for found_position in scenario.by_provider.positions:
        assert found_position.unverified == ("" if found_position.supplied else NOT_EARNED)
    assert [issue for issue in scenario.by_provider.issues if issue.makes_partial] == []


@pytest.mark.parametrize("name", ["pool", "provider", "both", "right", "twice", "twice_led"])
def test_the_release_of_a_market_is_what_its_pool_answers(scenario: Scenario, name: str) -> None:
    """A list that names the wrong release, or all, and a provider that answers both getters."""
    assert sides(scenario.wrong[name]) == sides(scenario.snapshot)
    assert [issue for issue in scenario.wrong[name].issues if issue.makes_partial] == []


def test_a_token_that_only_says_it_is_a_debt_of_a_market_is_none(scenario: Scenario) -> None:
    snapshot = scenario.wrong["pool"]
    assert scenario.fake in {each.token.asset.shown_contract for each in snapshot.holdings}
    assert sides(snapshot) == sides(scenario.snapshot)  # no debt of Alice's more


def test_the_older_market_takes_and_pays_what_it_is_said_to(scenario: Scenario) -> None:
    deployment, me = scenario.world.deployment, scenario.world.deployment.accounts["alice"].lower()
    market, rich = scenario.position("alice", "aave2"), deployment.accounts["deployer"]
    debts, supplied = parts([market], "borrowed"), parts([market], "supplied")
    dai = deployment.tokens["DAI"].address.lower()
    assert len(debts) == 3
    calls: list[Tx] = []
    for token, raw in debts.items():
        rate = STABLE if token == dai else VARIABLE
        calls += [
            tx(rich, token, "transfer(address,uint256)", me, raw),
            tx(me, token, "approve(address,uint256)", scenario.old, MAX),
            tx(me, scenario.old, "repay(address,uint256,uint256,address)", token, MAX, rate, me),
        ]
    calls += [tx(me, scenario.old, "withdraw(address,uint256,address)", token, MAX, me) for token in supplied]
    payout = scenario.world.payout(me, calls, scenario.snapshot.block)
    # Given and paid back come to nothing: not a unit of debt was forgotten, nor one too much repaid.
    assert {token: raw for token, raw in payout.items() if token in {**debts, **supplied}} == supplied


def test_each_market_has_a_health_of_its_own(scenario: Scenario) -> None:
    me, height = scenario.world.deployment.accounts["alice"], scenario.snapshot.block.height
    healths = []
    for protocol in ("aave2", "aave3"):
        market = scenario.position("alice", protocol)
        assert market.health is not None
        assert market.health * WAD == scenario.world.node.call(market.pool, ACCOUNT, me, block=height)[5]
        healths.append(market.health)
    assert healths[0] != healths[1]
    assert scenario.position("bob", "aave2").health is None


def test_what_a_market_pays_beside_interest_is_what_claiming_gives(scenario: Scenario) -> None:
    me, at = scenario.world.deployment.accounts["alice"], scenario.world.deployment.contracts
    earning = [at["aUSDC"], at["variableDebtWETH"]]
    calls = [tx(me, scenario.controller, "claimAllRewardsToSelf(address[])", earning)]
    rewards = parts([scenario.position("alice", "aave3")], "rewards")
    assert len(rewards) == 2
    assert scenario.world.payout(me, calls, scenario.snapshot.block) == rewards


# --- what no chain would say -----------------------------------------------------------------------------------------

ME, POOL, SHARE, DEBT, FAKE, ASSET, PAYER, THIEF, REWARD = ("0x" + f"{at:02x}" * 20 for at in range(1, 10))
NOBODY = "0x" + "0" * 40


def reserve(*behind: str | int) -> tuple[int | str, ...]:
    """A pool's answer about an asset as it is read: seven numbers, and the words behind them as addresses."""
    return (*[0] * 7, *(each if isinstance(each, str) else f"0x{each:040x}" for each in behind))


HEALTHY: dict[tuple[Any, ...], Any] = {
    (POOL, "getUserAccountData"): (5, 2, 1, 0, 0, 2 * WAD),
    (POOL, "getReserveData", ASSET): reserve(SHARE, NOBODY, DEBT, PAYER),
    **{(token, "UNDERLYING_ASSET_ADDRESS"): ASSET for token in (SHARE, DEBT, FAKE)},
    **{(token, "balanceOf"): raw for token, raw in ((SHARE, 500), (DEBT, 30), (FAKE, 10**30))},
    (SHARE, "getIncentivesController"): PAYER,
    (FAKE, "getIncentivesController"): THIEF,
    (PAYER, "getAllUserRewards"): ((REWARD,), (4,)),
    (THIEF, "getAllUserRewards"): ((REWARD,), (10**30,)),
}
MET = ProtocolMatch(ME, POOL, answer=POOL, tokens=(FAKE, SHARE, DEBT))


def test_who_only_claims_to_be_of_a_market_has_no_say_in_it() -> None:
    result = decode(position, MET, says=HEALTHY)
    assert result.supplied == (TokenAmount(ASSET, 500),)
    assert result.borrowed == (TokenAmount(ASSET, 30),)
    assert result.rewards == (TokenAmount(REWARD, 4),)
    assert result.replaces == (SHARE, DEBT)
    assert result.health == 2


def test_who_refuses_every_question_spoils_nothing() -> None:
    silent = {key: value for key, value in HEALTHY.items() if key[0] != FAKE}
    assert decode(position, MET, says=silent) == decode(position, MET, says=HEALTHY)


def test_rewards_that_are_paid_in_another_way_are_said_to_be_unknown() -> None:
    answers = {key: value for key, value in HEALTHY.items() if key[0] != PAYER}
    result = decode(position, MET, says=answers)
    assert result.unknown == "what it earned beside interest"
    assert result.supplied == (TokenAmount(ASSET, 500),)


def test_a_genuine_balance_that_cannot_be_read_is_unknown_not_zero() -> None:
    with pytest.raises(ReadError):
        decode(position, MET, says={**HEALTHY, (SHARE, "balanceOf"): None})


@pytest.mark.parametrize("before", [(), (3,)], ids=["v2", "v3"])
def test_a_share_inside_something_else_is_its_own_amount(before: tuple[int, ...]) -> None:
    match = ProtocolMatch(ME, SHARE, answer=POOL)
    says = {**HEALTHY, (POOL, "getReserveData", ASSET): reserve(*before, SHARE, NOBODY, DEBT, PAYER)}
    assert decode(unwrap, match, 9, says=says) == (TokenAmount(ASSET, 9),)
    assert decode(unwrap, ProtocolMatch(ME, FAKE, answer=POOL), 9, says=says) is None


def test_a_debt_of_v3_without_stable_rates_is_a_debt() -> None:
    says = {**HEALTHY, (POOL, "getReserveData", ASSET): reserve(0, SHARE, NOBODY, DEBT)}
    result = decode(position, MET, says=says)
    assert (result.supplied, result.borrowed) == ((TokenAmount(ASSET, 500),), (TokenAmount(ASSET, 30),))
