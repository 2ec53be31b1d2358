"""Which currencies are served: those of the service, and those that the settings have a rate of."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.contracts import CRYPTO, CURRENCIES, FIAT
from chainfolio.currencies import ISO_4217, checked, is_coin, served
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.settings_file import load


def test_the_settings_add_currencies_behind_those_of_the_service() -> None:
    assert served({}) == CURRENCIES
    assert served({"JPY": "151", "EUR": "0.9", "GBP": "0.79"}) == (*CURRENCIES, "GBP", "JPY")
    assert checked("JPY", {"JPY": "151"}) == "JPY"
    assert [name for name in served({"JPY": "151"}) if is_coin(name)] == list(CRYPTO)
    assert set(FIAT) < ISO_4217


@pytest.mark.parametrize("currency", ["usd", "", "USD ", "CBBTC", "GBP", "gbp"])
def test_a_currency_that_is_not_served_is_refused_with_those_that_are(currency: str) -> None:
    with pytest.raises(BadRequest, match=r"must be one of \[USD, .*BNB, JPY\]") as caught:
        checked(currency, {"JPY": "151"})
    assert ("under [rates]" in caught.value.remedy) == (currency == "GBP")


@pytest.mark.parametrize("currency", ["GBP", "JPY", "CNY", "XAU", "EUR", "ETH", "cbBTC"])
def test_any_code_of_iso_4217_may_have_a_rate(tmp_path: Path, currency: str) -> None:
    file = tmp_path / "chainfolio.toml"
    file.write_text(f'[rates]\n{currency} = "0.123456789012345678"')
    assert load(file, {}).rates == {currency: "0.123456789012345678"}


@pytest.mark.parametrize("currency", ["USD", "gbp", "GPB", "POUND", "BTC"])
def test_what_is_no_currency_has_no_rate(tmp_path: Path, currency: str) -> None:
    file = tmp_path / "chainfolio.toml"
    file.write_text(f'[rates]\n{currency} = "1"')
    with pytest.raises(BadSettings, match=f"rates.{currency}: no such currency .*ISO 4217"):
        load(file, {})
