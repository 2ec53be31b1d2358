"""Prices of Pendle's principal tokens on its published code, compared with trades and redemptions."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.principals import Principals, build_principals
from chainfolio.assets import Asset
from chainfolio.errors import BadSettings
from chainfolio.localchain.deploy import WAD, Deployer, deploy
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode
from tests.pricing.pool_chain import CHAIN, PoolChain, one_part
from tests.protocols.pendle_deployment import SWAP, Pendle, pendle

pytestmark = pytest.mark.node
World = tuple[PoolChain, Pendle]
GAS = 3_000_000


@pytest.fixture(scope="module", params=[True, False], ids=["current", "older"])
def deployed(request: pytest.FixtureRequest) -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = pendle(node, deployment, current=request.param)
        bob = deployment.accounts["bob"]
        deployer = Deployer(node, bob, int(node.rpc("eth_getTransactionCount", bob, "pending"), 16))
        node.mine()
        yield PoolChain(node, deployer, dict(deployment.tokens)), it


@pytest.fixture
def world(deployed: World) -> Iterator[World]:
    with deployed[0].undone():
        yield deployed


def source(it: Pendle, **markets: str) -> Principals:
    """The source: the later principal has the market that there is."""
    market_names = markets or {"late": "market"}
    lines = {str(principal(it, expiry)): it[market] for expiry, market in market_names.items()}
    return build_principals({"markets": lines}, "here")


def principal(it: Pendle, expiry: str = "late") -> Asset:
    return Asset(CHAIN, "erc20", it[f"{expiry} principal"])


def sell(chain: PoolChain, it: Pendle, raw: int) -> tuple[int, int]:
    """Sell principal in the market and return the proceeds and the fee."""
    send = tx(chain.me, it["late principal"], "transfer(address,uint256)", it["market"], raw)
    swap = tx(chain.me, it["market"], SWAP, chain.me, raw, b"", gas=GAS)
    before = chain.node.snapshot()
    chain.node.settle([send])
    proceeds, fee = chain.node.call(it["market"], f"{SWAP}(uint256,uint256)", chain.me, raw, b"", sender=chain.me)
    chain.node.revert(before)
    with chain.node.by_hand():
        chain.node.settle([send, swap])
    return proceeds, fee


def test_selling_principal_pays_the_price_that_the_market_has_afterwards(world: World) -> None:
    chain, it = world
    relative, part, first = one_part(chain.quoted(source(it), principal(it)))
    assert part == chain.asset("DAI")
    assert relative.detail == f"Pendle market {it['market']}"
    assert chain.requests <= 3
    proceeds, fee = sell(chain, it, 50 * WAD)
    index = chain.node.call(it["SY"], "exchangeRate()(uint256)")
    _, _, last = one_part(chain.quoted(source(it), principal(it)))
    per_unit = Fraction((proceeds + fee) * index, 50 * WAD * WAD)
    assert abs(per_unit / last - 1) < Fraction(1, 10**5)  # Pendle's curve pays a trade the price at its end
    assert last < first < last * Fraction(1005, 1000)
    assert Fraction(9, 10) < last < 1


def test_a_market_could_pay_the_yield_that_lies_in_it(world: World) -> None:
    chain, it = world
    relative, _, _ = one_part(chain.quoted(source(it), principal(it)))
    state = "readState(address)(int256,int256,int256)"
    yield_balance = chain.node.call(it["market"], state, chain.me)[1]
    index = chain.node.call(it["SY"], "exchangeRate()(uint256)")
    assert relative.depth == (chain.asset("DAI"), Fraction(yield_balance * index // WAD, WAD))


def test_a_trade_that_moves_the_market_within_the_block_leaves_the_principal_without_a_price(world: World) -> None:
    chain, it = world
    sell(chain, it, 10_000 * WAD)
    quotes = chain.quoted(source(it), principal(it))
    assert not quotes.relative
    assert "within the block: manipulated?" in quotes.refused[0].reason
    chain.node.mine()
    assert chain.quoted(source(it), principal(it)).relative


def test_a_market_that_remembers_is_believed_again_only_once_its_average_followed(world: World) -> None:
    chain, it = world
    chain.do(it["market"], "increaseObservationsCardinalityNext(uint16)", 20)
    sell(chain, it, WAD)
    chain.node.mine(seconds=1000)
    relative, _, _ = one_part(chain.quoted(source(it), principal(it)))
    assert relative.confidence == Decimal("0.9")
    sell(chain, it, 10_000 * WAD)
    chain.node.mine()
    quotes = chain.quoted(source(it), principal(it))
    assert "away from its average: manipulated?" in quotes.refused[0].reason
    chain.node.mine(seconds=1000)
    assert chain.quoted(source(it), principal(it)).relative


def test_a_market_that_was_drained_in_the_block_has_no_depth(world: World) -> None:
    chain, it = world
    lp_balance = chain.node.call(it["market"], "balanceOf(address)(uint256)", chain.me)
    depth_before = one_part(chain.quoted(source(it), principal(it)))[0].depth
    send = tx(chain.me, it["market"], "transfer(address,uint256)", it["market"], lp_balance)
    burn = tx(chain.me, it["market"], "burn(address,address,uint256)", chain.me, chain.me, lp_balance, gas=GAS)
    with chain.node.by_hand():
        chain.node.settle([send, burn])
    depth_after = one_part(chain.quoted(source(it), principal(it)))[0].depth
    assert depth_before
    assert depth_after
    assert depth_after[1] < depth_before[1] * 6 / 10


def test_a_principal_that_expired_is_worth_what_it_redeems_for_and_needs_no_market_s_price(world: World) -> None:
    chain, it = world
    seconds_left = chain.node.call(it["market"], "expiry()(uint256)") - int(chain.node.block()["timestamp"], 16)
    chain.node.mine(seconds=seconds_left + 60)
    relative, part, price = one_part(chain.quoted(source(it), principal(it)))
    assert (part, price, relative.depth) == (chain.asset("DAI"), Fraction(1), None)
    raw = 100 * WAD
    send = tx(chain.me, it["late principal"], "transfer(address,uint256)", it["late yield"], raw)
    redeem = tx(chain.me, it["late yield"], "redeemPY(address)", chain.me, gas=GAS)
    before = chain.node.call(it["SY"], "balanceOf(address)(uint256)", chain.me)
    chain.node.settle([send])
    chain.node.settle([redeem])
    redeemed = chain.node.call(it["SY"], "balanceOf(address)(uint256)", chain.me) - before
    index = chain.node.call(it["SY"], "exchangeRate()(uint256)")
    assert abs(Fraction(redeemed * index, raw * WAD) - price) < Fraction(1, 10**12)


def test_yield_that_lost_some_of_its_asset_makes_principal_worth_less(world: World) -> None:
    chain, it = world
    seconds_left = chain.node.call(it["market"], "expiry()(uint256)") - int(chain.node.block()["timestamp"], 16)
    chain.node.mine(seconds=seconds_left + 60)
    chain.node.settle([tx(chain.me, it["late yield"], "pyIndexCurrent()", gas=GAS)])  # the index is written down
    stored_index = chain.node.call(it["late yield"], "pyIndexStored()(uint256)")
    loss = chain.node.call(it["DAI"], "balanceOf(address)(uint256)", it["vault"]) // 10
    chain.node.rpc("anvil_impersonateAccount", it["vault"])
    chain.node.rpc("anvil_setBalance", it["vault"], hex(WAD))
    chain.node.settle([tx(it["vault"], it["DAI"], "transfer(address,uint256)", chain.me, loss)])
    quotes = chain.quoted(source(it), principal(it))
    assert "moved by 10 % within the block: manipulated?" in quotes.refused[0].reason
    chain.node.mine()
    _, _, price = one_part(chain.quoted(source(it), principal(it)))
    index = chain.node.call(it["SY"], "exchangeRate()(uint256)")
    assert price == Fraction(index, stored_index) < Fraction(91, 100)


def test_a_market_that_the_settings_name_for_another_principal_or_that_is_none_gives_no_price(world: World) -> None:
    chain, it = world
    for market in ("market", "vault"):
        quotes = chain.quoted(source(it, soon=market), principal(it, "soon"))
        assert not quotes.relative
        assert "is no market of it" in quotes.refused[0].reason
    assert source(it).knows(principal(it))
    assert not source(it).knows(principal(it, "soon"))
    quotes = chain.quoted(source(it), principal(it, "soon"))
    assert (quotes.relative, quotes.refused) == ((), ())


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"market": {}}, "unknown key `market`"),
        ({"markets": []}, "has lines principal = market"),
        ({"markets": {f"{CHAIN}/erc20:0x{'0a' * 20}": "0xAB"}}, "is not an address"),
    ],
)
def test_a_section_of_principals_that_is_wrong_is_a_settings_error(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as caught:
        build_principals(section, "here")
    assert reason in str(caught.value)
