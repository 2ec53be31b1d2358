"""What a currency is worth: as the operator fixed it, as the wallets hold it, as a chain prices it; never guessed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from chainfolio.contracts import CRYPTO, FIAT, Holding, Quoted
from chainfolio.errors import BadSettings, Unavailable, Unserved
from chainfolio.settings import Settings, check
from engine.rates import rate
from portfolio.valuation import Valuation, value
from tests.portfolio.examples import ALICE, BLOCK, BOB, native, price, snapshot


class Chain:
    """A chain with ether, priced or not."""

    def __init__(self, answer: Quoted | Exception) -> None:
        self.answer = answer
        self.info = type("Info", (), {"native": native()})()


async def asked(
    currency: str, *chains: Chain, held: Valuation | None = None, rates: dict[str, str] | None = None
) -> Decimal:
    async def quote(chain: Any) -> Quoted:
        if isinstance(chain.answer, Exception):
            raise chain.answer
        found: Quoted = chain.answer
        return found

    return await rate(Settings(rates=rates or {}), held or value([]), currency, chains, quote)  # type: ignore[arg-type]


def quoted(usd: str | None) -> Quoted:
    prices = {} if usd is None else {native().asset: price(native(), usd)}
    return Quoted(BLOCK, {native().asset: native()}, prices)


async def test_the_operators_word_comes_first() -> None:
    held = value([snapshot(Holding(ALICE, native(), 10**18), prices=(price(native(), "2000"),))])
    assert await asked("ETH", Chain(quoted("1900")), held=held, rates={"ETH": "2100.5"}) == Decimal("2100.5")
    assert await asked("EUR", rates={"EUR": "0.92"}) == Decimal("0.92")


async def test_a_coin_that_is_held_counts_as_it_is_held() -> None:
    """Two wallets, read at other prices: the mean by amount, not by wallet."""
    first = snapshot(Holding(ALICE, native(), 10**18), prices=(price(native(), "2000"),))
    second = snapshot(Holding(BOB, native(), 3 * 10**18), prices=(price(native(), "2004"),), accounts=(BOB,))
    held = Valuation(value([first]).holdings + value([second]).holdings)
    assert await asked("ETH", Chain(quoted("1")), held=held) == Decimal("2003")


async def test_a_coin_that_is_not_held_counts_as_a_chain_prices_it() -> None:
    assert await asked("ETH", Chain(Unavailable("node", "down")), Chain(quoted("1999.5"))) == Decimal("1999.5")
    with pytest.raises(Unavailable):
        await asked("ETH", Chain(Unavailable("node", "down")))


@pytest.mark.parametrize("currency", [*FIAT[1:], *CRYPTO])
async def test_what_nobody_knows_is_said_with_its_cure(currency: str) -> None:
    with pytest.raises(Unserved, match=rf"{currency} = .* under"):
        await asked(currency, Chain(quoted(None)))


@pytest.mark.parametrize(
    "rates", [{"EUR": "0"}, {"EUR": "0.00"}, {"EUR": "-1"}, {"EUR": "1e3"}, {"GBP": "1"}, {"USD": "1"}]
)
def test_a_rate_that_is_none_stops_the_start(rates: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="rates"):
        check(Settings(rates=rates))
