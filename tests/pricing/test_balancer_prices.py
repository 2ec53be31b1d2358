"""Prices from pools of Balancer V2 on its published code, compared with what trades pay."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from chainfolio.adapters.evm.prices.pools import Pools, build_pools
from chainfolio.adapters.evm.prices.shares import Shares, build_shares
from chainfolio.assets import Asset
from chainfolio.errors import BadSettings
from chainfolio.localchain.deploy import FOREVER, Deployer, deploy
from chainfolio.localchain.node import LocalNode
from tests.pricing.pool_chain import CHAIN, PoolChain, one_part, section
from tests.protocols.balancer_v2_deployment import EXACT_TOKENS_IN, JOIN, SWAP, Balancer, balancer, join

pytestmark = pytest.mark.node
World = tuple[PoolChain, Balancer]
USDC, WAD = 10**6, 10**18
KEPT = Fraction(99, 100)  # of a trade, after the fee
SIDES = [("weighted", "WETH", "USDC"), ("stable", "DAI", "USDC"), ("composable", "DAI", "USDC")]


@pytest.fixture(scope="module")
def deployed() -> Iterator[World]:
    with LocalNode() as node:
        deployment = deploy(node)
        with node.by_hand():
            it = balancer(node, deployment)
        account = deployment.accounts["deployer"]
        deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
        deployer.contracts.update(deployment.contracts)
        node.mine()
        yield PoolChain(node, deployer, dict(deployment.tokens)), it


@pytest.fixture
def world(deployed: World) -> Iterator[World]:
    with deployed[0].undone():
        yield deployed


def number(chain: PoolChain, it: Balancer, name: str) -> bytes:
    pool_id: bytes = chain.node.call(it.pools[name], "getPoolId()(bytes32)")
    return pool_id


def source(chain: PoolChain, it: Balancer, *names: str, floor: str = "1000") -> Pools:
    ids = [f"0x{number(chain, it, name).hex()}" for name in names]
    venue = {"family": "balancer_v2", "name": "Balancer V2", "vault": it.vault.lower(), "pools": ids}
    return build_pools(section(chain, {"USDC": floor}, venue), "here")


def swap(chain: PoolChain, it: Balancer, name: str, sold: str, bought: str, raw: int) -> None:
    single = (number(chain, it, name), 0, chain.tokens[sold].address, chain.tokens[bought].address, raw, b"")
    chain.do(it.vault, SWAP, single, (chain.me, False, chain.me, False), 0, FOREVER)


def pool_balance(chain: PoolChain, it: Balancer, name: str, symbol: str) -> int:
    tokens, balances, _ = chain.node.call(
        it.vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", number(chain, it, name)
    )
    raw: int = dict(zip(tokens, balances, strict=True))[chain.tokens[symbol].address.lower()]
    return raw


@pytest.mark.slow("the same pools in the other direction", only=["True-*"])
@pytest.mark.parametrize(("name", "sold", "bought"), SIDES)
@pytest.mark.parametrize("turned", [False, True])
def test_what_a_trade_in_a_pool_pays_lies_between_the_prices_before_and_after_it(
    world: World, name: str, sold: str, bought: str, turned: bool
) -> None:
    chain, it = world
    pools = source(chain, it, name)
    relative, part, first = one_part(chain.quoted(pools, sold))
    assert part == chain.asset(bought)
    assert relative.detail == f"Balancer V2 pool 0x{number(chain, it, name).hex()}"
    assert relative.depth == (part, Fraction(pool_balance(chain, it, name, bought), USDC))
    assert chain.requests == 2
    raw = 1000 * USDC if turned else WAD // 10 if sold == "WETH" else 1000 * WAD
    direction = (bought, sold) if turned else (sold, bought)
    balance, me = "balanceOf(address)(uint256)", chain.me
    before = chain.node.call(chain.tokens[direction[1]].address, balance, me)
    swap(chain, it, name, *direction, raw)
    proceeds = chain.node.call(chain.tokens[direction[1]].address, balance, me) - before
    chain.node.mine()
    _, _, last = one_part(chain.quoted(pools, sold))
    units = Fraction(raw, USDC if turned else WAD) * KEPT, Fraction(proceeds, WAD if turned else USDC)
    trade_price = units[0] / units[1] if turned else units[1] / units[0]
    assert min(first, last) < trade_price < max(first, last)
    assert max(first, last) / min(first, last) < Fraction(103, 100)


def test_the_price_of_a_weighted_pool_is_that_of_its_balances_and_weights(world: World) -> None:
    chain, it = world
    weights = chain.node.call(it.pools["weighted"], "getNormalizedWeights()(uint256[])")
    assert sorted(weights) == [WAD // 5, WAD * 4 // 5]
    weth, usdc = (pool_balance(chain, it, "weighted", symbol) for symbol in ("WETH", "USDC"))
    _, _, price = one_part(chain.quoted(source(chain, it, "weighted"), "WETH"))
    assert price == Fraction(usdc * 5 * 4 * 10**12, weth * 5)


def test_of_the_named_pools_the_one_that_could_pay_most_counts(world: World) -> None:
    chain, it = world
    swap(chain, it, "stable", "USDC", "DAI", 5_000 * USDC)
    chain.node.mine()
    deepest = max(("stable", "composable"), key=lambda name: pool_balance(chain, it, name, "USDC"))
    relative, _, _ = one_part(chain.quoted(source(chain, it, "weighted", "stable", "composable"), "DAI"))
    assert relative.detail.endswith(number(chain, it, deepest).hex())
    assert chain.requests == 2


@pytest.mark.parametrize(
    ("name", "sold", "raw"),
    [("weighted", "WETH", 25 * WAD), ("stable", "DAI", 190_000 * WAD), ("composable", "DAI", 190_000 * WAD)],
)
def test_a_pool_that_a_trade_moved_has_no_price_in_that_block_and_no_other_takes_its_place(
    world: World, name: str, sold: str, raw: int
) -> None:
    chain, it = world
    pools = source(chain, it, name)
    assert one_part(chain.quoted(pools, sold))
    swap(chain, it, name, sold, "USDC", raw)
    quotes = chain.quoted(pools, sold)
    assert not quotes.relative
    assert "within the block: manipulated?" in quotes.refused[0].reason


@pytest.mark.parametrize(("name", "sold", "bought"), SIDES)
def test_a_gift_to_the_vault_moves_nothing(world: World, name: str, sold: str, bought: str) -> None:
    chain, it = world
    pools = source(chain, it, name)
    first = chain.quoted(pools, sold)
    chain.do(chain.tokens[bought].address, "transfer(address,uint256)", it.vault, 10**6 * USDC)
    assert chain.quoted(pools, sold).relative[0].parts == first.relative[0].parts
    assert chain.quoted(pools, sold).relative[0].depth == first.relative[0].depth


def test_a_pool_that_was_drained_in_the_block_gives_no_price_and_what_came_in_it_is_no_depth(world: World) -> None:
    chain, it = world
    deep = pool_balance(chain, it, "weighted", "USDC") // USDC
    raw = chain.node.call(it.pools["weighted"], "balanceOf(address)(uint256)", chain.me) * 9 // 10
    leaving = it.exit(chain.node, chain.me, it.pools["weighted"], raw, 1)
    assert leaving.data
    chain.deployer.add(leaving)
    chain.deployer.settle()
    enough = source(chain, it, "weighted", floor=str(deep // 2))
    assert "could pay enough" in chain.quoted(enough, "WETH").refused[0].reason
    chain.node.mine()
    assert "could pay enough" in chain.quoted(enough, "WETH").refused[0].reason
    small = source(chain, it, "weighted", floor="1000")
    depth = one_part(chain.quoted(small, "WETH"))[0].depth
    assert depth
    assert depth[1] < deep // 5
    tokens = (chain.tokens["WETH"], chain.tokens["USDC"])
    amounts = {token.address.lower(): pool_balance(chain, it, "weighted", token.symbol) * 10 for token in tokens}
    join_request = join(EXACT_TOKENS_IN, sorted(amounts, key=lambda at: int(at, 16)), amounts, it.pools["weighted"])
    chain.do(it.vault, JOIN, number(chain, it, "weighted"), chain.me, chain.me, join_request)
    assert pool_balance(chain, it, "weighted", "USDC") > 8 * depth[1] * USDC
    assert one_part(chain.quoted(small, "WETH"))[0].depth == depth


def test_shares_of_a_pool_have_no_market_in_the_pool_itself_and_a_pool_that_is_not_registered_is_none(
    world: World,
) -> None:
    chain, it = world
    share = chain.asset("DAI")._replace(reference=it.pools["composable"].lower())
    assert not chain.quoted(source(chain, it, "composable"), share).relative
    venue = {"family": "balancer_v2", "vault": it.vault.lower(), "pools": ["0x" + "ab" * 32]}
    unregistered = build_pools(section(chain, {"USDC": "1"}, venue), "here")
    quotes = chain.quoted(unregistered, "DAI")
    assert (quotes.relative, quotes.refused) == ((), ())
    assert not chain.quoted(source(chain, it, "weighted"), "WETH", height=1).relative


def of_shares(chain: PoolChain, it: Balancer, *names: str) -> Shares:
    ids = [f"0x{number(chain, it, name).hex()}" for name in names]
    section = {"balancer_v2": {"vault": it.vault.lower(), "pools": ids}, "native": f"{CHAIN}/slip44:60"}
    return build_shares(section, "here")


def share(chain: PoolChain, it: Balancer, name: str) -> Asset:
    return chain.asset("DAI")._replace(reference=it.pools[name].lower())


@pytest.mark.parametrize(
    ("name", "kind", "fee_fraction"), [("weighted", 1, 10**6), ("stable", 1, 10**3), ("composable", 2, 10**6)]
)
def test_a_share_of_a_pool_is_worth_what_leaving_it_pays_but_for_what_an_early_pool_owes_its_protocol(
    world: World, name: str, kind: int, fee_fraction: int
) -> None:
    chain, it = world
    (relative,) = chain.quoted(of_shares(chain, it, name), share(chain, it, name)).relative
    assert chain.requests == 2
    raw = chain.node.call(it.pools[name], "balanceOf(address)(uint256)", chain.me) // 3
    tokens = [part.reference for part, _ in relative.parts]
    assert len(tokens) == 2
    before = [chain.node.call(token, "balanceOf(address)(uint256)", chain.me) for token in tokens]
    chain.deployer.add(it.exit(chain.node, chain.me, it.pools[name], raw, kind))
    chain.deployer.settle()
    for (part, amount), had in zip(relative.parts, before, strict=True):
        payment = chain.node.call(part.reference, "balanceOf(address)(uint256)", chain.me) - had
        decimals = chain.node.call(part.reference, "decimals()(uint8)")
        assert payment
        assert -Fraction(1, 10**6) < amount * raw / WAD * 10**decimals / payment - 1 < Fraction(1, fee_fraction)


def test_a_share_of_a_pool_that_was_moved_in_the_block_has_no_price_and_one_of_no_named_pool_is_none(
    world: World,
) -> None:
    chain, it = world
    source = of_shares(chain, it, "weighted", "stable")
    swap(chain, it, "weighted", "WETH", "USDC", 25 * WAD)
    quotes = chain.quoted(source, share(chain, it, "weighted"))
    assert not quotes.relative
    assert "within the block: manipulated?" in quotes.refused[0].reason
    unnamed = chain.quoted(source, share(chain, it, "composable"))
    assert (unnamed.relative, unnamed.refused) == ((), ())


def test_the_configuration_says_which_shares_are_surely_known_and_what_can_have_no_price_from_pools(
    world: World,
) -> None:
    chain, it = world
    shares, pools = of_shares(chain, it, "weighted"), source(chain, it, "weighted")
    coin, token = Asset(CHAIN, "slip44", "60"), chain.asset("DAI")
    foreign_token = token._replace(chain="eip155:1")
    assert [shares.knows(each) for each in (share(chain, it, "weighted"), token, coin, foreign_token)] == [
        True,
        None,
        False,
        False,
    ]
    assert [pools.knows(each) for each in (token, coin, foreign_token)] == [None, False, False]


@pytest.mark.parametrize("ids", [[], ["0xab"], "0x" + "ab" * 32, [1], ["0x" + "AB" * 32]])
def test_pools_that_are_not_named_by_their_ids_are_a_settings_error(ids: object) -> None:
    with pytest.raises(BadSettings, match="is not a list of words of 32 bytes"):
        build_pools({"venues": [{"family": "balancer_v2", "vault": "0x" + "0a" * 20, "pools": ids}]}, "here")
