"""The rates beside portfolios: shared, bounded in time, and never a reason for a portfolio to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from chainfolio.assets import Asset
from chainfolio.contracts import Price
from chainfolio.engine.prices import shown_rates
from chainfolio.engine.prices.rates import Rates
from chainfolio.engine.prices.shown_rates import MAX_AGE_S, ShownRates
from chainfolio.errors import Unavailable
from chainfolio.pricing.ecb import FiatRate
from tests.engine.test_rates import Chain, quoted
from tests.portfolio.examples import native

NOW_US = 1_700_000_000_000_000


@dataclass
class Clock:
    """A clock that is set by hand."""

    now_s: float = 0

    def now_us(self) -> int:
        return NOW_US

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


@dataclass
class Sources:
    """A bank, and chains that are asked for the prices of coins; each may fail or hang."""

    usd: str = "2000"
    is_bank_open: bool = True
    hang: bool = False
    fails: bool = False
    chains_read: list[str] = field(default_factory=list)

    async def fiat(self, currency: str, moment_us: int) -> FiatRate | str:
        if not self.is_bank_open:
            return "the bank is closed"
        return FiatRate(Decimal("0.9") if moment_us == NOW_US else Decimal("0.8"), "the bank")

    async def prices_of(self, chain: Any, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
        self.chains_read.append(chain.key)
        if self.hang and chain.key == "hung":
            await asyncio.Event().wait()
        if self.fails:
            raise Unavailable(chain.key, "it is away", retry_after_s=1)
        return quoted(self.usd)


def rates_from(sources: Sources, clock: Clock, chains: tuple[str, ...] = ("a",), **fixed: str) -> ShownRates:
    price_chains = [Chain(key, {}) for key in chains]
    rates = Rates(fixed, sources.fiat, {}, price_chains, sources.prices_of)  # type: ignore[arg-type]
    return ShownRates(rates, clock, 60, lambda error: None)


async def test_the_rates_are_those_of_every_currency_that_is_known() -> None:
    rates = await rates_from(Sources(), Clock(), CHF="0.8", GBP="0.79").current()
    fiat = dict.fromkeys(("EUR", "CAD", "AED", "SGD"), Decimal("0.9"))
    assert rates == {**fiat, "CHF": Decimal("0.8"), "GBP": Decimal("0.79"), "ETH": Decimal(2000)}


async def test_rates_are_shared_until_they_are_too_old_and_then_read_behind_an_answer() -> None:
    sources, clock = Sources(), Clock()
    rates = rates_from(sources, clock)
    for clock.now_s in (0, 30, 60):
        assert (await rates.current())["ETH"] == 2000
    assert sources.chains_read == ["a"]
    sources.usd, clock.now_s = "2100", 61
    assert (await rates.current())["ETH"] == 2000, "nobody waits for the next ones"
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
    assert (await rates.current())["ETH"] == 2100
    assert len(sources.chains_read) == 2
    sources.usd, clock.now_s = "2200", 61 + MAX_AGE_S
    assert (await rates.current())["ETH"] == 2200, "what is older than an hour is not shown"


async def test_a_source_that_fails_or_hangs_costs_its_own_currencies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(await rates_from(Sources(is_bank_open=False), Clock()).current()) == {"ETH"}
    assert "ETH" not in await rates_from(Sources(fails=True), Clock()).current()
    monkeypatch.setattr(shown_rates, "TIMEOUT_S", 0.01)
    sources = Sources(hang=True)
    rates = await rates_from(sources, Clock(), ("hung", "well")).current()
    assert (rates["ETH"], rates["EUR"]) == (Decimal(2000), Decimal("0.9"))
    assert sorted(sources.chains_read) == ["hung", "well"]


async def test_of_the_past_there_is_fiat_money_and_what_the_settings_fix() -> None:
    rates = await rates_from(Sources(), Clock(), ETH="3000").at(NOW_US - 1)
    assert rates == {**dict.fromkeys(("EUR", "CAD", "AED", "CHF", "SGD"), Decimal("0.8")), "ETH": Decimal(3000)}


async def test_assets_of_a_chain_that_are_a_coin_are_known_by_chain_and_contract() -> None:
    rates = Rates({}, Sources().fiat, {}, [Chain("a", {})], Sources().prices_of)  # type: ignore[list-item]
    assert rates.coins == {f"a:{native().asset.shown_contract}": "ETH"}
