"""Rates of a tax year: each hour of the history has the rate of the day it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from chainfolio.assets import Asset
from chainfolio.contracts import Price
from chainfolio.engine.gains import tax_year
from chainfolio.engine.prices.rates import Rates
from chainfolio.errors import NotSupported
from chainfolio.pricing import ecb
from chainfolio.pricing.ecb import FiatRate

DAYS = {datetime(2024, 3, day, tzinfo=UTC).date(): {"USD": Decimal(rate)} for day, rate in ((4, "1.25"), (5, "1.6"))}


async def of_ecb(currency: str, moment_us: int) -> FiatRate | str:
    return ecb.rate_of(currency, moment_us, DAYS) or "no rates of that day"


async def no_prices(*_: object) -> dict[Asset, Price]:
    return {}


def at(day: int, hour: int) -> int:
    return int(datetime(2024, 3, day, hour, 30, tzinfo=UTC).timestamp())


async def test_each_hour_has_the_rate_that_was_published_last() -> None:
    known_rates: Any = SimpleNamespace(conversions=Rates({}, of_ecb, {}, (), no_prices))
    times = [at(4, 15), at(5, 14), at(5, 15), at(6, 3)]
    rates = await tax_year.hourly_rates(known_rates, "EUR", times)
    assert [rates[time_s // 3600] for time_s in times] == [
        Decimal("0.8"),
        Decimal("0.8"),
        Decimal("0.625"),
        Decimal("0.625"),
    ]
    assert set((await tax_year.hourly_rates(known_rates, "USD", times)).values()) == {Decimal(1)}
    with pytest.raises(NotSupported, match="No rate of EUR is known: no rates of that day"):
        await tax_year.hourly_rates(known_rates, "EUR", [at(1, 3)])
