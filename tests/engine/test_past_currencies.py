"""Past answers in all eleven currencies stay the same bytes after the rates of those days change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from chainfolio.assets import account
from chainfolio.currencies import served
from chainfolio.engine.history.day_blocks import days_from
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.metrics.report import PerformanceDocument
from chainfolio.settings import Settings
from tests.e2e.conftest import World, paid_daily
from tests.e2e.test_past import indexed
from tests.engine.test_fiat import answered
from tests.pricing.vendor_server import vendor

pytestmark = pytest.mark.node
DAYS = days_from(date(2024, 2, 28), date(2024, 3, 4))  # a weekend among them
COINS = """
[fixed]
"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501" = "{}"
"eip155:56/slip44:714" = "{}"
"eip155:8453/erc20:0xcbb7c0000ab88b473b1f5afd9ef808440eed33bf" = "{}"
"eip155:1/erc20:0x1abaea1f7c830bd89acc67ec4af516284b1bc33c" = "{}"
[ecb]
base_url = "{}"
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with paid_daily(DAYS) as paid_world:
        yield paid_world


@pytest.fixture
def settings(world: World, tmp_path: Path) -> Settings:
    """An index of everything; no rate is fixed by the operator."""
    return msgspec.structs.replace(indexed(world, tmp_path / "data"), rates={})


def published(chf: str) -> Mapping[date, Mapping[str, str]]:
    rates = {"USD": "1.08", "CAD": "1.47", "CHF": chf, "SGD": "1.45"}
    return {day: rates for day in days_from(date(2024, 2, 1), date(2024, 3, 31)) if day.weekday() < 5}


def write_prices(file: Path, coins: tuple[str, ...], url: str) -> None:
    """Write fixed prices of coins and the URL of the bank into the file of prices."""
    file.write_text(file.read_text().partition("\n[fixed]")[0] + COINS.format(*coins, url))


async def read_performances(
    settings: Settings, wallet: str, chf: str, coins: tuple[str, ...]
) -> dict[str, PerformanceDocument]:
    """Return the performance in each currency from a new process with this bank and these fixed prices."""
    async with vendor(lambda request: answered(request, published(chf))) as bank:
        write_prices(Path(settings.prices_file), coins, bank.url)
        system = System(settings)
        try:
            engine = Engine(system)
            names = served(settings.rates)
            return {name: await engine.performance([account(wallet)], DAYS, name) for name in names}
        finally:
            await system.close()


async def test_a_past_answer_is_the_same_bytes_in_every_currency_whatever_is_said_later(
    world: World, settings: Settings
) -> None:
    settings, carol = msgspec.structs.replace(settings, rates={"GBP": "0.79"}), world.wallets["carol"]
    first = await read_performances(settings, carol, "0.95", ("150", "600", "90000", "1.1"))
    repeated = await read_performances(settings, carol, "0.5", ("1", "1", "1", "1"))
    assert {name: msgspec.json.encode(each) for name, each in repeated.items()} == {
        name: msgspec.json.encode(each) for name, each in first.items()
    }
    usd = [Decimal(day.value) for day in first["USD"].days]
    assert len(usd) == len(DAYS)
    for name, rate in {
        "CHF": Fraction("0.95") / Fraction("1.08"),
        "AED": Fraction("3.6725"),
        "GBP": Fraction("0.79"),
    }.items():
        for day, value in zip(first[name].days, usd, strict=True):
            assert abs(Fraction(day.value) - Fraction(value) * rate) <= Fraction(value) / 10**17
    for day, value in zip(first["SOL"].days, usd, strict=True):
        assert abs(Fraction(day.value) - Fraction(value) / 150) <= Fraction(1, 10**17)
