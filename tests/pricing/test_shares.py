"""Prices of shares by what they redeem for on real contracts; a contract's own claim does not count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.prices import shares
from chainfolio.adapters.evm.prices.shares import Shares, build_shares
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.localchain.deploy import FOREVER, WAD, Deployer, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted, run_offline
from chainfolio.reads import AtParent
from tests.pricing.pool_chain import CHAIN, PoolChain, one_part
from tests.protocols.compound_v2_deployment import Venus, supply, venus

NATIVE = f"{CHAIN}/slip44:60"
LIDO = Path(__file__).parents[3] / "shared" / "contracts" / "lido" / "recorded.json"
BLOCK = Block(100, "0xaa", "0xbb", 1_760_000_000_500_000)


@dataclass(slots=True)
class Shared:
    """A chain with vaults, lending markets and pairs, and the source that knows them."""

    chain: PoolChain
    venus: Venus
    source: Shares

    def asset(self, name: str) -> Asset:
        return Asset(CHAIN, "erc20", self.at(name))

    def at(self, name: str) -> str:
        address = self.venus.markets[name[1:]] if name in ("vDAI", "vUSDC", "vETH") else self.chain.contracts[name]
        return address.lower()

    def reason(self, name: str) -> str:
        quotes = self.chain.quoted(self.source, self.asset(name))
        assert not quotes.relative
        return quotes.refused[0].reason


@pytest.fixture(scope="module")
def deployed() -> Iterator[Shared]:
    with LocalNode() as node:
        deployment = deploy(node)
        markets = venus(node, deployment)
        account = deployment.accounts["deployer"]
        node.settle(supply(account, markets, deployment, "DAI", 1000 * WAD))
        node.settle(supply(account, markets, deployment, "ETH", 10 * WAD))
        deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
        deployer.contracts.update(deployment.contracts)
        addresses = {role: [deployer.contracts[name].lower()] for role, name in ROLES.items()}
        section = {**addresses, "comptroller": [markets.comptroller.lower()], "native": NATIVE}
        yield Shared(PoolChain(node, deployer, dict(deployment.tokens)), markets, build_shares(section, "here"))


ROLES = {"vault": "Vault", "data_provider": "AaveProtocolDataProvider", "factory": "UniswapV2Factory"}


@pytest.fixture
def world(deployed: Shared) -> Iterator[Shared]:
    with deployed.chain.undone():
        yield deployed


@pytest.mark.node
def test_a_share_of_a_named_vault_is_worth_what_the_vault_redeems_it_for(world: Shared) -> None:
    relative, part, amount = one_part(world.chain.quoted(world.source, world.asset("Vault")))
    redeemed = world.chain.node.call(world.at("Vault"), "convertToAssets(uint256)(uint256)", 10**9 * WAD)
    assert (part, amount) == (world.chain.asset("DAI"), Fraction(redeemed, 10**9 * WAD))
    assert Fraction(105, 100) - amount < Fraction(1, 10**15)
    assert relative.depth is None
    assert world.chain.requests == 2


@pytest.mark.node
def test_a_vault_that_nobody_names_mints_no_worth_whatever_it_says(world: Shared) -> None:
    chain = world.chain
    dai, types = chain.tokens["DAI"].address, ("address", "string", "string")
    vault = chain.deployer.create("Mine", "Vault", types, dai, "M", "M")
    chain.do(dai, "approve(address,uint256)", vault, 2**256 - 1)
    chain.do(vault, "deposit(uint256,address)", 10**21, chain.me)
    chain.do(dai, "transfer(address,uint256)", vault, 10**24)
    chain.node.mine()
    quotes = chain.quoted(world.source, world.asset("Mine"), "DAI", "WETH")
    assert (quotes.relative, quotes.refused) == ((), ())


@pytest.mark.node
def test_a_gift_to_a_vault_moves_no_price_within_its_block_and_is_the_holders_afterwards(world: Shared) -> None:
    chain = world.chain
    chain.do(chain.tokens["DAI"].address, "transfer(address,uint256)", world.at("Vault"), 10**6 * WAD)
    assert "moved by 9524 % within the block: manipulated?" in world.reason("Vault")
    chain.node.mine()
    _, _, amount = one_part(chain.quoted(world.source, world.asset("Vault")))
    assert amount > 100  # redeeming pays it


@pytest.mark.node
def test_what_was_supplied_to_a_listed_market_of_aave_is_one_for_one(world: Shared) -> None:
    for symbol in ("USDC", "WETH", "DAI", "WBTC"):
        _, part, amount = one_part(world.chain.quoted(world.source, world.asset(f"a{symbol}")))
        assert (part, amount) == (world.chain.asset(symbol), Fraction(1))
    debt = world.chain.quoted(world.source, world.asset("variableDebtDAI"))
    assert (debt.relative, debt.refused) == ((), ())  # what is owed is no share


@pytest.mark.node
def test_a_token_of_a_listed_market_of_compound_is_worth_its_rate_and_of_ether_in_native_coins(world: Shared) -> None:
    for symbol, part, scale in (("DAI", world.chain.asset("DAI"), WAD), ("ETH", asset(NATIVE), WAD)):
        _, of, amount = one_part(world.chain.quoted(world.source, world.asset(f"v{symbol}")))
        rate = world.chain.node.call(world.at(f"v{symbol}"), "exchangeRateStored()(uint256)")
        assert (of, amount) == (part, Fraction(rate * 10**8, WAD * scale))
        assert Fraction(1, 100) < amount < Fraction(3, 100)


@pytest.mark.node
def test_a_share_of_a_pair_is_its_part_of_both_reserves_as_burning_pays_it(world: Shared) -> None:
    chain, name = world.chain, "UniswapV2Pair WETH/DAI"
    (relative,) = chain.quoted(world.source, world.asset(name)).relative
    parts = dict(relative.parts)
    pair = world.at(name)
    raw = chain.node.call(pair, "balanceOf(address)(uint256)", chain.me) // 3
    before = {
        each: chain.node.call(chain.tokens[each].address, "balanceOf(address)(uint256)", chain.me) for each in PAIR
    }
    chain.do(pair, "approve(address,uint256)", chain.contracts["UniswapV2Router02"], raw)
    chain.do(
        chain.contracts["UniswapV2Router02"],
        "removeLiquidity(address,address,uint256,uint256,uint256,address,uint256)",
        *(chain.tokens[each].address for each in PAIR),
        raw,
        0,
        0,
        chain.me,
        FOREVER,
    )
    for each in PAIR:
        payment = balance(chain, each) - before[each]
        assert payment == parts[chain.asset(each)] * raw // 1  # both have 18 decimals, as the share


PAIR = ("WETH", "DAI")


def balance(chain: PoolChain, symbol: str) -> int:
    raw: int = chain.node.call(chain.tokens[symbol].address, "balanceOf(address)(uint256)", chain.me)
    return raw


@pytest.mark.node
def test_a_share_of_a_pair_that_was_moved_within_the_block_has_no_price(world: Shared) -> None:
    chain = world.chain
    chain.do(chain.tokens["DAI"].address, "approve(address,uint256)", chain.contracts["UniswapV2Router02"], 2**256 - 1)
    chain.swap("DAI", "WETH", 10**6 * WAD)
    assert "manipulated?" in world.reason("UniswapV2Pair WETH/DAI")


IMITATION, KNOWN, OTHER = (f"0x{byte * 20}" for byte in ("1f", "2f", "3f"))
CLAIMS: dict[str, Any] = {  # what a token says that imitates every share there is
    "decimals()(uint8)": 18,
    "asset()(address)": OTHER,
    "UNDERLYING_ASSET_ADDRESS()(address)": OTHER,
    "comptroller()(address)": KNOWN,
    "underlying()(address)": OTHER,
    "factory()(address)": KNOWN,
    "token0()(address)": OTHER,
    "token1()(address)": KNOWN,
    "getReserves()(uint112,uint112)": (10**30, 10**30),
    "totalSupply()(uint256)": 1,
    "exchangeRateStored()(uint256)": 10**30,
    "convertToAssets(uint256)(uint256)": 10**60,
    "getReserveTokensAddresses(address)(address,address,address)": (IMITATION, IMITATION, IMITATION),
    "getPair(address,address)(address)": IMITATION,
    "markets(address)(bool)": True,
}


def claimed(role: str, **vouched: Any) -> Any:
    """Return the prices of the imitation if the one trusted contract answers as given."""
    source = build_shares({role: [KNOWN], "native": NATIVE}, "here")
    token = Asset(CHAIN, "erc20", IMITATION)
    answers = CLAIMS | {f"{name}": answer for name, answer in vouched.items()}
    by_name = {signature.partition("(")[0]: answer for signature, answer in answers.items()}

    def answer(read: Any) -> Any:
        inner: Any = read.read if isinstance(read, AtParent) else read
        return by_name[inner.signature.partition("(")[0]]

    return run_offline(source.prices([token], BLOCK), answer).relative


@pytest.mark.parametrize(
    ("role", "no"),
    [
        ("factory", {"getPair": KNOWN}),
        ("comptroller", {"markets": False}),
        ("data_provider", {"getReserveTokensAddresses": (OTHER, IMITATION, IMITATION)}),
    ],
)
def test_a_token_that_only_claims_to_be_a_share_has_no_price_unless_the_contract_that_it_names_says_so(
    role: str, no: dict[str, Any]
) -> None:
    assert len(claimed(role)) == 1
    assert claimed(role, **no) == ()
    assert claimed("vault") == ()  # no file names it


@pytest.mark.parametrize(
    ("role", "refused"), [({}, []), ({"data_provider": [OTHER]}, [1])], ids=["vaults-only", "other-kinds"]
)
def test_a_configured_vault_behind_many_tokens_is_priced(
    role: dict[str, list[str]], refused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MAX_TOKENS", 2)
    vault, *others = (Asset(CHAIN, "erc20", address) for address in (KNOWN, OTHER, IMITATION))
    source = build_shares({"vault": [KNOWN], "native": NATIVE, **role}, "here")
    results = {"decimals": 18, "asset": IMITATION, "convertToAssets": 10**27}

    def answer(read: Any) -> Any:
        inner: Any = read.read if isinstance(read, AtParent) else read
        name = inner.signature.partition("(")[0]
        return results.get(name, Reverted()) if inner.to == KNOWN or name == "decimals" else Reverted()

    quotes = run_offline(source.prices([*others, vault], BLOCK), answer)
    assert [price.asset for price in quotes.relative] == [vault]
    assert [refusal.asset for refusal in quotes.refused] == [others[k] for k in refused]


@pytest.mark.skipif(not LIDO.exists(), reason="the recordings are not here")
def test_the_rate_of_wrapped_steth_is_the_recorded_one_unless_it_jumped_within_the_block() -> None:
    recorded = json.loads(LIDO.read_text())
    wsteth, steth = (Asset(CHAIN, "erc20", recorded["addresses"][name]) for name in ("wstETH", "stETH"))
    source = build_shares({"rates": {str(wsteth): {"of": str(steth), "function": "stEthPerToken()(uint256)"}}}, "here")
    rates = [int(each["means"]) for each in recorded["calls"] if each["signature"] == "stEthPerToken()(uint256)"]
    assert rates[:3] == [WAD, 105 * WAD // 100, 105 * WAD // 100]

    def quoted(now: Any, before: Any) -> Any:
        return run_offline(
            source.prices([wsteth, steth], BLOCK), lambda read: before if isinstance(read, AtParent) else now
        )

    assert one_part(quoted(rates[2], rates[1]))[1:] == (steth, Fraction(105, 100))
    assert one_part(quoted(rates[1], rates[0]))[1:] == (steth, Fraction(105, 100))  # a rebase of 5 % is believed
    assert "moved by 6 % within the block" in quoted(106 * WAD // 100, WAD).refused[0].reason


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"vaults": []}, "unknown key `vaults`"),
        ({"vault": ["0x1"]}, "a vault is not an address"),
        ({"vault": "0x1"}, "not a list"),
        ({"vault": ["0x" + "ab" * 20]}, "needs `native`"),
        ({"rates": {f"{CHAIN}/erc20:0x{'ab' * 20}": {"of": NATIVE}}}, "needs exactly `of`"),
        (
            {"rates": {f"{CHAIN}/erc20:0x{'ab' * 20}": {"of": NATIVE, "function": "rate(uint256)(uint256)"}}},
            "needs exactly",
        ),
    ],
)
def test_a_section_of_shares_that_is_wrong_is_a_settings_error(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as caught:
        build_shares(section, "here")
    assert reason in str(caught.value)
