"""Operators of unreviewed listed forks claim positions for others; none adds to a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainfolio.adapters.evm.protocols import aave, stakes
from chainfolio.adapters.evm.protocols.uniswap_v3 import NOT_COVERED
from chainfolio.cli.demo import protocols
from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, deploy
from chainfolio.localchain.evm import ZERO, Tx, created_address, topic_of, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Answer, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.valuation import valuate
from tests.protocols.world import World

FUNDS = 5_000 * 10**6  # what the operator really puts there, and can take away
EVERYTHING = 10**30
NAMES = (
    "comptroller",
    "market",
    "factory",
    "pair",
    "vault",
    "balancer",
    "pool",
    "farm",
    "factory_v3",
    "pool_v3",
    "manager",
    "provider",
    "lending",
    "atoken",
    "stakes",
)
FORK = 'key = "{key}"\nname = "{key}"\nis_fork = true\nfamilies = ["{family}"]\n[contracts.local]\n{role} = ["{at}"]\n'
FORKS = {
    "masterchef": ("farm", "farm"),
    "compound_v2": ("comptroller", "comptroller"),
    "uniswap_v2": ("factory", "factory"),
    "uniswap_v3": ("factory", "factory_v3"),
    "aave_v3": ("data_provider", "provider"),
    "staking_rewards": ("staking", "stakes"),
    "erc4626": ("vault", "vault"),
    "balancer_v2": ("vault", "balancer"),
}


@dataclass(frozen=True)
class Forked:
    """Snapshots of a bystander, and of an account that used each fork."""

    at: dict[str, str]
    bystander: Snapshot
    before: Snapshot
    actor: Snapshot

    def of_actor(self, family: str) -> list[Position]:
        return [each for each in self.actor.positions if each.protocol == f"x{family}"]


def answers(at: dict[str, str], usdc: str, weth: str, owner: str) -> dict[str, dict[str, Answer]]:
    """Return the answers of each contract of the operator; some of them are true."""
    huge_answer = gives("uint256", EVERYTHING)
    return {
        "comptroller": {
            "getAssetsIn(address)": gives("address[]", [at["market"]]),
            "oracle()": gives("address", at["comptroller"]),
            "markets(address)": gives("bool", True, "uint256", 0),
            "getUnderlyingPrice(address)": gives("uint256", WAD),
        },
        "market": {
            "comptroller()": gives("address", at["comptroller"]),
            "underlying()": gives("address", usdc),
            "getAccountSnapshot(address)": gives("uint256", 0, "uint256", WAD, "uint256", 0, "uint256", 10**40),
            "balanceOfUnderlying(address)": huge_answer,
            "exchangeRateCurrent()": gives("uint256", 10**40),
            "getCash()": huge_answer,
        },
        "factory": {"getPair(address,address)": gives("address", at["pair"]), "feeTo()": gives("address", ZERO)},
        "pair": {
            "factory()": gives("address", at["factory"]),
            "token0()": gives("address", usdc),
            "token1()": gives("address", weth),
            "getReserves()": gives("uint112", 10**30, "uint112", 10**30),
            "kLast()": gives("uint256", 0),
        },
        "vault": {
            "asset()": gives("address", usdc),
            "convertToAssets(uint256)": huge_answer,
            "previewRedeem(uint256)": huge_answer,
        },
        "balancer": {
            "getProtocolFeesCollector()": gives("address", at["balancer"]),
            "getSwapFeePercentage()": gives("uint256", 0),
            "getPool(bytes32)": gives("address", at["pool"], "uint8", 0),
            "getPoolTokens(bytes32)": gives("address[]", [usdc], "uint256[]", [EVERYTHING], "uint256", 0),
        },
        "pool": {
            "getVault()": gives("address", at["balancer"]),
            "getPoolId()": gives("bytes32", bytes(32)),
            "queryExit(bytes32,address,address,uint256[],uint256,uint256,bytes)": gives(
                "uint256", WAD, "uint256[]", [EVERYTHING]
            ),
        },
        "farm": {
            "poolLength()": gives("uint256", 3),
            "userInfo(uint256,address)": gives("uint256", FUNDS, "uint256", 0),
            "lpToken(uint256)": gives("address", usdc),
            "rewardToken()": gives("address", weth),
            "pendingReward(uint256,address)": huge_answer,
        },
        "stakes": {
            "stakingToken()": gives("address", usdc),
            "rewardsToken()": gives("address", weth),
            "balanceOf(address)": huge_answer,
            "earned(address)": huge_answer,
        },
        "provider": {
            "ADDRESSES_PROVIDER()": gives("address", at["provider"]),
            "getPool()": gives("address", at["lending"]),
        },
        "lending": {
            "getUserAccountData(address)": gives(*(each for _ in range(6) for each in ("uint256", WAD))),
            "getReserveData(address)": gives(
                *(each for _ in range(8) for each in ("uint256", 0)),
                "address",
                at["atoken"],
                "address",
                ZERO,
                "address",
                ZERO,
            ),
            "getAllUserRewards(address[],address)": gives("address[]", [weth], "uint256[]", [EVERYTHING]),
        },
        "atoken": {
            "POOL()": gives("address", at["lending"]),
            "UNDERLYING_ASSET_ADDRESS()": gives("address", usdc),
            "balanceOf(address)": huge_answer,
            "getIncentivesController()": gives("address", at["lending"]),
        },
        "factory_v3": {"getPool(address,address,uint24)": gives("address", at["pool_v3"])},
        "pool_v3": {
            "slot0()": gives("uint160", 2**96, "int24", 0),
            "feeGrowthGlobal0X128()": gives("uint256", 0),
            "feeGrowthGlobal1X128()": gives("uint256", 0),
            "ticks(int24)": gives("uint128", 0, "int128", 0, "uint256", 0, "uint256", 0),
            "positions(bytes32)": gives(
                "uint128", EVERYTHING, "uint256", 0, "uint256", 0, "uint128", EVERYTHING, "uint128", EVERYTHING
            ),
        },
        "manager": {
            "factory()": gives("address", at["factory_v3"]),
            "ownerOf(uint256)": gives("address", owner),
            "positions(uint256)": gives(
                "uint96",
                0,
                "address",
                ZERO,
                "address",
                usdc,
                "address",
                weth,
                "uint24",
                500,
                "int24",
                -60,
                "int24",
                60,
                "uint128",
                EVERYTHING,
                "uint256",
                0,
                "uint256",
                0,
                "uint128",
                EVERYTHING,
                "uint128",
                0,
            ),
        },
    }


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with LocalNode() as node:
        deployment = deploy(node)
        accounts, tokens = deployment.accounts, {name: each.address for name, each in deployment.tokens.items()}
        operator, bystander, actor = accounts["ivan"], accounts["grace"], accounts["heidi"]
        usdc, weth = tokens["USDC"], deployment.contracts.get("WETH") or tokens["WETH"]
        transfer = "transfer(address,uint256)"
        node.settle([tx(accounts["alice"], usdc, transfer, actor, 10**6)])
        nonce = int(node.rpc("eth_getTransactionCount", operator, "pending"), 16)
        at = {name: created_address(operator, nonce + k).lower() for k, name in enumerate(NAMES)}
        txs: list[Tx] = []
        for name, contract_answers in sorted(
            answers(at, usdc, weth, bystander).items(), key=lambda each: NAMES.index(each[0])
        ):
            rows = [answer.row(signature) for signature, answer in {**GOOD, **contract_answers}.items()]
            code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
            txs.append(Tx(operator, None, code, gas=5_000_000, label=name))
        node.settle(txs)
        # Who did nothing is sent a share of each, and money of the farm; who acted called each of them.
        mint_logs = {
            to: Log([TRANSFER, topic_of(ZERO), topic_of(to)], words(["uint256"], WAD)) for to in (bystander, actor)
        }
        staked = [
            Log([TRANSFER, topic_of(bystander), topic_of(at[name])], words(["uint256"], WAD))
            for name in ("farm", "stakes")
        ]
        shares = ("market", "pair", "vault", "pool", "atoken")
        node.settle([log_tx(operator, at[share], mint_logs[bystander]) for share in shares])
        node.settle([log_tx(operator, at["pool"], log) for log in staked])
        ticket = Log([TRANSFER, topic_of(ZERO), topic_of(bystander), "0x" + "00" * 31 + "07"])
        node.settle([log_tx(operator, at["manager"], ticket)])
        node.settle([tx(operator, usdc, transfer, at[name], FUNDS) for name in ("pair", "farm", "pool_v3", "stakes")])
        node.settle([log_tx(actor, at[share], mint_logs[actor]) for share in ("market", "pool", "atoken")])
        node.settle([tx(actor, usdc, transfer, at[name], 1) for name in ("market", "farm", "atoken", "stakes")])
        files = {
            f"x{family}": FORK.format(key=f"x{family}", family=family, role=role, at=at[name])
            for family, (role, name) in FORKS.items()
        }
        world = World(node, deployment, tmp_path_factory.mktemp("forked"), files)
        unlisted = World(node, deployment, tmp_path_factory.mktemp("before"))
        yield Forked(at, world.snapshot(bystander), unlisted.snapshot(bystander), world.snapshot(actor))


def test_no_operator_of_a_listed_fork_adds_to_what_somebody_else_is_worth(forked: Forked) -> None:
    assert {each.protocol for each in forked.bystander.positions} >= {
        "xmasterchef",
        "xcompound_v2",
        "xuniswap_v2",
        "xuniswap_v3",
        "xaave_v3",
        "xstaking_rewards",
    }
    assert all(each.unverified for each in forked.bystander.positions if each.protocol.startswith("x"))
    assert valuate([forked.bystander]).value_usd == valuate([forked.before]).value_usd > 0
    assert [issue for issue in forked.bystander.issues if issue.makes_partial] == []


def test_a_market_of_a_fork_that_does_not_have_what_it_says_is_not_relied_on(forked: Forked) -> None:
    (position,) = forked.of_actor("compound_v2")
    assert "do not have" in position.unverified
    assert [part.raw for part in position.supplied] == [EVERYTHING]


def test_a_market_that_others_lead_to_and_that_does_not_have_what_it_says_is_not_relied_on(forked: Forked) -> None:
    reasons = {each.unverified for each in forked.bystander.positions if each.protocol == "xaave_v3"}
    assert reasons == {aave.NOT_SENT, aave.NOT_EARNED}
    market, rewards_position = sorted(forked.of_actor("aave_v3"), key=lambda each: len(each.rewards))
    assert (market.unverified, rewards_position.unverified) == (aave.NOT_THERE, aave.NOT_EARNED)
    assert [part.raw for part in (*market.supplied, *rewards_position.rewards)] == [EVERYTHING] * 2


def test_a_staking_contract_that_does_not_have_what_it_says_is_staked_is_not_relied_on(forked: Forked) -> None:
    (bystander_position,) = [each for each in forked.bystander.positions if each.protocol == "xstaking_rewards"]
    (actor_position,) = forked.of_actor("staking_rewards")
    assert (bystander_position.unverified, actor_position.unverified) == (stakes.NOT_SENT, stakes.NOT_THERE)
    assert [part.raw for part in actor_position.supplied] == [EVERYTHING]


def test_one_heap_of_money_does_not_bear_out_three_stakes_in_a_farm_of_a_fork(forked: Forked) -> None:
    assert {"does not have" in each.unverified for each in forked.of_actor("masterchef")} == {True}


def test_a_vault_of_a_fork_that_says_it_has_more_than_there_is_pays_nothing(forked: Forked) -> None:
    assert forked.of_actor("balancer_v2") == []
    assert any(each.subject == forked.at["pool"] and "does not cover" in each.reason for each in forked.actor.issues)


def test_a_pool_of_a_fork_that_does_not_have_what_a_position_is_said_to_be_worth_is_not_relied_on(
    forked: Forked,
) -> None:
    (position,) = [each for each in forked.bystander.positions if each.protocol == "xuniswap_v3"]
    assert position.unverified == NOT_COVERED
    assert sum(part.raw for part in position.supplied) > 10**27


def test_who_put_something_into_an_honest_fork_has_what_it_has_in_the_original(
    demo_world: World, tmp_path: Path
) -> None:
    def as_fork(text: str) -> str:
        at = demo_world.deployment.contracts
        text = text.replace(at["NonfungiblePositionManager"].lower(), at["UniswapV3Factory"].lower())
        text = text.replace("position_manager", "factory").replace("staking_rewards = [", "staking = [")
        return text.replace("families", "is_fork = true\nfamilies", 1).replace("chef = [", "farm = [", 1)

    keys = {"uniswap2", "uniswap3", "sushi", "synthetix"}
    files = {key: as_fork(text) for key, text in protocols(demo_world.deployment).items() if key in keys}
    accounts = sorted(demo_world.deployment.accounts.values())
    original = demo_world.snapshot(*accounts)
    forks = World(demo_world.node, demo_world.deployment, tmp_path, files).snapshot(*accounts)

    def counted_amounts(snapshot: Snapshot) -> list[tuple[object, ...]]:
        rows = [
            (each.account, each.protocol, part.token.asset.shown_contract, part.raw)
            for each in snapshot.positions
            for part in (*each.supplied, *(each.rewards if each.protocol == "uniswap3" else ()))
            if not each.unverified
        ]
        return sorted(rows)

    assert {protocol for _, protocol, *_ in counted_amounts(original)} >= keys
    assert counted_amounts(forks) == counted_amounts(original)
