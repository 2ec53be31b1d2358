"""Net asset values of a real wallet in all eleven currencies, and in one of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import account
from chainfolio.contracts import CRYPTO, CURRENCIES, FIAT
from chainfolio.engine.history.day_blocks import midnight
from chainfolio.engine.service import Engine
from chainfolio.errors import NotSupported
from chainfolio.indexer.wiring import System
from chainfolio.pricing.ecb import last_day
from chainfolio.settings import Settings
from chainfolio.tables import FIAT_RATES
from tests.chains.evm import EvmSubject, evm
from tests.engine.test_fiat import answered
from tests.pricing.vendor_server import vendor

pytestmark = pytest.mark.node
USD = {name: Decimal(usd) for name, usd in zip(CRYPTO, ("2000", "150", "90000", "1.1", "600"), strict=True)}
GBP = "0.790123456789012345"  # hand-set, with every digit
PER_EURO = {"USD": "1.1", "CAD": "1.5", "CHF": "0.95", "SGD": "1.45"}
COINS = f"""[fixed]
"eip155:31337/slip44:60" = "2000"
"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501" = "150"
"eip155:56/slip44:714" = "600"
"eip155:8453/erc20:0xcbb7c0000ab88b473b1f5afd9ef808440eed33bf" = "90000"
"eip155:1/erc20:0x1abaea1f7c830bd89acc67ec4af516284b1bc33c" = "{USD["EURC"]}"
"""


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(0) as chain:
        yield chain


def system(subject: EvmSubject, folder: Path, sections: str, rates: dict[str, str] | None = None) -> System:
    (folder / "prices.toml").write_text(sections)
    return System(
        Settings(
            data=str(folder / "data"),
            chains={"local": EvmSettings(rpc=[subject.node.url])},
            prices_file=str(folder / "prices.toml"),
            rates=rates or {},
        )
    )


async def test_one_chain_and_the_bank_give_every_currency_and_hand_set_rates_come_first(
    subject: EvmSubject, tmp_path: Path
) -> None:
    alice = account(subject.deployment.accounts["alice"])
    today = datetime.now(UTC).date()  # the engine's clock is the machine's
    published = {today - timedelta(days=back): PER_EURO for back in range(30)}
    weekdays = {day: rates for day, rates in published.items() if day.weekday() < 5}
    async with vendor(lambda request: answered(request, weekdays)) as bank:
        running = system(subject, tmp_path, f'{COINS}[ecb]\nbase_url = "{bank.url}"\n', {"CHF": "0.8", "GBP": GBP})
        try:
            engine = Engine(running)
            served = (*CURRENCIES, "GBP")
            navs = {name: await engine.nav([alice], name, wait=False) for name in served}
            stored_rates = running.lake.scan(FIAT_RATES).filter(
                day=midnight(last_day(running.environment.clock.now_us()))
            )
            assert dict(stored_rates.select("currency", "per_euro").collect().iter_rows()) in (
                PER_EURO,
                {},
            )  # no weekend
        finally:
            await running.close()
    usd = navs["USD"].nav
    assert usd > 0
    assert navs["USD"].conversion_source == ""
    for name in CRYPTO:
        assert navs[name].conversion_price == USD[name]
        assert abs(Fraction(navs[name].nav) - Fraction(usd) / Fraction(USD[name])) <= Fraction(1, 10**18)
    expected = {name: Fraction(PER_EURO.get(name, "1")) / Fraction(PER_EURO["USD"]) for name in FIAT[1:]}
    expected |= {"AED": Fraction("3.6725"), "CHF": Fraction("0.8"), "GBP": Fraction(GBP)}
    for name, per_usd in expected.items():
        assert abs(Fraction(navs[name].conversion_price) - per_usd) <= Fraction(1, 10**18)
        assert Fraction(navs[name].nav) == Fraction(usd) * Fraction(navs[name].conversion_price)
    assert navs["CHF"].conversion_source == "the operator's settings"
    assert navs["EUR"].conversion_source.startswith("European Central Bank, reference rate of ")
    assert len(bank.requests) == 1


async def test_without_the_bank_a_currency_is_refused_with_the_line_that_turns_it_on(
    subject: EvmSubject, tmp_path: Path
) -> None:
    running = system(subject, tmp_path, COINS)
    try:
        with pytest.raises(NotSupported, match=r"EUR = .* or configures \[ecb\] in the file of prices"):
            await Engine(running).nav([account(subject.deployment.accounts["alice"])], "EUR", wait=False)
    finally:
        await running.close()
