"""Hostile contracts on a local chain claim a position for a victim; none adds to a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pytest

from chainfolio import amounts
from chainfolio.contracts import Issue, Position, Snapshot
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, Deployment, deploy
from chainfolio.localchain.evm import ZERO, Tx, created_address, topic_of, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Answer, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.valuation import Valuation, valuate
from tests.protocols.world import World

FACTORY = "0x" + "12" * 20
PENDLE = f"""\
key = "pendle"
name = "Pendle"
families = ["pendle_sy", "pendle_market"]
[contracts.local]
market_factory = ["{FACTORY}"]
"""
EVERYTHING = 10**60
BAIT = "Visit usdc-gift.com to claim 1000 USDC", "USDC-GIFT.COM"
FUNDS = 5_000 * 10**6  # what the attacker really puts into a contract


@dataclass(frozen=True)
class Attacked:
    """The attacker's contracts by name, and the victim's snapshots before and after."""

    at: dict[str, str]
    before: Snapshot
    after: Snapshot
    gifted: Snapshot

    @property
    def valued(self) -> Valuation:
        return valuate([self.after])

    def issue(self, name: str) -> Issue:
        (issue,) = [
            each for each in self.after.issues if each.subject == self.at[name] and "not counted" in each.reason
        ]
        return issue

    def positions(self, name: str) -> list[Position]:
        return [each for each in self.after.positions if each.pool == self.at[name]]


def claims(at: dict[str, str]) -> dict[str, dict[str, Answer]]:
    """Return the answers of each contract in addition to a token's; `at`: addresses of honest contracts."""
    usdc, weth = at["USDC"], at["WETH"]
    vault = {
        "asset()": gives("address", usdc),
        "convertToAssets(uint256)": gives("uint256", EVERYTHING),
        "previewRedeem(uint256)": gives("uint256", EVERYTHING),
    }
    funded = {**vault, **dict.fromkeys(("convertToAssets(uint256)", "previewRedeem(uint256)"), gives("uint256", FUNDS))}
    shares = {
        "yieldToken()": gives("address", usdc),
        "previewRedeem(address,uint256)": gives("uint256", EVERYTHING),
        "getRewardTokens()": gives("address[]", [weth]),
    }
    pair = {
        "factory()": gives("address", at["UniswapV2Factory"]),
        "token0()": gives("address", min(usdc, weth, key=str.lower)),
        "token1()": gives("address", max(usdc, weth, key=str.lower)),
        "getReserves()": gives("uint112", 10**30, "uint112", 10**30),
        "kLast()": gives("uint256", 0),
    }
    lent = {"POOL()": gives("address", at["Pool"]), "UNDERLYING_ASSET_ADDRESS()": gives("address", usdc)}
    return {
        "a vault": vault,
        "a vault into which the victim deposited": vault,
        "a vault in which there is something": funded,
        "standardized yield": shares,
        "standardized yield in which there is something": {
            **shares,
            "previewRedeem(address,uint256)": gives("uint256", FUNDS),
        },
        "a pair of the real factory": pair,
        "a token of the real lending pool": lent,
        "a market of Pendle": {"factory()": gives("address", FACTORY)},
    }


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with LocalNode() as node:
        deployment = deploy(node)
        accounts, usdc = deployment.accounts, deployment.tokens["USDC"].address
        attacker, victim = accounts["ivan"], accounts["grace"]
        transfer = "transfer(address,uint256)"
        # The victim once sent the asset to another account.
        node.settle([tx(victim, usdc, transfer, accounts["bob"], 10**6)])
        world = World(node, deployment, tmp_path_factory.mktemp("attacked"), {"pendle": PENDLE})
        before = world.snapshot(victim)
        nonce = int(node.rpc("eth_getTransactionCount", attacker, "pending"), 16)
        at: dict[str, str] = {}
        txs: list[Tx] = []
        honest = {**deployment.contracts, **{each.symbol: each.address for each in deployment.tokens.values()}}
        contracts = claims(honest)
        contracts["a vault of vaults"] = {
            **contracts["a vault"],
            "asset()": gives("address", created_address(attacker, nonce)),
        }
        mint_log = Log([TRANSFER, topic_of(ZERO), topic_of(victim)], words(["uint256"], WAD))
        for name, answers in contracts.items():
            at[name] = created_address(attacker, nonce + len(txs)).lower()
            rows = [answer.row(signature) for signature, answer in {**GOOD, **answers}.items()]
            data = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
            txs += [Tx(attacker, None, data, gas=5_000_000, label=name), log_tx(attacker, at[name], mint_log)]
        for name in ("a vault in which there is something", "standardized yield in which there is something"):
            txs.append(tx(attacker, usdc, transfer, at[name], FUNDS))
        node.settle(txs)
        node.settle([tx(victim, usdc, transfer, at["a vault into which the victim deposited"], 1)])
        at["bait"], at["pair"] = give_a_pair(node, deployment, attacker, accounts["heidi"])
        yield Attacked(at, before, world.snapshot(victim), world.snapshot(accounts["heidi"]))


def give_a_pair(node: LocalNode, deployment: Deployment, attacker: str, to: str) -> tuple[str, str]:
    """Create a real pair of a spam token and real money, and mint all of its shares to an account."""
    usdc, factory = deployment.tokens["USDC"].address, deployment.contracts["UniswapV2Factory"]
    nonce = int(node.rpc("eth_getTransactionCount", attacker, "pending"), 16)
    bait = created_address(attacker, nonce)
    code = artifact("Token").creation(words(["string", "string", "uint8"], *BAIT, 18))
    node.settle(
        [
            Tx(attacker, None, code, gas=3_000_000),
            tx(attacker, factory, "createPair(address,address)", bait, usdc, gas=5_000_000),
        ]
    )
    pair = node.call(factory, "getPair(address,address)(address)", bait, usdc)
    node.settle(
        [
            tx(attacker, bait, "mint(address,uint256)", pair, 10**24),
            tx(attacker, usdc, "transfer(address,uint256)", pair, FUNDS),
            tx(attacker, pair, "mint(address)", to),
        ]
    )
    return bait.lower(), pair.lower()


def test_no_contract_of_a_stranger_adds_to_what_an_account_is_worth(attacked: Attacked) -> None:
    deposit = Decimal("0.000001")
    assert worth_of_tokens(attacked.before) > 0
    assert worth_of_tokens(attacked.after) == worth_of_tokens(attacked.before) - deposit
    assert [issue for issue in attacked.after.issues if issue.makes_partial] == []  # nor can it make an answer partial


def worth_of_tokens(snapshot: Snapshot) -> Decimal:
    """Return the counted value without native coins, which the victim's transactions spend."""
    valued = valuate([snapshot])
    native = [
        each.value_usd for each in valued.holdings if each.holding.token.asset.is_native and each.value_usd is not None
    ]
    return amounts.EXACT.subtract(valued.value_usd, amounts.total(native))


def test_every_share_of_a_stranger_stays_in_sight(attacked: Attacked) -> None:
    loose = {each.holding.token.asset.shown_contract: each for each in attacked.valued.holdings}
    for name, contract in attacked.at.items():
        if name not in ("bait", "pair") and not attacked.positions(name):
            assert loose[contract].value_usd is None, name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a vault", "never deposited"),
        ("a vault of vaults", "never deposited"),
        ("a vault in which there is something", "never deposited"),
        ("a vault into which the victim deposited", "do not cover"),
        ("standardized yield", "does not cover"),
        ("standardized yield in which there is something", "an action of its own"),
    ],
)
def test_the_answer_says_why_a_share_is_not_counted(attacked: Attacked, name: str, reason: str) -> None:
    issue = attacked.issue(name)
    assert reason in issue.reason
    assert not issue.makes_partial


def test_what_is_claimed_of_real_assets_is_shown_without_a_value(attacked: Attacked) -> None:
    (position,) = attacked.positions("standardized yield in which there is something")
    assert [part.raw for part in position.supplied] == [FUNDS]
    assert position.unverified
    (valued,) = [each for each in attacked.valued.positions if each.pool == position.pool]
    assert [(part.price, part.value_usd) for part in valued.parts] == [(None, None)]


def test_what_lies_in_a_position_is_judged_for_spam_like_loose_tokens(attacked: Attacked) -> None:
    """The money in the pair can be had; the bait beside it is flagged there as it would be in the wallet."""
    (position,) = [each for each in valuate([attacked.gifted]).positions if each.pool == attacked.at["pair"]]
    parts = {part.holding.token.asset.shown_contract: part for part in position.parts}
    bait = parts.pop(attacked.at["bait"])
    assert bait.spam is not None
    assert (bait.is_counted, "LINK" in bait.spam.reasons or "SITE" in bait.spam.reasons) == (False, True)
    (money,) = parts.values()
    assert (money.spam, money.is_counted, money.value_usd == position.value_usd > 0) == (None, True, True)
