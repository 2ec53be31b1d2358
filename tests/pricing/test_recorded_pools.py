"""Prices from pools whose code has no package, compared with recorded answers of that code."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool
from chainfolio.adapters.evm.prices.pools import build_pools
from chainfolio.adapters.evm.prices.shares import build_shares
from chainfolio.adapters.evm.prices.venues import curve_ng, solidly, stable
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.price_sources import Quotes
from chainfolio.reads import AtParent
from tests.pricing.pool_chain import CHAIN, WAD, one_part
from tests.pricing.recorded_contracts import RecordedContracts

SWAP, SYNC, CREATED = "0xb3e27736", "0xcf2aa508", "0x2128d88d"
EXCHANGED = "0x8b3e96f2"
DECIMALS = "decimals()(uint8)"


def asset(address: str) -> Asset:
    return Asset(CHAIN, "erc20", address)


def quoted(recorded: RecordedContracts, moment: int, token: str, quote: str, venue: dict[str, Any]) -> Quotes:
    """Return the quotes for a token at a recorded moment; the moment before is the parent block."""
    section = {"quotes": {str(asset(quote)): "1000"}, "venues": [venue]}
    plan = build_pools(section, "here").prices([asset(token)], Block(recorded.blocks[moment], "0xaa", "0xbb", 10**15))
    return run_offline(plan, lambda read: recorded.answer(read, moment))


# --- Solidly ---------------------------------------------------------------------------------------------------------


def aerodrome() -> tuple[RecordedContracts, dict[str, Any]]:
    """Return the recording, whose factory names the pools of its events, and the venue's settings."""
    recorded = RecordedContracts("aerodrome")
    factory = recorded.addresses["pool factory"]
    pools_by_key = {
        (*("0x" + each.topics[side][26:] for side in (1, 2)), int(each.topics[3], 16)): f"0x{each.data[0]:040x}"
        for each in recorded.events(CREATED)
    }
    recorded.overrides[factory, solidly.GET_POOL] = lambda _, *pair: pools_by_key.get(pair, "0x" + "00" * 20)
    for token in ("WETH", "USDC", "DAI"):
        recorded.overrides[recorded.addresses[token], DECIMALS] = 18
    return recorded, {"family": "solidly", "name": "Aerodrome", "factory": factory}


@pytest.mark.parametrize(("token", "quote", "kind"), [("WETH", "USDC", "volatile"), ("DAI", "USDC", "stable")])
def test_a_solidly_pool_has_the_price_of_its_curve_at_recorded_reserves(token: str, quote: str, kind: str) -> None:
    recorded, venue = aerodrome()
    base, quote_token = recorded.addresses[token], recorded.addresses[quote]
    pool = next(at for name, at in recorded.addresses.items() if name.startswith(f"{kind} pool"))
    relative, part, price = one_part(quoted(recorded, 1, base, quote_token, venue))
    x, y = recorded.call(1, f"{kind} pool {'WETH/USDC' if kind == 'volatile' else 'USDC/DAI'}", solidly.RESERVES)[:2]
    assert (part, relative.detail, relative.confidence) == (
        asset(quote_token),
        f"Aerodrome {kind} pool {pool}",
        Decimal("0.7"),
    )
    if kind == "volatile":
        assert price == Fraction(y, x)
        assert relative.depth == (asset(quote_token), min(Fraction(y, WAD), Fraction(4000)))
    else:  # of the second in the first
        assert price == Fraction(x**3 + 3 * x * y * y, 3 * x * x * y + y**3)
        assert relative.depth == (asset(quote_token), Fraction(x, WAD))


@pytest.mark.parametrize("name", ["volatile pool WETH/USDC", "stable pool USDC/DAI"])
def test_what_each_recorded_trade_in_a_solidly_pool_paid_lies_between_the_prices_before_and_after_it(name: str) -> None:
    recorded, _ = aerodrome()
    venue = solidly.Solidly("Aerodrome", recorded.addresses["pool factory"])
    reserves = [tuple(each.data) for each in recorded.events(SYNC, name)]
    trades = list(recorded.events(SWAP, name))
    assert len(trades) == 6
    widest = Fraction(11, 10) if "volatile" in name else Fraction(10_001, 10_000)
    for before, after in pairwise(reserves[-len(trades) - 1 :]):
        sold = 0 if after[0] > before[0] else 1
        pair = Pair("0x1", "0x2") if sold == 0 else Pair("0x2", "0x1")
        pool = Pool(pair, name, ("0x3", "stable" in name))
        market = venue.market(pool, [after, before, *([18, 18] if "stable" in name else [])])
        assert isinstance(market, Market)
        assert market.parent
        trade_price = Fraction(before[1 - sold] - after[1 - sold], after[sold] - before[sold])
        assert market.current.price < trade_price < market.parent.price
        assert market.parent.price / market.current.price < widest


# --- Curve -----------------------------------------------------------------------------------------------------------


PLAIN, META = "plain pool USDC/DAI", "metapool FRAX/(USDC/DAI)"


def curve() -> tuple[RecordedContracts, dict[str, Any]]:
    """Return the recording, whose factory finds pools by their coins, and the venue's settings."""
    recorded = RecordedContracts("curve")
    factory = recorded.addresses["factory"]
    coins = {
        recorded.addresses[name]: set(recorded.call(0, "factory", curve_ng.COINS, recorded.addresses[name]))
        for name in (PLAIN, META)
    }

    def find(_: int, coin_a: str, coin_b: str, number: int) -> Any:
        pools = [at for at, pool_coins in coins.items() if {coin_a, coin_b} <= pool_coins]
        return pools[number] if number < len(pools) else Reverted()

    recorded.overrides[factory, curve_ng.FIND_POOL] = find
    for token, decimals in (("USDC", 6), ("DAI", 18), ("FRAX", 18), (PLAIN, 18)):
        recorded.overrides[recorded.addresses[token], DECIMALS] = decimals
    return recorded, {"family": "curve_ng", "name": "Curve", "factory": factory}


@pytest.mark.parametrize("name", [PLAIN, META])
@pytest.mark.parametrize("moment", [0, 1, 2])
def test_the_invariant_of_a_stable_pool_is_that_behind_the_virtual_price_its_code_answered(
    name: str, moment: int
) -> None:
    recorded, _ = curve()
    balances, rates = (recorded.call(moment, name, each) for each in (curve_ng.BALANCES, curve_ng.RATES))
    amp, supply, virtual = (
        recorded.call(moment, name, each)
        for each in (curve_ng.AMP, "totalSupply()(uint256)", "get_virtual_price()(uint256)")
    )
    constant = stable.invariant(stable.scale_balances(balances, rates), Fraction(amp))
    assert constant * WAD // supply == virtual


def trades(recorded: RecordedContracts) -> list[tuple[list[int], list[int], int]]:
    """The balances of the plain pool before and after each recorded trade, and which coin was sold."""
    balances = list(recorded.call(0, PLAIN, curve_ng.BALANCES))
    admin_fees = [recorded.call(1, PLAIN, "admin_balances(uint256)(uint256)", coin) for coin in (0, 1)]
    changes = []
    events = list(recorded.events(EXCHANGED, PLAIN))
    for event in events:
        sold, raw, bought, raw_bought = event.data
        before = list(balances)
        balances[sold] += raw
        balances[bought] -= raw_bought + admin_fees[bought] // sum(each.data[2] == bought for each in events)
        changes.append((before, list(balances), sold))
    recorded_balances = recorded.call(1, PLAIN, curve_ng.BALANCES)
    assert all(abs(computed - expected) <= 5 for computed, expected in zip(balances, recorded_balances, strict=True))
    return changes


def test_what_each_recorded_trade_in_a_stable_pool_paid_lies_between_the_prices_before_and_after_it() -> None:
    recorded, _ = curve()
    rates, fee = recorded.call(0, PLAIN, curve_ng.RATES), Fraction(recorded.call(0, PLAIN, "fee()(uint256)"), 10**10)
    balance_changes = trades(recorded)
    assert len(balance_changes) == 10
    for (before, after, sold), event in zip(balance_changes, recorded.events(EXCHANGED, PLAIN), strict=True):
        first, last = (stable.price(each, rates, Fraction(200), sold, 1 - sold) for each in (before, after))
        assert first
        assert last
        trade_price = Fraction(event.data[3], event.data[1])
        assert (
            last * (1 - 2 * fee) < trade_price < first
        )  # the fee is up to twice as high where the pool is out of balance
        assert first / last < Fraction(10_020, 10_000)


@pytest.mark.parametrize(
    ("token", "quote", "pool"), [("DAI", "USDC", PLAIN), ("USDC", "DAI", PLAIN), ("FRAX", PLAIN, META)]
)
def test_a_stable_pool_has_the_price_at_which_its_invariant_stays_what_it_is(token: str, quote: str, pool: str) -> None:
    recorded, venue = curve()
    base, quote_token = recorded.addresses[token], recorded.addresses[quote]
    relative, part, price = one_part(quoted(recorded, 1, base, quote_token, venue))
    assert (part, relative.detail) == (asset(quote_token), f"Curve pool {recorded.addresses[pool]}")
    balances, rates = (recorded.call(1, pool, each) for each in (curve_ng.BALANCES, curve_ng.RATES))
    sold = recorded.call(1, "factory", curve_ng.COINS, recorded.addresses[pool]).index(base)
    decimals = [recorded.overrides[each, DECIMALS] for each in (base, quote_token)]
    depth = min(recorded.call(at, pool, curve_ng.BALANCES)[1 - sold] for at in (0, 1))
    assert relative.depth == (part, Fraction(depth, 10 ** decimals[1]))
    scaled = stable.scale_balances(balances, rates)
    step = WAD  # one coin of thousands
    per_scaled = price * Fraction(rates[1 - sold], rates[sold]) * Fraction(10 ** decimals[1], 10 ** decimals[0])
    assert abs(sell(scaled, sold, step) / step / per_scaled - 1) < Fraction(1, 10_000)
    assert sell(scaled, sold, step) / step < per_scaled < -sell(scaled, sold, -step) / step


def sell(balances: Sequence[int], sold: int, raw: int) -> Fraction:
    """Return how much of the other coin leaves a pool of two if the invariant stays, by bisection."""
    constant, low, high = stable.invariant(balances, Fraction(200)), 0, 2 * sum(balances)
    while high - low > 1:
        middle = (low + high) // 2
        now = list(balances)
        now[sold] += raw
        now[1 - sold] = middle
        low, high = (low, middle) if stable.invariant(now, Fraction(200)) >= constant else (middle, high)
    return Fraction(balances[1 - sold] - high)


def test_a_metapool_is_no_market_of_the_coins_behind_its_base_pool() -> None:
    recorded, venue = curve()
    recorded.overrides[venue["factory"], curve_ng.FIND_POOL] = recorded.addresses[META]
    frax, dai = recorded.addresses["FRAX"], recorded.addresses["DAI"]
    assert quoted(recorded, 1, frax, dai, venue) == Quotes()


def test_a_stable_curve_without_coins_or_of_too_many_has_no_price() -> None:
    rates = (WAD, WAD)
    assert stable.price((0, WAD), rates, Fraction(200), 0, 1) is None
    assert stable.price((WAD, WAD), rates, Fraction(0), 0, 1) is None
    assert stable.price((WAD,) * 2, (WAD,) * 3, Fraction(200), 0, 1) is None
    assert stable.price((WAD,) * 9, (WAD,) * 9, Fraction(200), 0, 1) is None
    assert stable.price((1, 1), (1, 1), Fraction(200), 0, 1) is None
    assert stable.price((WAD, WAD), rates, Fraction(200), 0, 1) == 1


LEFT = "0x347ad828"
NATIVE = f"{CHAIN}/slip44:60"


def shared(recorded: RecordedContracts, moment: int, share: str, role: str) -> Quotes:
    """Return the quotes for a share at a recorded moment; the moment before is the parent block."""
    source = build_shares(
        {role: [recorded.addresses["factory" if role[0] == "c" else "pool factory"]], "native": NATIVE}, "x"
    )
    plan = source.prices([asset(share)], Block(recorded.blocks[moment], "0xaa", "0xbb", 10**15))
    return run_offline(plan, lambda read: recorded.answer(read, moment))


def test_a_share_of_a_curve_pool_is_worth_what_leaving_the_pool_paid_unless_it_was_moved_in_the_block() -> None:
    recorded, _ = curve()
    (refusal,) = shared(recorded, 1, recorded.addresses[PLAIN], "curve_factory").refused
    assert "moved by 7 % within the block: manipulated?" in refusal.reason
    (relative,) = shared(recorded, 2, recorded.addresses[PLAIN], "curve_factory").relative
    (event,) = recorded.events(LEFT, PLAIN)
    burnt, payments = recorded.call(1, PLAIN, "totalSupply()(uint256)") - event.data[2], event.data[4:6]
    assert burnt == 1500 * WAD
    for (part, amount), token, unit, raw in zip(relative.parts, ("USDC", "DAI"), (10**6, WAD), payments, strict=True):
        assert part == asset(recorded.addresses[token])
        assert abs(amount * burnt / WAD - Fraction(raw, unit)) <= Fraction(1, unit)


def test_a_pool_that_no_factory_made_is_no_share() -> None:
    recorded, _ = curve()
    recorded.overrides[recorded.addresses["factory"], curve_ng.COINS] = ()
    assert shared(recorded, 2, recorded.addresses[PLAIN], "curve_factory") == Quotes()
    recorded, _ = aerodrome()
    pool = recorded.addresses["stable pool USDC/DAI"]
    recorded.overrides[pool, DECIMALS] = 18
    assert shared(recorded, 1, pool, "solidly_factory").relative
    recorded.overrides[recorded.addresses["pool factory"], "isPool(address)(bool)"] = False
    assert shared(recorded, 1, pool, "solidly_factory") == Quotes()


@pytest.mark.parametrize("name", ["volatile pool WETH/USDC", "stable pool USDC/DAI"])
def test_a_share_of_a_solidly_pool_is_its_part_of_both_reserves(name: str) -> None:
    recorded, _ = aerodrome()
    pool = recorded.addresses[name]
    recorded.overrides[pool, DECIMALS] = 18
    (relative,) = shared(recorded, 1, pool, "solidly_factory").relative
    reserves, supply = recorded.call(1, name, solidly.RESERVES), recorded.call(1, name, "totalSupply()(uint256)")
    tokens = (recorded.call(1, name, f"token{side}()(address)") for side in (0, 1))
    assert relative.parts == tuple(
        (asset(token), Fraction(raw, supply)) for token, raw in zip(tokens, reserves[:2], strict=True)
    )
    assert relative.depth is None


# --- Slipstream ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [1, 2])
def test_a_slipstream_pool_has_the_price_of_its_recorded_slot0_and_pays_no_more_than_lies_in_it(moment: int) -> None:
    recorded = RecordedContracts("slipstream")
    pool, token0, token1 = (recorded.addresses[name] for name in ("pool", "token0", "token1"))
    for token in (token0, token1):
        recorded.overrides[token, DECIMALS] = 18
        recorded.overrides[token, "balanceOf(address)(uint256)"] = lambda at, who: recorded.balance(at, token1, who)
    recorded.overrides[pool, "observe(uint32[])(int56[],uint160[])"] = Reverted()
    venue = {"family": "slipstream", "factory": recorded.addresses["factory"], "spacings": [100]}
    quotes = quoted(recorded, moment, token0, token1, venue)
    root = recorded.call(moment, "pool", "slot0()(uint160,int24,uint16,uint16,uint16,bool)")[0]
    relative, part, price = one_part(quotes)
    assert (part, price) == (asset(token1), Fraction(root**2, 2**192))
    assert relative.detail == f"slipstream pool {pool} (spacing 100)"
    balances = [Fraction(recorded.balance(at, token1, pool), WAD) for at in (moment, moment - 1)]
    assert relative.depth
    assert 0 < relative.depth[1] <= min(balances)


# --- guards ----------------------------------------------------------------------------------------------------------


TOKEN, QUOTE, POOL, FACTORY = ("0x" + digits * 20 for digits in ("0a", "0b", "0c", "fa"))
GOOD = 10**24, 10**24
SOLIDLY = {"family": "solidly", "factory": FACTORY}
CURVE = {"family": "curve_ng", "factory": FACTORY}
COMMON = {DECIMALS: 18, curve_ng.COINS: (TOKEN, QUOTE), curve_ng.RATES: (WAD, WAD), curve_ng.AMP: 200}
MOVED = {"volatile": (4 * 10**24, 10**24 // 4), "stable": (3 * 10**24, 10**23), "curve": (195 * 10**22, 5 * 10**22)}


def of_states(kind: str, now: Any, before: Any, **changed: Any) -> Quotes:
    """Return the quotes for a token by the reserves of its only pool at the block and at its parent."""
    number = kind == "stable"

    def answer(read: Any) -> Any:
        parent = isinstance(read, AtParent)
        call = read.read if parent else read
        if call.signature in (solidly.RESERVES, curve_ng.BALANCES):
            return before if parent else now
        if call.signature == solidly.GET_POOL:
            return POOL if call.args[2] == number else "0x" + "00" * 20
        if call.signature == curve_ng.FIND_POOL:
            return POOL if call.args[2] == 0 else Reverted()
        return {**COMMON, **changed}[call.signature]

    section = {"quotes": {str(asset(QUOTE)): "1000"}, "venues": [CURVE if kind == "curve" else SOLIDLY]}
    return run_offline(build_pools(section, "x").prices([asset(TOKEN)], Block(100, "0xaa", "0xbb", 10**15)), answer)


@pytest.mark.parametrize("kind", ["volatile", "stable", "curve"])
def test_a_pool_that_was_moved_filled_or_drained_in_the_block_gives_no_price_whatever_its_curve(kind: str) -> None:
    assert one_part(of_states(kind, GOOD, GOOD))[2] == 1
    (refusal,) = of_states(kind, MOVED[kind], GOOD).refused
    assert "within the block: manipulated?" in refusal.reason
    for now, before in ((GOOD, (10**20, 10**20)), ((10**20, 10**20), GOOD), (GOOD, Unknown("none yet", "absent"))):
        (refusal,) = of_states(kind, now, before).refused
        assert "none of its 1 pools could pay enough" in refusal.reason
    relative, _, _ = one_part(of_states(kind, (2 * 10**24, 2 * 10**24), GOOD))
    assert relative.depth == (asset(QUOTE), Fraction(10**6)), "what came in this block is no depth"
    assert of_states(kind, (0, 10**24), GOOD) == Quotes()


@pytest.mark.parametrize("kind", ["volatile", "stable", "curve"])
def test_a_pool_of_two_worthless_tokens_is_known_to_nobody_whatever_its_curve(kind: str) -> None:
    section = {"quotes": {str(asset("0x" + "0d" * 20)): "1000"}, "venues": [CURVE if kind == "curve" else SOLIDLY]}
    reads: list[Any] = []

    def answer(read: Any) -> Any:
        reads.append(read)
        return 18 if read.signature == DECIMALS else "0x" + "00" * 20

    assert (
        run_offline(build_pools(section, "x").prices([asset(TOKEN)], Block(9, "0xa", "0xb", 10**15)), answer)
        == Quotes()
    )
    assert all(QUOTE not in getattr(read, "args", ()) for read in reads)


@pytest.mark.parametrize(
    "changed",
    [{curve_ng.COINS: (QUOTE,)}, {curve_ng.RATES: (WAD,)}, {curve_ng.RATES: Reverted()}, {curve_ng.AMP: Reverted()}],
)
def test_a_stable_pool_that_does_not_say_what_its_curve_follows_from_has_no_price(changed: dict[str, Any]) -> None:
    assert of_states("curve", GOOD, GOOD, **changed).relative == ()
