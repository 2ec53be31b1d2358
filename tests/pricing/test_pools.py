"""Prices from pools on a local node, compared with direct calls and with trades that move a pool."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.pools import Pools, build_pools
from chainfolio.assets import ZERO_ADDRESS, asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.localchain.deploy import FOREVER, MINT_POSITION
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.pool_prices import TOO_MANY_TOKENS
from chainfolio.price_sources import Quotes
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.source_chain import query_sources
from chainfolio.reads import AtParent
from chainfolio.tick_math import sqrt_price
from tests.pricing.pool_chain import CHAIN, WAD, PoolChain, one_part, opened, section

USDC = 10**6
FLOORS = {"WETH": "5", "USDC": "10000"}


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as running:
        yield running


@pytest.fixture(scope="module")
def fresh(node: LocalNode) -> PoolChain:
    return opened(node)


@pytest.fixture
def chain(fresh: PoolChain) -> Iterator[PoolChain]:
    """The chain without pools: what a test does there is undone."""
    with fresh.undone():
        yield fresh


def source(chain: PoolChain) -> Pools:
    return build_pools(section(chain, FLOORS), "here")


def reason(chain: PoolChain, symbol: str, height: int | None = None) -> str:
    quotes = chain.quoted(source(chain), symbol, height=height)
    assert not quotes.relative
    (refusal,) = quotes.refused
    assert refusal.asset == chain.asset(symbol)
    return refusal.reason


@pytest.mark.node
def test_prices_at_past_blocks_are_the_reserves_and_slot0_of_those_blocks(chain: PoolChain) -> None:
    chain.token("PEPE"), chain.token("CATS", 9)
    pair = chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    pool = chain.pool("CATS", 10**6 * 10**9, "USDC", 50_000 * USDC)
    for _ in range(3):
        chain.swap("PEPE", "WETH", 10_000 * WAD)
        chain.swap_v3("CATS", "USDC", 7_777 * 10**9)
    for height in range(chain.node.height - 5, chain.node.height + 1):
        quotes = chain.quoted(source(chain), "PEPE", "CATS", height=height)
        reserves = chain.node.call(pair, "getReserves()(uint112,uint112,uint32)", block=height)
        root = chain.node.call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)", block=height)[0]
        weth_first = int(chain.tokens["WETH"].address, 16) < int(chain.tokens["PEPE"].address, 16)
        weth, pepe = reserves[:2] if weth_first else reserves[1::-1]
        usdc_per_cat = Fraction(root**2, 2**192)
        if int(chain.tokens["USDC"].address, 16) < int(chain.tokens["CATS"].address, 16):
            usdc_per_cat = 1 / usdc_per_cat
        by_asset = {each.asset: each for each in quotes.relative}
        assert by_asset[chain.asset("PEPE")].parts == ((chain.asset("WETH"), Fraction(weth, pepe)),)
        assert by_asset[chain.asset("CATS")].parts == ((chain.asset("USDC"), usdc_per_cat * 1000),)
        assert not quotes.refused
    assert chain.requests == 2


@pytest.mark.node
def test_a_pool_price_names_its_pool_its_depth_and_its_reads_and_is_less_sure_without_an_average(
    chain: PoolChain,
) -> None:
    chain.token("PEPE")
    pair = chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    chain.node.mine()
    relative, part, price = one_part(chain.quoted(source(chain), "PEPE"))
    assert (part, price) == (chain.asset("WETH"), Fraction(1, 10_000))
    assert relative.depth == (chain.asset("WETH"), Fraction(100))
    assert relative.detail == f"uniswap_v2 pair {pair.lower()}"
    assert relative.confidence == Decimal("0.7")
    assert [(each.read.label[1], each.read.label[2]) for each in relative.calls] == [
        (chain.tokens["PEPE"].address.lower(), "decimals()(uint8)"),
        (chain.tokens["WETH"].address.lower(), "decimals()(uint8)"),
        (pair.lower(), "getReserves()(uint112,uint112)"),
    ]


@pytest.mark.node
def test_the_pool_is_chosen_at_the_block_by_what_it_could_pay_measured_by_the_floors(chain: PoolChain) -> None:
    chain.token("PEPE")
    chain.pool("PEPE", 10**6 * WAD, "USDC", 30_000 * USDC)  # 3 floors
    before = chain.node.mine()
    chain.pair("PEPE", 10**6 * WAD, "WETH", 20 * WAD)  # 4 floors
    after = chain.node.mine()
    assert one_part(chain.quoted(source(chain), "PEPE", height=before))[1] == chain.asset("USDC")
    assert one_part(chain.quoted(source(chain), "PEPE", height=after))[1] == chain.asset("WETH")


@pytest.mark.node
def test_every_fee_is_looked_at_also_the_one_of_a_hundredth_of_a_percent(chain: PoolChain) -> None:
    chain.token("PEPE")
    for fee in (100, 500, 3000, 10_000):
        deeper = 10 if fee == 100 else 1
        chain.pool("PEPE", deeper * 10**6 * WAD, "USDC", deeper * 11_000 * USDC, fee)
    chain.node.mine()
    relative, _, _ = one_part(chain.quoted(source(chain), "PEPE"))
    assert relative.detail == f"uniswap_v3 pool {chain.pool_at('PEPE', 'USDC', 100).lower()} (fee 100)"


@pytest.mark.node
def test_tokens_without_a_pool_with_a_trusted_quote_are_known_to_nobody(chain: PoolChain) -> None:
    chain.token("JUNK"), chain.token("TRASH")
    chain.pair("JUNK", 10**8 * WAD, "TRASH", 10**8 * WAD)
    chain.pool("JUNK", 10**8 * WAD, "TRASH", 10**8 * WAD)
    chain.node.mine()
    quotes = chain.quoted(source(chain), "JUNK", "TRASH")
    assert (quotes.relative, quotes.refused, quotes.prices) == ((), (), ())


@pytest.mark.node
def test_a_pool_that_can_pay_less_than_the_floor_gives_no_price(chain: PoolChain) -> None:
    chain.token("PEPE")
    chain.pair("PEPE", 10**6 * WAD, "WETH", 5 * WAD - 1)
    chain.node.mine()
    assert "none of its 1 pools could pay enough" in reason(chain, "PEPE")
    chain.pair("PEPE", 10**6 * WAD, "WETH", WAD)
    chain.node.mine()
    assert one_part(chain.quoted(source(chain), "PEPE"))[1] == chain.asset("WETH")


@pytest.mark.node
def test_a_trade_that_moves_a_pair_within_the_block_leaves_the_token_without_a_price_until_it_stands(
    chain: PoolChain,
) -> None:
    chain.token("PEPE")
    chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    chain.swap("WETH", "PEPE", 50 * WAD)
    assert "moved by 125 % within the block" in reason(chain, "PEPE")


@pytest.mark.node
def test_a_swap_that_is_taken_back_in_the_same_block_does_not_move_the_price(chain: PoolChain) -> None:
    chain.token("PEPE")
    chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    bought = 10**6 * WAD - 10**6 * 100 * WAD * 1000 // (100 * 1000 + 300 * 997)
    with chain.in_one_block():
        chain.swap("WETH", "PEPE", 300 * WAD)
        chain.swap("PEPE", "WETH", bought)
    _, _, price = one_part(chain.quoted(source(chain), "PEPE"))
    assert abs(price * 10_000 - 1) < Fraction(2, 100)  # what is left are the fees of both trades


@pytest.mark.node
def test_a_donation_to_a_pair_does_not_move_the_price_and_counts_as_depth_only_once_it_stood(
    chain: PoolChain,
) -> None:
    chain.token("PEPE")
    pair = chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    chain.do(chain.tokens["WETH"].address, "transfer(address,uint256)", pair, 1000 * WAD)
    relative, _, price = one_part(chain.quoted(source(chain), "PEPE"))
    assert (price, relative.depth) == (Fraction(1, 10_000), (chain.asset("WETH"), Fraction(100)))
    chain.do(pair, "sync()")
    assert "moved by 1000 % within the block" in reason(chain, "PEPE")


@pytest.mark.node
def test_a_pool_that_was_filled_or_drained_in_this_very_block_gives_no_price(chain: PoolChain) -> None:
    chain.token("PEPE")
    pair = chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    assert "could pay enough" in reason(chain, "PEPE"), "what came in this block is no depth"
    shares = chain.node.call(pair, "balanceOf(address)(uint256)", chain.me)
    chain.do(pair, "transfer(address,uint256)", pair, shares)
    assert chain.quoted(source(chain), "PEPE").relative
    chain.do(pair, "burn(address)", chain.me)
    assert "could pay enough" in reason(chain, "PEPE")


@pytest.mark.node
def test_a_pool_of_concentrated_liquidity_that_is_moved_is_refused_by_its_average_for_minutes(
    chain: PoolChain,
) -> None:
    chain.token("PEPE")
    pool = chain.pool("PEPE", 10**6 * WAD, "USDC", 100_000 * USDC)
    chain.do(pool, "increaseObservationCardinalityNext(uint16)", 20)
    chain.swap_v3("PEPE", "USDC", 1000 * WAD)  # the first trade begins to fill the observations
    chain.node.mine(seconds=900)
    relative, _, _ = one_part(chain.quoted(source(chain), "PEPE"))
    assert relative.confidence == Decimal("0.9")
    chain.swap_v3("USDC", "PEPE", 20_000 * USDC)
    assert "within the block" in reason(chain, "PEPE")
    chain.node.mine()
    assert "away from its average: manipulated?" in reason(chain, "PEPE")
    chain.node.mine(seconds=900)
    _, _, price = one_part(chain.quoted(source(chain), "PEPE"))
    assert price > Fraction(14, 100)


@pytest.mark.node
def test_liquidity_without_tokens_and_tokens_far_from_the_price_are_no_depth(chain: PoolChain) -> None:
    chain.token("THIN"), chain.token("FAR")
    # A great active liquidity within one tick, of little money.
    chain.pool("THIN", 100 * WAD, "USDC", 100 * USDC, 500, width=1)
    # Much money below the price, and hardly any at it.
    pool = chain.pool("FAR", 10 * WAD, "USDC", 10 * USDC)
    usdc_first = int(chain.tokens["USDC"].address, 16) < int(chain.tokens["FAR"].address, 16)
    tick = chain.node.call(pool, "slot0()(uint160,int24,uint16,uint16,uint16,uint8,bool)")[1] // 60 * 60
    lower, upper = (tick + 6000, tick + 12_000) if usdc_first else (tick - 12_000, tick - 6000)
    token0, token1 = sorted((chain.tokens[each].address for each in ("USDC", "FAR")), key=lambda at: int(at, 16))
    raws = (100_000 * USDC, 0) if usdc_first else (0, 100_000 * USDC)
    chain.do(
        chain.contracts["NonfungiblePositionManager"],
        "mint((address,address,uint24,int24,int24,uint256,uint256,uint256,uint256,address,uint256))",
        (token0, token1, 3000, lower, upper, *raws, 0, 0, chain.me, 2**256 - 1),
    )
    chain.node.mine()
    assert "could pay enough" in reason(chain, "THIN")
    assert "could pay enough" in reason(chain, "FAR")


def bid(chain: PoolChain, symbol: str, raw: int, tick: int) -> None:
    """A pool with WETH alone, which it bids for the token at a price of some 1.0001^`tick` and below."""
    at, quote = chain.tokens[symbol].address, chain.tokens["WETH"].address
    first = int(at, 16) < int(quote, 16)
    tokens = (at, quote) if first else (quote, at)
    end = tick // 200 * 200 if first else -(tick // 200) * 200
    root, ends = (sqrt_price(end) - 1, (end - 2000, end)) if first else (sqrt_price(end), (end, end + 2000))
    manager, raws = chain.contracts["NonfungiblePositionManager"], (10**12, raw) if first else (raw, 10**12)
    create = "createAndInitializePoolIfNecessary(address,address,uint24,uint160)"
    chain.do(manager, create, *tokens, 10_000, root)
    chain.do(manager, MINT_POSITION, (*tokens, 10_000, *ends, *raws, 0, 0, chain.me, FOREVER))
    pool = chain.pool_at(symbol, "WETH", 10_000)
    assert chain.node.call(pool, "liquidity()(uint128)") > 0, "it is what the pool trades with"
    assert chain.node.call(quote, "balanceOf(address)(uint256)", pool) > raw * 99 // 100


@pytest.mark.node
def test_a_bid_far_below_the_price_in_a_pool_without_the_token_is_no_price_however_much_it_could_pay(
    chain: PoolChain,
) -> None:
    """A bid of a thousandth costs its bidder nothing, and without an offer no purchase can correct it."""
    names = [f"T{number}" for number in range(8)]
    for name in names:
        chain.token(name)
    weth = int(chain.tokens["WETH"].address, 16)
    first, second = (
        next(name for name in names if (int(chain.tokens[name].address, 16) < weth) is is_first)
        for is_first in (True, False)
    )
    for name in (first, second):
        chain.pair(name, 10**6 * WAD, "WETH", 100 * WAD)
        bid(chain, name, 500 * WAD, -161_200)  # 10^-7, and not 10^-4
    chain.node.mine()
    for name in (first, second):
        _, quote, price = one_part(chain.quoted(source(chain), name))
        assert (quote, price) == (chain.asset("WETH"), Fraction(1, 10_000))


@pytest.mark.node
def test_a_pool_of_which_no_trade_was_ever_made_and_an_empty_one_give_no_price(chain: PoolChain) -> None:
    chain.token("PEPE")
    pepe, weth = (chain.tokens[each].address for each in ("PEPE", "WETH"))
    chain.do(chain.contracts["UniswapV2Factory"], "createPair(address,address)", pepe, weth)
    chain.do(chain.contracts["UniswapV3Factory"], "createPool(address,address,uint24)", pepe, weth, 500)
    chain.node.mine()
    assert chain.quoted(source(chain), "PEPE").relative == ()
    assert chain.quoted(source(chain), "PEPE").refused == ()


@pytest.mark.node
def test_before_the_factory_lies_on_the_chain_no_token_has_a_pool(chain: PoolChain) -> None:
    chain.token("PEPE")
    assert chain.quoted(source(chain), "PEPE", "USDC", height=1).relative == ()


@pytest.mark.node
def test_a_token_is_priced_over_two_pools_at_the_same_block_and_never_over_three(chain: PoolChain) -> None:
    for symbol in ("PEPE", "CATS", "DOGS"):
        chain.token(symbol)
    chain.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)  # 0.0001 WETH
    chain.pair("CATS", 10**6 * WAD, "PEPE", 3 * 10**6 * WAD)  # 3 PEPE
    chain.pair("DOGS", 10**6 * WAD, "CATS", 10**6 * WAD)
    chain.node.mine()
    trusting = build_pools(section(chain, {"WETH": "5", "PEPE": "1000", "CATS": "100000"}), "here")
    eth = build_fixed({str(chain.asset("WETH")): "2000"}, "fixed")
    assets = [chain.asset(symbol) for symbol in ("CATS", "DOGS")]
    quotes: Quotes = chain.run_plan(lambda block: query_sources([eth, trusting], assets, block))
    (price,) = quotes.prices
    assert (price.asset, price.usd, price.depth_usd) == (assets[0], Decimal("0.6"), Decimal(200_000))
    assert "more than 2 markets" in next(each.reason for each in quotes.refused if each.asset == assets[1])
    assert chain.requests <= 6


PEPE, WETH = (f"{CHAIN}/erc20:0x{byte * 20}" for byte in ("0a", "0b"))
PAIR, FACTORY = "0x" + "0c" * 20, "0x" + "fa" * 20
BLOCK = Block(100, "0xaa", "0xbb", 1_760_000_000_500_000)
BY_READ: dict[Any, Any] = {
    "decimals()(uint8)": 18,
    "getPair(address,address)(address)": PAIR,
    "getReserves()(uint112,uint112)": (10**24, 10**20),
    "before": (10**24, 10**20),
}


def of_answers(changed: dict[str, Any]) -> Quotes:
    """Return the quotes for a token with one pair by `BY_READ`, with some answers changed."""
    venue = {"family": "uniswap_v2", "factory": FACTORY}
    answers = BY_READ | changed

    def answer(read: Any) -> Any:
        return answers["before"] if isinstance(read, AtParent) else answers[read.signature]

    return run_offline(
        build_pools({"quotes": {WETH: "5"}, "venues": [venue]}, "x").prices([asset(PEPE)], BLOCK), answer
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"getPair(address,address)(address)": Unknown("out of gas")}, "its pools could not be read: out of gas"),
        ({"getReserves()(uint112,uint112)": Unknown("out of gas")}, "its pools could not be read: out of gas"),
        ({"before": Unknown("the state is gone", "absent")}, "none of its 1 pools could pay enough"),
        ({"decimals()(uint8)": 255}, "does not say how many decimals"),
        ({"decimals()(uint8)": Reverted()}, "does not say how many decimals"),
        ({"before": (10**24, 10**19 * 9)}, "moved by 12 % within the block"),
    ],
)
def test_what_cannot_be_read_of_pools_leaves_the_token_without_a_price_and_says_why(
    changed: dict[str, Any], reason: str
) -> None:
    quotes = of_answers(changed)
    assert quotes.relative == ()
    assert reason in quotes.refused[0].reason
    assert one_part(of_answers({}))[2] == Fraction(1, 10**4)


def test_of_many_tokens_nothing_is_asked_of_venues_that_are_not_on_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainfolio.adapters.evm.prices.pools.MAX_TOKENS_FOR_ALL_VENUES", 2)
    absent_factory = "0x" + "fb" * 20
    venues = [
        {"family": "uniswap_v2", "factory": FACTORY},
        {"family": "uniswap_v3", "factory": absent_factory, "fees": [500, 3000]},
    ]
    source, reads = build_pools({"quotes": {WETH: "5"}, "venues": venues}, "x"), list[Any]()

    def answer(read: Any) -> Any:
        reads.append(read)
        inner: Any = read.read if isinstance(read, AtParent) else read
        return Unknown("there is no contract", "absent") if inner.to == absent_factory else BY_READ[inner.signature]

    tokens = [asset(f"{CHAIN}/erc20:0x{k:040x}") for k in range(1, 4)]
    quotes = run_offline(source.prices(tokens, BLOCK), answer)
    assert [each.asset for each in quotes.relative] == tokens
    assert sum(getattr(each, "to", "") == absent_factory for each in reads) == 2  # one pair, both fees
    reads.clear()
    first_quotes = run_offline(source.prices(tokens[:2], BLOCK), answer)
    assert first_quotes.relative == quotes.relative[:2]
    assert sum(getattr(each, "to", "") == absent_factory for each in reads) == 4  # no round for so few


def test_a_venue_that_cannot_be_read_is_not_taken_for_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainfolio.adapters.evm.prices.pools.MAX_TOKENS_FOR_ALL_VENUES", 0)
    quotes = of_answers({"getPair(address,address)(address)": Unknown("out of gas")})
    assert "out of gas" in quotes.refused[0].reason


def test_tokens_beyond_the_bound_are_told_so_and_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainfolio.adapters.evm.prices.pools.MAX_LOOKUPS", 4)
    source = build_pools({"quotes": {WETH: "5"}, "venues": [{"family": "uniswap_v2", "factory": FACTORY}]}, "x")
    tokens = [asset(f"{CHAIN}/erc20:0x{k:040x}") for k in range(1, 4)]
    first = next(source.prices(tokens, BLOCK))
    assert len(first) == 2 + 1 + 2
    quotes = run_offline(
        source.prices(tokens, BLOCK), lambda read: 18 if "decimals" in read.signature else ZERO_ADDRESS
    )
    assert [(each.asset, each.reason) for each in quotes.refused] == [(tokens[2], TOO_MANY_TOKENS)]


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"quote": {}}, "unknown key `quote`"),
        ({"quotes": {WETH: 5}}, "what a pool has to have"),
        ({"quotes": {WETH: "0"}}, "what a pool has to have"),
        ({"quotes": {f"{CHAIN}/slip44:60": "5"}}, "ERC-20 tokens of one chain"),
        ({"quotes": {WETH: "5", WETH.replace("31337", "1"): "5"}}, "ERC-20 tokens of one chain"),
        ({"venues": [{"family": "uniswap"}]}, "a venue's family is 'uniswap'"),
        ({"venues": [{"family": "uniswap_v2"}]}, "needs `factory`"),
        ({"venues": [{"family": "uniswap_v2", "factory": "0xAB"}]}, "is not an address"),
        ({"venues": [{"family": "uniswap_v2", "factory": FACTORY, "fees": [1]}]}, "has no key `fees`"),
        ({"venues": [{"family": "uniswap_v3", "factory": FACTORY, "fees": []}]}, "not a list of different numbers"),
        ({"venues": [{"family": "uniswap_v3", "factory": FACTORY, "fees": [0]}]}, "not a whole number from 1"),
        ({"max_move_percent": 0}, "max_move_percent is 0"),
        ({"max_move_percent": 101}, "max_move_percent is 101"),
        *(({"max_move_percent": value}, f"max_move_percent is {value!r}") for value in (5.0, True, "5")),
    ],
)
def test_a_section_of_pools_that_is_wrong_is_a_settings_error(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as caught:
        build_pools(section, "here")
    assert reason in str(caught.value)


@pytest.mark.parametrize("percent", [1, 100])
def test_a_pool_may_move_by_1_to_100_percent(percent: int) -> None:
    assert build_pools({"max_move_percent": percent}, "here").max_move == 1 + Fraction(percent, 100)
