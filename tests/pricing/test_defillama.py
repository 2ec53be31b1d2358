"""DefiLlama: how much one request asks, answers from after the moment, recorded answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest
from aiohttp import web

from chainfolio.assets import asset
from chainfolio.errors import BadSettings
from chainfolio.price_sources import PriceSource
from chainfolio.pricing.defillama import SECTION, CoinBatch
from chainfolio.pricing.vendors import VendorHost, VendorQuote
from tests.pricing.recorded import answers
from tests.pricing.vendor_server import BLOCK, NOW_S, priced, sending, vendor

ETHER = asset("eip155:1/slip44:60")


NAMES = {
    "chains": {"eip155:1": "ethereum", "eip155:56": "bsc"},
    "coins": {"eip155:1/slip44:60": "ethereum", "eip155:56/slip44:714": "binancecoin"},
}


def build(url: str) -> PriceSource:
    return SECTION.build({"base_url": url, **NAMES}, "ethereum", "defillama")


def coin(price: object, seen_s: int) -> dict[str, object]:
    return {"symbol": "X", "price": price, "timestamp": seen_s, "confidence": 0.99}


def moments(request: web.Request) -> dict[str, list[int]]:
    """Return the times in seconds that a request asks for, by coin."""
    if request.path == "/batchHistorical":
        times_by_coin: dict[str, list[int]] = json.loads(request.query["coins"])
        return times_by_coin
    *_, time_s, coins = request.path.split("/")
    return {name: [int(time_s)] for name in coins.split(",")}


def answered(request: web.Request, history: Mapping[str, Mapping[int, int]]) -> str:
    """Return DefiLlama's answer: for each coin the price nearest to each requested time.

    `history` has the prices of each coin by their times in seconds.
    """
    coins: dict[str, object] = {}
    for name, times in moments(request).items():
        of_coin = history.get(name, {})
        nearest = [min(of_coin, key=lambda at: abs(at - time_s)) for time_s in times] if of_coin else []
        if nearest and request.path == "/batchHistorical":
            coins[name] = {"symbol": "X", "prices": [coin(of_coin[at], at) for at in nearest]}
        elif nearest:
            coins[name] = coin(of_coin[nearest[0]], nearest[0])
    return json.dumps({"coins": coins})


async def test_a_native_coin_is_asked_for_by_its_name_and_a_token_by_its_contract() -> None:
    tokens = [asset(f"eip155:56/erc20:0x{'ab' * 20}"), asset("eip155:56/slip44:714")]
    async with vendor(lambda _: '{"coins":{}}') as server, sending() as http:
        await priced(http, build(server.url), tokens)
    (request,) = server.requests
    assert request.path == f"/prices/historical/{NOW_S}/bsc:0x{'ab' * 20},coingecko:binancecoin"


async def test_what_was_seen_after_the_moment_is_asked_for_before_it() -> None:
    """The vendor gives the nearest, and a price from after the block would look ahead."""
    history = {"coingecko:ethereum": {NOW_S - 900: 2990, NOW_S - 290: 2000, NOW_S + 10: 2010}}
    async with vendor(lambda request: answered(request, history)) as server, sending() as http:
        source = build(server.url)
        (quotes,) = await priced(http, source, [ETHER])
    (price,) = quotes.prices
    assert (price.usd, price.time_us) == (Decimal(2000), (NOW_S - 290) * 1_000_000)
    assert price.calls[0].read.label[1] == f"{server.url}/prices/historical/{NOW_S - 300}/coingecko:ethereum"
    assert len(server.requests) == 2


async def test_a_thousand_tokens_at_one_block_are_ten_requests() -> None:
    tokens = [asset(f"eip155:1/erc20:0x{number:040x}") for number in range(1000)]
    history = {f"ethereum:0x{number:040x}": {NOW_S - 60: number + 1} for number in range(1000)}
    async with vendor(lambda request: answered(request, history)) as server, sending() as http:
        source = build(server.url)
        (quotes,) = await priced(http, source, tokens)
    assert [price.usd for price in quotes.prices] == list(range(1, 1001))
    assert len(server.requests) == 10
    assert max(len(str(request.rel_url)) for request in server.requests) < 8000


async def test_many_blocks_are_asked_for_in_one_request_and_each_gets_its_own_price() -> None:
    tokens = [asset(f"eip155:1/erc20:0x{number:040x}") for number in range(1, 4)]
    blocks = [replace(BLOCK, height=day, time_us=(NOW_S + 86_400 * day) * 1_000_000) for day in range(30)]
    history = {
        f"ethereum:0x{number:040x}": {NOW_S + 86_400 * day - number: 100 * number + day for day in range(30)}
        for number in range(1, 4)
    }
    async with vendor(lambda request: answered(request, history)) as server, sending() as http:
        source = build(server.url)
        quotes = await priced(http, source, tokens, *blocks)
    assert [[price.usd for price in each.prices] for each in quotes] == [
        [100 * number + day for number in range(1, 4)] for day in range(30)
    ]
    assert [request.path for request in server.requests] == ["/batchHistorical"]


async def test_a_year_of_fifty_tokens_is_asked_for_in_addresses_that_servers_read() -> None:
    keys = [(f"ethereum:0x{number:040x}", NOW_S + 86_400 * day) for number in range(50) for day in range(365)]
    gets = list(CoinBatch(VendorHost("http://vendor")).requests(keys, NOW_S))
    assert sorted(key for _, request_keys in gets for key in request_keys) == sorted(keys)
    assert len(gets) < 60


async def test_a_price_that_the_vendor_is_not_sure_of_is_refused() -> None:
    body = json.dumps({"coins": {"coingecko:ethereum": coin(2000, NOW_S - 9) | {"confidence": 0.5}}})
    async with vendor(lambda _: body) as server, sending() as http:
        source = build(server.url)
        (quotes,) = await priced(http, source, [ETHER])
    assert [each.reason for each in quotes.refused] == [
        "the vendor is not sure of it: confidence 0.5, 0.9 is the least"
    ]


def test_a_key_of_the_paid_service_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_LLAMA", "s3cret")
    batch = SECTION.build({"key_env": "MY_LLAMA"}, "ethereum", "defillama").batch  # type: ignore[attr-defined]
    ((get, _),) = batch.requests([("coingecko:ethereum", NOW_S)], NOW_S)
    assert get.url == f"https://pro-api.llama.fi/s3cret/coins/prices/historical/{NOW_S}/coingecko:ethereum"
    assert "s3cret" not in repr(batch) + str(batch.label(("coingecko:ethereum", NOW_S)))


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"url": "https://x"}, "unknown key url"),
        ({"base_url": "ftp://x"}, "base_url is no http"),
        ({"base_url": 7}, "base_url is no http"),
        ({"base_url": "http://[x"}, "base_url is no http"),
        ({"max_age_s": 0}, "max_age_s is 0"),
        ({"key_env": "a key"}, "key_env is no name"),
        ({"coins": {"eip155:1/slip44:60": 7}}, "coins: is not a section of lines"),
        ({"coins": {"ether": "coingecko:ethereum"}}, "ether"),
    ],
)
def test_a_section_that_is_wrong_is_a_settings_error(section: dict[str, object], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        SECTION.build(section, "ethereum", "prices.toml: defillama")


def test_recorded_answers_are_read_to_the_digits_that_were_recorded() -> None:
    coins = CoinBatch(VendorHost("http://vendor"))
    read = 0
    for path, _, body, document in answers("defillama"):
        names = [name.lower() if ":0x" in name else name for name in path.rpartition("/")[2].split(",")]
        quotes = coins.parse(body, [(name, 0) for name in names])
        recorded = {name.lower() if ":0x" in name else name: facts for name, facts in document["coins"].items()}
        assert {name for name, _ in quotes} == recorded.keys()
        for (name, _), quote in quotes.items():
            assert isinstance(quote, VendorQuote)
            assert (quote.usd, quote.time_s) == (Decimal(recorded[name]["price"]), int(recorded[name]["timestamp"]))
            read += 1
    assert read > 20
