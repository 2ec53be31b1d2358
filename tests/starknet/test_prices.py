"""Requests to vendors for a Starknet wallet: coins by name, tokens by the one form of their contract."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal

import pytest
from aiohttp import web

from chainfolio.adapters.starknet.facts import load
from chainfolio.pricing import binance, coingecko, defillama, pyth
from chainfolio.pricing.rules import knows
from tests.pricing.vendor_server import NOW_S, priced, sending, vendor
from tests.starknet.recorded import ROOT

FACTS = load(ROOT / "configs" / "chains" / "starknet.toml")
VENDORS = tomllib.loads((ROOT / "configs" / "vendors.toml").read_text())
EKUBO = "0x075afe6402ad5a5c20dd25e10ec3b3986acaa647b77e4ae24b0cbc9a54a27a87"
STRK, TOKEN = FACTS.info.native.asset, FACTS.info.token_asset(EKUBO)


def names(vendor_name: str) -> dict[str, dict[str, str]]:
    """Return one vendor's names in the file."""
    return {
        part: {key: each[vendor_name] for key, each in VENDORS[part].items() if vendor_name in each}
        for part in ("chains", "coins")
    }


async def test_the_coin_is_asked_for_by_its_name_and_a_token_by_all_of_its_digits() -> None:
    def prices_of(request: web.Request) -> str:
        coins = {"coingecko:starknet": "0.5", f"starknet:{EKUBO}": "7"}
        quote = {"symbol": "X", "timestamp": NOW_S - 1, "confidence": 0.99}
        return json.dumps({"coins": {name: {**quote, "price": float(price)} for name, price in coins.items()}})

    async with vendor(prices_of) as server, sending() as http:
        source = defillama.SECTION.build({"base_url": server.url, **names("defillama")}, "starknet", "defillama")
        (quotes,) = await priced(http, source, [STRK, TOKEN])
    assert {each.asset: each.usd for each in quotes.prices} == {STRK: Decimal("0.5"), TOKEN: Decimal(7)}
    (request_made,) = server.requests
    assert set(request_made.path.split("/")[-1].split(",")) == {"coingecko:starknet", f"starknet:{EKUBO}"}


def test_other_vendors_know_the_coin_and_ether_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COINGECKO_DEMO_KEY", "k")
    for section, name in ((coingecko.SECTION, "coingecko"), (pyth.SECTION, "pyth"), (binance.SECTION, "binance")):
        facts = {"base_url": "http://localhost", **names(name), "usdt": VENDORS["binance"]["usdt"]}
        sections = (
            ("chains", "coins") if name == "coingecko" else ("coins", "usdt") if name == "binance" else ("coins",)
        )
        source = section.build({each: facts[each] for each in ("base_url", *sections)}, "starknet", name)
        assert knows(source, STRK) is True
    feeds = names("pyth")["coins"]
    ether = FACTS.info.token_asset("0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7")
    assert feeds[str(ether)] == feeds["eip155:1/slip44:60"] != feeds[str(STRK)]
