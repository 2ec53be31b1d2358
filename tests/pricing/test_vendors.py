"""CoinGecko, Pyth, Jupiter and Binance: what is theirs alone; keys; what `vendors.toml` says of all."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.portfolio.valuation import market_value
from chainfolio.price_sources import PriceSection, PriceSource, Quotes
from chainfolio.pricing import binance, coingecko, defillama, jupiter, pyth, vendors
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.http_reads import MAX_WAIT_S, HttpGet
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.rules import Guards, knows
from chainfolio.pricing.vendors import DisabledSource, VendorHost, VendorQuote, add_vendor_names
from tests.pricing.recorded import answers
from tests.pricing.vendor_server import BLOCK, NOW_S, priced, sending, vendor

ROOT = Path(__file__).parents[2]
ETHER, SOL = asset("eip155:1/slip44:60"), asset(f"{jupiter.SOLANA}/slip44:501")
FEED = "ab" * 32


@dataclass(frozen=True)
class Feed:
    """A source of the chain that says what it knows."""

    usd: dict[Asset, Decimal]
    name: str = "feed"

    def knows(self, of: Asset) -> bool:
        return of in self.usd

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        yield from ()
        return Quotes(tuple(Price(each, self.usd[each], "feed", block.time_us, Decimal(1)) for each in assets))


@pytest.fixture(autouse=True)
def _clear_log_cache() -> Iterator[None]:
    vendors.log_disabled.cache_clear()
    yield
    vendors.log_disabled.cache_clear()


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "name"),
    [
        (coingecko.SECTION, "COINGECKO_DEMO_KEY"),
        (jupiter.SECTION, "JUPITER_KEY"),
    ],
)
def test_a_source_without_its_key_is_off_and_the_log_says_so_once(
    section: PriceSection, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(name, raising=False)
    with caplog.at_level(logging.WARNING):
        built = [section.build({}, chain, "prices.toml") for chain in ("ethereum", "base", "solana")]
    assert all(isinstance(each, DisabledSource) for each in built)
    assert [record.message for record in caplog.records] == [
        f"[{built[0].name}] is off: the environment variable {name} is not set"
    ]


@pytest.mark.parametrize(
    ("section", "is_set"),
    [
        (coingecko.SECTION, {}),
        (pyth.SECTION, {"coins": {str(ETHER): FEED}}),
        (binance.SECTION, {"coins": {str(ETHER): "ETHUSDT"}, "usdt": {}}),
    ],
)
def test_a_section_sets_how_old_a_price_may_be(section: PriceSection, is_set: dict[str, Any]) -> None:
    source = section.build({"base_url": "http://localhost", "max_age_s": 60, **is_set}, "ethereum", "vendor")
    assert source.max_age_s == 60  # type: ignore[attr-defined]
    with pytest.raises(BadSettings, match="max_age_s is 0"):
        section.build({"base_url": "http://localhost", "max_age_s": 0, **is_set}, "ethereum", "vendor")


async def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "s3cret")
    async with vendor(lambda _: '{"ethereum":{"usd":2000,"last_updated_at":1759999990}}') as server, sending() as http:
        section = {"plan": "pro", "key_env": "MINE", "base_url": server.url, "coins": {str(ETHER): "ethereum"}}
        source = coingecko.SECTION.build(section, "ethereum", "coingecko")
        (quotes,) = await priced(http, source, [ETHER])
    assert server.requests[0].headers["x-cg-pro-api-key"] == "s3cret"
    assert "s3cret" not in repr(source) + repr(quotes) + str(quotes.prices[0].calls[0].read.label)


# --- second opinions --------------------------------------------------------------------------------------------------

ERC20 = asset(f"eip155:1/erc20:0x{'c0' * 20}")
NAMED = {"coins": {str(ETHER): "ethereum"}, "chains": {"eip155:1": "ethereum"}}


@pytest.mark.parametrize(
    ("section", "facts", "named_asset", "listed_asset"),
    [
        (defillama.SECTION, NAMED, ETHER, ERC20),
        (coingecko.SECTION, NAMED, ETHER, ERC20),
        (pyth.SECTION, {"coins": {str(ETHER): FEED}}, ETHER, None),
        (binance.SECTION, {"coins": {str(ETHER): "ETHUSDT"}, "usdt": {}}, ETHER, None),
        (jupiter.SECTION, {}, SOL, asset(f"{jupiter.SOLANA}/token:{'a' * 43}")),
    ],
)
def test_a_vendor_is_sure_of_what_has_a_name_here_alone(
    section: PriceSection, facts: dict[str, Any], named_asset: Asset, listed_asset: Asset | None
) -> None:
    source = section.build({"base_url": "http://localhost", **facts}, "ethereum", "vendor")
    assert knows(source, named_asset) is True
    assert listed_asset is None or knows(source, listed_asset) is None
    assert knows(source, asset("eip155:777/slip44:60")) is False


async def test_a_coin_with_a_feed_and_a_name_at_a_vendor_has_both_prices_in_one_round_and_shows_a_disagreement() -> (
    None
):
    async with vendor(lambda _: '{"ethereum":{"usd":2200,"last_updated_at":1759999990}}') as server, sending() as http:
        source = coingecko.SECTION.build({"base_url": server.url, **NAMED}, "ethereum", "coingecko")
        feed = Feed({ETHER: Decimal(2000), ERC20: Decimal(1)})
        (quotes,) = await priced(http, [feed, source], [ETHER, ERC20])
    prices = {each.asset: each for each in quotes.prices}
    assert [(each.source, each.usd) for each in prices[ETHER].alternatives] == [("coingecko", Decimal(2200))]
    assert "more than 5.00% apart" in Guards().disagreements(prices[ETHER])
    assert (prices[ETHER].source, prices[ERC20].alternatives) == ("feed", ())
    assert len(server.requests) == 1  # of the token, which it may list, nothing was asked: it had a price


@pytest.mark.parametrize("answer", [500, "{}", "<html>"])
async def test_a_vendor_that_has_no_second_opinion_spoils_no_price(answer: int | str) -> None:
    async with vendor(lambda _: answer) as server, sending() as http:
        source = coingecko.SECTION.build({"base_url": server.url, **NAMED}, "ethereum", "coingecko")
        (quotes,) = await priced(http, [Feed({ETHER: Decimal(2000)}), source], [ETHER])
    (price,) = quotes.prices
    assert (price.source, price.alternatives, len(server.requests)) == ("feed", (), 1)


# --- CoinGecko --------------------------------------------------------------------------------------------------------


async def test_coingecko_is_asked_once_for_all_past_moments_of_a_coin_and_gives_the_last_before_each() -> None:
    days = [replace(BLOCK, height=day, time_us=(NOW_S - 86_400 * (80 - day)) * 1_000_000) for day in range(80)]
    steps = [[(NOW_S - 86_400 * 80 + hour * 3600 - 60) * 1000, hour + 1] for hour in range(80 * 24 + 1)]
    body = json.dumps({"prices": steps, "market_caps": [], "total_volumes": []})
    async with vendor(lambda _: body) as server, sending() as http:
        section = {"base_url": server.url, "coins": {str(ETHER): "ethereum"}}
        quotes = await priced(http, coingecko.SECTION.build(section, "ethereum", "coingecko"), [ETHER], *days)
    assert [each.prices[0].usd for each in quotes] == [24 * day + 1 for day in range(80)]
    assert [request.path for request in server.requests] == ["/coins/ethereum/market_chart/range"]


@pytest.mark.parametrize(("skew_s", "usd"), [(-86_400, None), (-1, None), (0, None), (600, 1999), (86_400, 1999)])
async def test_whatever_our_own_clock_says_no_price_is_of_a_time_after_the_block(skew_s: int, usd: int | None) -> None:
    """With a slow clock a block of the past is taken for one of now, whose newest price came after it."""
    newest = f'{{"ethereum":{{"usd":2000,"last_updated_at":{NOW_S + 30}}}}}'
    past = json.dumps({"prices": [[(NOW_S - 60) * 1000, 1999], [(NOW_S + 30) * 1000, 2000]]})
    async with (
        vendor(lambda request: past if "range" in request.path else newest) as server,
        sending(NOW_S + skew_s) as http,
    ):
        source = coingecko.SECTION.build({"base_url": server.url, **NAMED}, "ethereum", "coingecko")
        (quotes,) = await priced(http, source, [ETHER])
    assert [each.usd for each in quotes.prices] == ([] if usd is None else [usd])
    assert all("after the block" in each.reason for each in quotes.refused)


def test_coingecko_is_asked_in_parts_that_have_the_finest_step() -> None:
    batch = coingecko.CoinBatch(VendorHost("http://vendor"))
    keys = [("", "ethereum", NOW_S - 86_400 * day) for day in range(1, 366)]
    gets = list(batch.requests(keys, NOW_S))
    assert sorted(key for _, request_keys in gets for key in request_keys) == sorted(keys)
    assert len(gets) == 5
    for get, request_keys in gets:
        assert isinstance(get, HttpGet)
        params = dict(get.params)
        assert int(params["to"]) - int(params["from"]) <= 90 * 86_400
        assert (
            int(params["from"])
            < min(key[2] for key in request_keys)
            <= max(key[2] for key in request_keys)
            == int(params["to"])
        )


async def test_a_vendor_that_is_asked_slowly_refuses_who_would_wait_too_long() -> None:
    """One request in two seconds: of a hundred coins of the past, those that come first are asked."""
    coins = {f"eip155:1/erc20:0x{number:040x}": f"coin-{number}" for number in range(100)}
    async with vendor(lambda _: '{"prices":[]}') as server, sending(NOW_S + 86_400) as http:
        http.environment.clock.monotonic_s = lambda: 0.0  # type: ignore[method-assign]
        source = coingecko.SECTION.build({"base_url": server.url, "coins": coins}, "ethereum", "coingecko")
        (quotes,) = await priced(http, source, [asset(each) for each in coins])
    assert 15 <= len(server.requests) <= MAX_WAIT_S / 2 + 2
    assert len(quotes.refused) == 100 - len(server.requests)
    assert {each.reason for each in quotes.refused} == {
        "127.0.0.1 is asked 0.5 times a second, and too many wait for it"
    }


def test_recorded_answers_of_coingecko_are_read_to_the_digits_that_were_recorded() -> None:
    batch, read = coingecko.CoinBatch(VendorHost("http://vendor")), 0
    for path, query, body, document in answers("coingecko"):
        if "simple/price" in path and query["vs_currencies"] == "usd":
            quotes = batch.parse(body, [("", name, 0) for name in query["ids"].split(",")])
            for (_, name, _), quote in quotes.items():
                assert isinstance(quote, VendorQuote)
                assert quote.usd == Decimal(document[name]["usd"])
                read += 1
    assert read > 15


# --- Pyth -------------------------------------------------------------------------------------------------------------


def update(price: str, conf: str, seen_s: int = NOW_S - 3) -> str:
    parsed = {"price": price, "conf": conf, "expo": -8, "publish_time": seen_s}
    return json.dumps({"parsed": [{"id": FEED, "price": parsed}]})


@pytest.mark.parametrize(
    ("conf", "confidence"), [("0", "1"), ("20000000", "0.9999"), ("2000000000", "0.99"), ("2000000001", None)]
)
async def test_the_interval_of_pyth_is_its_confidence_and_a_wide_one_is_no_price(
    conf: str, confidence: str | None
) -> None:
    async with vendor(lambda _: update("200000000000", conf)) as server, sending() as http:
        section = {"base_url": server.url, "coins": {str(ETHER): f"0x{FEED}"}}
        (quotes,) = await priced(http, pyth.SECTION.build(section, "ethereum", "pyth"), [ETHER])
    (request,) = server.requests
    assert request.query_string == f"ids[]={FEED}&parsed=true&ignore_invalid_price_ids=true"
    assert [(price.usd, price.confidence) for price in quotes.prices] == (
        [(Decimal(2000), Decimal(confidence))] if confidence else []
    )
    assert [each.reason for each in quotes.refused] == (
        [] if confidence else ["Pyth is not sure of it: 2000.00000000 ± 20.00000001 USD, at most ± 1% are allowed"]
    )


@pytest.mark.parametrize(("price", "conf"), [("1.5", "0"), ("", "0"), ("1", "-1"), ("9" * 79, "0"), ("1", "NaN")])
async def test_what_pyth_does_not_write_is_refused(price: str, conf: str) -> None:
    async with vendor(lambda _: update(price, conf)) as server, sending() as http:
        section = {"base_url": server.url, "coins": {str(ETHER): FEED}}
        (quotes,) = await priced(http, pyth.SECTION.build(section, "ethereum", "pyth"), [ETHER])
    assert (quotes.prices, len(quotes.refused)) == ((), 1)


def test_a_feed_that_is_none_is_a_settings_error() -> None:
    with pytest.raises(BadSettings, match="64 hex digits"):
        pyth.SECTION.build({"coins": {str(ETHER): "0x12"}}, "ethereum", "pyth")


# --- Jupiter ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late_s", "liquidity", "reason"),
    [
        (60, "50000", "Jupiter knows the prices of now alone, and the block is older"),
        (5, "9999.99", "Jupiter's price is not to be relied on: its markets have 9999.99 USD, 10000 are the least"),
        (5, "10000", ""),
    ],
)
async def test_jupiter_prices_now_alone_and_what_has_a_market(late_s: int, liquidity: str, reason: str) -> None:
    body = f'{{"{jupiter.WRAPPED}":{{"usdPrice":150.25,"liquidity":{liquidity},"decimals":9}}}}'
    async with vendor(lambda _: body) as server, sending(NOW_S + late_s) as http:
        (quotes,) = await priced(http, jupiter.SECTION.build({"base_url": server.url}, "solana", "jupiter"), [SOL])
    assert [each.reason for each in quotes.refused] == ([reason] if reason else [])
    assert [price.usd for price in quotes.prices] == ([] if reason else [Decimal("150.25")])
    assert len(server.requests) == (late_s < 60)


async def test_a_token_is_worth_no_more_than_the_markets_that_jupiter_knows_and_the_coin_is_not_bounded() -> None:
    token = asset(f"{jupiter.SOLANA}/token:{'a' * 43}")
    entries = (f'"{mint}":{{"usdPrice":2.5,"liquidity":62199.5}}' for mint in (jupiter.WRAPPED, token.reference))
    body = f"{{{','.join(entries)}}}"
    async with vendor(lambda _: body) as server, sending() as http:
        source = jupiter.SECTION.build({"base_url": server.url}, "solana", "jupiter")
        (quotes,) = await priced(http, source, [SOL, token])
    assert {each.asset: each.depth_usd for each in quotes.prices} == {SOL: None, token: Decimal("62199.5")}
    assert market_value(Decimal(10**30), quotes.prices[1]) == Decimal("62199.5")


# --- the facts --------------------------------------------------------------------------------------------------------


def test_one_line_turns_a_vendor_on_for_every_chain_and_it_knows_the_coin_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("COINGECKO_DEMO_KEY", "JUPITER_KEY"):
        monkeypatch.setenv(name, "k")
    text = (ROOT / "configs" / "prices.toml").read_text()
    lines = re.findall(r"^# (\[(?:defillama|coingecko|pyth|jupiter|binance)\])$", text, re.MULTILINE)
    assert len(lines) == 5
    names = tomllib.loads((ROOT / "configs" / "vendors.toml").read_text())
    tree = add_vendor_names(tomllib.loads("\n".join(lines)), names)
    for file in sorted((ROOT / "configs" / "chains").glob("*.toml")):
        chain = tomllib.loads(file.read_text())
        if chain["kind"] != "evm":
            continue
        built = {each.name: each for each in build_sources(tree, {}, chain["key"], "evm")}
        assert set(built) == {"defillama", "coingecko", "pyth", "jupiter", "binance"}
        native = asset(f"eip155:{chain['chain_id']}/slip44:{chain['native']['slip44']}")
        reads = next(built["defillama"].prices([native], BLOCK), [])
        is_real = chain["key"] not in ("local", "sepolia")
        assert bool(reads) == is_real, chain["key"]


@pytest.mark.parametrize("vendor", [defillama.SECTION, coingecko.SECTION], ids=["defillama", "coingecko"])
@pytest.mark.parametrize("chains", [5, {"ethereum": "eth"}, {"eip155:1": ""}, {"eip155:1": 1}])
def test_chains_that_are_no_names_are_a_settings_error(vendor: PriceSection, chains: object) -> None:
    with pytest.raises(BadSettings, match="chains: is not a section of lines"):
        vendor.build({"base_url": "http://localhost", "chains": chains}, "ethereum", "vendor")


@pytest.mark.parametrize("vendor", ["defillama", "coingecko"])
def test_an_operators_own_name_of_a_chain_is_used(vendor: str) -> None:
    names = tomllib.loads((ROOT / "configs" / "vendors.toml").read_text())
    chains = {"eip155:777": "own", "eip155:1": "other"}
    tree = add_vendor_names({vendor: {"base_url": "http://localhost", "chains": chains}}, names)
    (source,) = build_sources(tree, {}, "own", "evm")
    token = asset(f"eip155:777/erc20:0x{'da' * 20}")
    (read,) = next(source.prices([token], BLOCK))
    assert "own" in str(read)
    shipped = {key: line[vendor] for key, line in names["chains"].items()}
    assert source.chains == {**shipped, **chains}  # type: ignore[attr-defined]


def test_what_nothing_could_answer_is_unknown_without_a_request() -> None:
    ((outcome, keys),) = jupiter.MintBatch(VendorHost("http://vendor")).requests([("mint", NOW_S - 61)], NOW_S)
    assert isinstance(outcome, Unknown)
    assert keys == [("mint", NOW_S - 61)]


# --- Binance ----------------------------------------------------------------------------------------------------------

USDT = asset(f"eip155:1/erc20:0x{'da' * 20}")


def market(url: str, **more: object) -> list[PriceSource]:
    section = {"base_url": url, "coins": {str(ETHER): "ETHUSDT"}, "usdt": {"ethereum": str(USDT)}, **more}
    return [build_fixed({str(USDT): "0.99"}, "prices"), binance.SECTION.build(section, "ethereum", "binance")]


def minute(closed_s: int, close: str, trades: int = 3) -> str:
    return f'[{closed_s - 60}000,"1","1","1","{close}","9",{closed_s - 1}999,"9",{trades},"1","1","0"]'


async def test_a_market_in_usdt_is_worth_what_usdt_is_worth() -> None:
    """The last minute is not over, and the one before it has no trades."""
    body = f"[{minute(NOW_S - 70, '2000')},{minute(NOW_S - 10, '1', trades=0)},{minute(NOW_S + 50, '3000')}]"
    async with vendor(lambda _: body) as server, sending() as http:
        (quotes,) = await priced(http, market(server.url), [ETHER])
    (price,) = quotes.prices
    assert (price.usd, price.source, price.time_us) == (Decimal("1980"), "binance", (NOW_S - 70) * 1_000_000)
    assert dict(server.requests[0].query) == {
        "symbol": "ETHUSDT",
        "interval": "1m",
        "limit": "1000",
        "startTime": f"{NOW_S - 300}000",
        "endTime": f"{NOW_S}000",
    }


async def test_a_market_without_a_trade_before_the_block_is_refused_with_its_first_minute() -> None:
    body = f"[{minute(NOW_S - 10, '1', trades=0)},{minute(NOW_S + 50, '3000')}]"
    async with vendor(lambda _: body) as server, sending() as http:
        (quotes,) = await priced(http, market(server.url), [ETHER])
    assert quotes.prices == ()
    assert "the first minute closed -10 s after the block" in quotes.refused[0].reason


async def test_a_chain_without_a_priced_usdt_refuses_the_market_and_says_why() -> None:
    async with vendor(lambda _: f"[{minute(NOW_S, '2000')}]") as server, sending() as http:
        (quotes,) = await priced(http, market(server.url, usdt={}), [ETHER])
        assert [each.reason for each in quotes.refused] == ["its market is in USDT, and no USDT of this chain is known"]
        (quotes,) = await priced(http, market(server.url)[1], [ETHER])
    assert quotes.prices == ()
    assert str(USDT) in quotes.refused[0].reason


def test_a_section_has_chains_as_those_of_other_vendors() -> None:
    sources = market("http://localhost", chains={"eip155:1": "ethereum"})
    assert knows(sources[1], ETHER) is True
    with pytest.raises(BadSettings, match=r"unknown key chain\b"):
        market("http://localhost", chain={})


def test_moments_within_a_thousand_minutes_are_one_request() -> None:
    keys = [("ETHUSDT", NOW_S + 60 * minutes) for minutes in range(2000)]
    gets = list(binance.CandleBatch(VendorHost("http://vendor")).requests(keys, NOW_S))
    assert [key for _, request_keys in gets for key in request_keys] == keys
    assert len(gets) == 3
    for get, _ in gets:
        assert isinstance(get, HttpGet)
        params = dict(get.params)
        assert (int(params["endTime"]) - int(params["startTime"])) // 60_000 <= 1000


def test_text_that_is_no_plain_number_is_refused_with_its_beginning() -> None:
    with pytest.raises(ValueError, match="x" * 40 + " is no plain number"):
        vendors.parse_number("x" * 50)


@pytest.mark.parametrize(
    ("quote", "fault"),
    [
        (VendorQuote(Decimal(2), NOW_S - 300), ""),
        (VendorQuote(Decimal(2), NOW_S - 301), "stale: seen 301 s before the block, 300 s are allowed"),
        (VendorQuote(Decimal(2), NOW_S), ""),
        (VendorQuote(Decimal(2), NOW_S + 1), "the price was seen 1 s after the block"),
        (VendorQuote(Decimal(0), NOW_S), "the price is zero"),
        (VendorQuote(Decimal(-2), NOW_S), "the price is not above zero: -2"),
        (VendorQuote(Decimal(2), NOW_S, vendors.MIN_CONFIDENCE), ""),
        (VendorQuote(Decimal(2), NOW_S, vendors.MIN_CONFIDENCE / 2), "the vendor is not sure of it"),
        (VendorQuote(Decimal(2), NOW_S, Decimal(1)), ""),
        (VendorQuote(Decimal(2), NOW_S, Decimal("1.01")), "the confidence is not between 0 and 1"),
        (VendorQuote(Decimal(2), NOW_S, Decimal(-1)), "the confidence is not between 0 and 1"),
    ],
    ids=["old", "too-old", "now", "later", "zero", "negative", "least", "unsure", "sure", "above-1", "below-0"],
)
def test_a_quote_is_usable_up_to_each_bound(quote: VendorQuote, fault: str) -> None:
    message = vendors.quote_fault(quote, BLOCK, 300)
    assert fault in message
    assert bool(fault) == bool(message)
