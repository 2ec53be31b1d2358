"""Sources of currency rates in order: settings, reference rates, holdings, chains; or the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import CRYPTO, CURRENCIES, FIAT, Holding, Price, Token
from chainfolio.engine.prices.conversion import Conversion
from chainfolio.engine.prices.rates import Rate, Rates
from chainfolio.errors import BadSettings, NotSupported, Unavailable
from chainfolio.portfolio.valuation import Valuation, valuate
from chainfolio.pricing.ecb import FiatRate
from chainfolio.settings import Settings
from chainfolio.settings_checks import check
from tests.portfolio.examples import ALICE, BOB, native, price, snapshot

SOL = asset("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501")
NOW_US = 1_760_000_000_000_000


class Chain:
    """A chain with ether that prices some assets, or fails."""

    def __init__(self, key: str, answer: Mapping[Asset, Price] | Exception, symbol: str = "ETH") -> None:
        self.key, self.answer = key, answer
        self.info = type("Info", (), {"native": type("Coin", (), {"asset": native().asset, "symbol": symbol})()})()


async def no_prices(chain: Any, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
    if isinstance(chain.answer, Exception):
        raise chain.answer
    return {each: chain.answer[each] for each in assets if each in chain.answer}


async def fiat(currency: str, moment_us: int) -> FiatRate | str:
    assert moment_us == NOW_US
    return FiatRate(Decimal("0.9"), "the bank") if currency != "CHF" else "the bank is closed"


async def rate_of(
    currency: str, *chains: Chain, valuation: Valuation | None = None, fixed: dict[str, str] | None = None
) -> Rate:
    rates = Rates(fixed or {}, fiat, {"SOL": [SOL]}, chains, no_prices)  # type: ignore[arg-type]
    return await rates.of(currency, valuation or valuate([]), NOW_US)


def quoted(usd: str, of: Asset | None = None) -> dict[Asset, Price]:
    asset = of or native().asset
    return {asset: Price(asset, Decimal(usd), "feed", 0, Decimal(1))}


async def test_the_operators_word_comes_first() -> None:
    valuation = valuate([snapshot(Holding(ALICE, native(), 10**18), prices=(price(native(), "2000"),))])
    rate = await rate_of("ETH", Chain("a", quoted("1900")), valuation=valuation, fixed={"ETH": "2100.5"})
    assert rate == Rate(Decimal("2100.5"), "the operator's settings")
    assert (await rate_of("EUR", fixed={"EUR": "0.92"})).value == Decimal("0.92")


async def test_fiat_is_what_the_bank_said_of_the_moment() -> None:
    assert await rate_of("EUR") == Rate(Decimal("0.9"), "the bank")


async def test_a_coin_that_is_held_counts_as_it_is_held() -> None:
    """Two wallets, read at other prices: the mean by amount, not by wallet."""
    first = snapshot(Holding(ALICE, native(), 10**18), prices=(price(native(), "2000"),))
    second = snapshot(Holding(BOB, native(), 3 * 10**18), prices=(price(native(), "2004"),), accounts=(BOB,))
    valuation = Valuation(valuate([first]).holdings + valuate([second]).holdings)
    assert (await rate_of("ETH", Chain("a", quoted("1")), valuation=valuation)).value == Decimal("2003")


async def test_a_token_that_anybody_named_like_a_coin_is_not_that_coin() -> None:
    """Very much of a worthless SOL on a chain of ether, and a little of another ETH."""
    fakes = [Token(asset(f"eip155:1/erc20:0x{number:040x}"), name, name, 18) for number, name in enumerate(CRYPTO, 1)]
    holdings = [Holding(ALICE, native(), 10**18), *(Holding(ALICE, fake, 10**40) for fake in fakes)]
    cheap = (price(native(), "2000"), *(price(fake, "0.000001") for fake in fakes))
    valuation = valuate([snapshot(*holdings, prices=cheap)])
    chain = Chain("a", {**quoted("1900"), **quoted("150", SOL)})
    assert (await rate_of("SOL", chain, valuation=valuation)).value == 150
    assert await rate_of("ETH", chain, valuation=valuation) == Rate(Decimal(2000), "the price of what is held")


async def test_a_coin_that_is_not_held_counts_as_a_chain_prices_it() -> None:
    down = Chain("a", Unavailable("node", "down"))
    assert await rate_of("ETH", down, Chain("b", quoted("1999.5"))) == Rate(
        Decimal("1999.5"), f"feed price of {native().asset}"
    )
    with pytest.raises(Unavailable):
        await rate_of("ETH", down)


class PastChain(Chain):
    """A chain of ten blocks, a second apart, that has the same prices at all of them, or fails."""

    capabilities = frozenset[object]()

    async def heads(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(latest=past_block(9))

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        return [past_block(height) for height in heights]

    async def prices(self, assets_by_block: Mapping[Block, Sequence[Asset]]) -> Any:
        assert not isinstance(self.answer, Exception)
        return {block.height: dict(self.answer) for block in assets_by_block}, []


def past_block(height: int) -> Block:
    return Block(height, f"0x{height}", "", NOW_US + height * 1_000_000)


async def past_rate(currency: str, *chains: PastChain) -> Decimal:
    """Return the rate of a coin at block 5 of these chains."""
    rates = Rates({}, fiat, {"SOL": [SOL]}, chains, no_prices)  # type: ignore[arg-type]

    def snapshotter(chain: Any) -> Any:
        return SimpleNamespace(past=chain)

    conversion = await Conversion.of(rates, snapshotter, currency, [past_block(5).time_us])
    assert conversion.rates is not None
    return conversion.rates[past_block(5).time_us]


@pytest.mark.parametrize("currency", ["ETH", "SOL"])
async def test_a_past_coin_is_priced_by_the_next_chain_if_one_is_down(currency: str) -> None:
    down, up = PastChain("a", Unavailable("a", "down")), PastChain("b", {**quoted("1999"), **quoted("1999", SOL)})
    assert await past_rate(currency, down, up) == 1999
    with pytest.raises(Unavailable, match="a: down"):
        await past_rate(currency, down, PastChain("c", Unavailable("c", "gone")))
    with pytest.raises(NotSupported, match="No configured chain or source"):
        await past_rate(currency, down, PastChain("b", {}))
    with pytest.raises(NotSupported, match="No configured chain or source"):
        await past_rate(currency)


async def test_a_coin_of_a_chain_that_is_not_configured_is_priced_by_another() -> None:
    chains = Chain("a", {}), Chain("b", Unavailable("node", "down")), Chain("c", quoted("150", SOL))
    assert (await rate_of("SOL", *chains)).value == 150


async def test_the_chain_whose_coin_it_is_is_believed_before_others() -> None:
    chains = Chain("a", quoted("140", SOL), "ETH"), Chain("b", quoted("151"), "SOL")
    assert (await rate_of("SOL", *chains)).value == 151


@pytest.mark.parametrize("currency", ["CHF", *CRYPTO])
async def test_what_nobody_knows_is_said_with_its_cure(currency: str) -> None:
    with pytest.raises(NotSupported, match=rf"{currency} = .* under") as raised:
        await rate_of(currency, Chain("a", {}))
    assert ("the bank is closed" in raised.value.message) == (currency in FIAT)


async def test_every_currency_has_a_rate_where_one_chain_prices_the_coins() -> None:
    coins = {name: [asset(f"eip155:1/erc20:0x{number:040x}")] for number, name in enumerate(CRYPTO, 1)}
    chain = Chain("a", {coin: Price(coin, Decimal(7), "feed", 0, Decimal(1)) for (coin,) in coins.values()}, "POL")

    async def bank(currency: str, moment_us: int) -> FiatRate | str:
        return FiatRate(Decimal("0.5"), "the bank")

    rates = Rates({}, bank, coins, [chain], no_prices)  # type: ignore[list-item]
    values = {name: (await rates.of(name, valuate([]), NOW_US)).value for name in CURRENCIES if name != "USD"}
    assert values == {name: Decimal("0.5") for name in FIAT[1:]} | dict.fromkeys(CRYPTO, Decimal(7))


@pytest.mark.parametrize(
    "rates", [{"EUR": "0"}, {"EUR": "0.00"}, {"EUR": "-1"}, {"EUR": "1e3"}, {"GPB": "1"}, {"USD": "1"}]
)
def test_a_rate_that_is_none_stops_the_start(rates: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="rates"):
        check(Settings(rates=rates))
