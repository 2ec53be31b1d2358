"""Every vendor against a real server that answers well, badly, late, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from aiohttp import web

from chainfolio.assets import asset
from chainfolio.pricing.binance import SECTION as BINANCE
from chainfolio.pricing.coingecko import SECTION as COINGECKO
from chainfolio.pricing.defillama import SECTION as DEFILLAMA
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.jupiter import SECTION as JUPITER
from chainfolio.pricing.pyth import SECTION as PYTH
from tests.pricing.conformance import BAD_BODIES, BAD_PRICES, Subject
from tests.pricing.vendor_server import BLOCK, NOW_S, priced, sending, vendor

TOKEN = f"0x{'c0' * 20}"
ERC20 = asset(f"eip155:1/erc20:{TOKEN}")
USDT = asset(f"eip155:1/erc20:0x{'da' * 20}")

CHAIN = "eip155:1"
FEED = "ff" * 32
MINT = "So11111111111111111111111111111111111111112"
SOL = asset("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501")


def llama(price: str, seen_s: int) -> str:
    quote = f'"symbol":"X","price":{price},"timestamp":{seen_s},"confidence":0.99'
    return f'{{"coins":{{"ethereum:{TOKEN}":{{{quote}}}}}}}'


def gecko(price: str, seen_s: int) -> str:
    return f'{{"{TOKEN}":{{"usd":{price},"last_updated_at":{seen_s}}}}}'


def gecko_past(price: str, seen_s: int) -> str:
    return f'{{"prices":[[{seen_s}000,{price}]],"market_caps":[],"total_volumes":[]}}'


def pyth(price: str, seen_s: int) -> str:
    """The vendor writes a whole number as text, and where the point is; a test's price has 24 places."""
    quote = f'"price":{price},"conf":"1","expo":-24,"publish_time":{seen_s}'
    return f'{{"binary":{{}},"parsed":[{{"id":"{FEED}","price":{{{quote}}},"ema_price":{{}},"metadata":{{}}}}]}}'


def pyth_number(number: str) -> str:
    integer, point, decimals = number.partition(".")
    return f'"{integer}{decimals:0<24}"' if point else f'"{number}"'


def jupiter(price: str, seen_s: int) -> str:
    return f'{{"{MINT}":{{"usdPrice":{price},"liquidity":62199.5,"decimals":9,"blockId":348004023}}}}'


def binance(price: str, seen_s: int) -> str:
    """A minute that closed then, and what trades there were."""
    return f'[[{seen_s - 60}000,"1","1","1",{price},"9.5",{seen_s - 1}999,"9",{3},"1","1","0"]]'


SUBJECTS = (
    Subject(
        "defillama",
        lambda url: DEFILLAMA.build({"base_url": url, "chains": {CHAIN: "ethereum"}}, "ethereum", "defillama"),
        ERC20,
        llama,
        '{"coins":{}}',
        6 * 3600,
    ),
    Subject(
        "coingecko",
        lambda url: COINGECKO.build({"base_url": url, "chains": {CHAIN: "ethereum"}}, "ethereum", "coingecko"),
        ERC20,
        gecko,
        "{}",
        2 * 3600,
    ),
    Subject(
        "coingecko",
        lambda url: COINGECKO.build({"base_url": url, "chains": {CHAIN: "ethereum"}}, "ethereum", "coingecko"),
        ERC20,
        gecko_past,
        '{"prices":[]}',
        2 * 3600,
        now_s=NOW_S + 86_400,
    ),
    Subject(
        "pyth",
        lambda url: PYTH.build({"base_url": url, "coins": {str(ERC20): FEED}}, "ethereum", "pyth"),
        ERC20,
        pyth,
        '{"parsed":[]}',
        60,
        number=pyth_number,
        text=lambda _: "12.5",
    ),
    Subject(
        "jupiter",
        lambda url: JUPITER.build({"base_url": url}, "solana", "jupiter"),
        SOL,
        jupiter,
        "{}",
        60,
        says_when=False,
    ),
    Subject(
        "binance",
        lambda url: BINANCE.build(
            {"base_url": url, "coins": {str(ERC20): "XUSDT"}, "usdt": {"ethereum": str(USDT)}}, "ethereum", "binance"
        ),
        ERC20,
        binance,
        "[]",
        300,
        number='"{}"'.format,
        text=str,
        base_source=build_fixed({str(USDT): "1"}, "prices"),
    ),
)
every = pytest.mark.parametrize("subject", SUBJECTS, ids=[f"{each.name}-{each.write.__name__}" for each in SUBJECTS])


@every
async def test_a_price_keeps_every_digit_that_the_vendor_wrote(subject: Subject) -> None:
    digits = "1234.567890123456789012345"
    body = subject.write(subject.number(digits), NOW_S - 30)
    async with vendor(lambda _: body) as server, sending(subject.now_s) as http:
        (quotes,) = await priced(http, subject.sources(server.url), [subject.asset])
    (price,) = quotes.prices
    assert (price.usd, price.source, quotes.refused) == (Decimal(digits), subject.name, ())
    assert NOW_S - subject.stale_s <= price.time_us // 1_000_000 <= NOW_S
    assert (price.calls[0].read.label[1] or "").startswith(server.url)
    assert len(server.requests) == 1


@every
async def test_what_the_vendor_does_not_know_is_neither_priced_nor_refused(subject: Subject) -> None:
    async with vendor(lambda _: subject.unknown) as server, sending(subject.now_s) as http:
        (quotes,) = await priced(http, subject.sources(server.url), [subject.asset])
    assert (quotes.prices, quotes.refused) == ((), ())
    assert server.requests


@every
async def test_what_no_vendor_lists_is_not_asked_for(subject: Subject) -> None:
    unlisted = [
        asset(f"eip155:1/erc721:{TOKEN}/7"),
        asset(f"eip155:4242/erc20:{TOKEN}"),
        asset("eip155:31337/slip44:60"),
    ]
    async with vendor(lambda _: subject.unknown) as server, sending(subject.now_s) as http:
        (quotes,) = await priced(http, subject.sources(server.url), unlisted)
    assert (quotes.prices, quotes.refused, server.requests) == ((), (), [])


@every
@pytest.mark.parametrize("bad", [*BAD_PRICES, "text", "NaN", "Infinity"])
async def test_a_price_that_is_none_is_refused_with_a_reason(subject: Subject, bad: str) -> None:
    price_text = subject.text("12.5") if bad == "text" else subject.number(bad)
    async with vendor(lambda _: subject.write(price_text, NOW_S - 30)) as server, sending(subject.now_s) as http:
        (quotes,) = await priced(http, subject.sources(server.url), [subject.asset])
    assert quotes.prices == ()
    assert [(each.asset, each.source) for each in quotes.refused] == [(subject.asset, subject.name)]
    assert len(quotes.refused[0].reason) > 10


@every
@pytest.mark.parametrize("name", [*BAD_BODIES, "cut off", "slow"])
async def test_an_answer_that_is_none_is_refused_with_a_reason(subject: Subject, name: str) -> None:
    complete = subject.write(subject.number("12.5"), NOW_S - 30).encode()
    body = None if name == "slow" else complete[:-2] if name == "cut off" else BAD_BODIES[name]
    async with vendor(lambda _: body) as server, sending(subject.now_s, timeout_s=0.2, max_body_bytes=60_000) as http:
        (quotes,) = await priced(http, subject.sources(server.url), [subject.asset])
    assert quotes.prices == ()
    assert [each.asset for each in quotes.refused] == [subject.asset]
    assert "127.0.0.1" in quotes.refused[0].reason or "answer" in quotes.refused[0].reason


@pytest.mark.parametrize("subject", [each for each in SUBJECTS if each.says_when], ids=lambda each: each.write.__name__)
@pytest.mark.parametrize(("shift", "reason"), [(1, "after the block"), (None, "stale")])
async def test_a_price_of_another_time_is_refused(subject: Subject, shift: int | None, reason: str) -> None:
    seen_s = NOW_S + shift if shift else NOW_S - subject.stale_s - 1
    async with (
        vendor(lambda _: subject.write(subject.number("12.5"), seen_s)) as server,
        sending(subject.now_s) as http,
    ):
        (quotes,) = await priced(http, subject.sources(server.url), [subject.asset])
    assert quotes.prices == ()
    assert reason in quotes.refused[0].reason


@every
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "status 429: it is asked again after 7 s"),
        (503, "status 503: it is asked again after 7 s"),
        (401, "the key is missing, wrong, or has no right"),
        (500, "with the next answer"),
    ],
)
async def test_a_vendor_that_refuses_is_a_reason_with_a_cure_and_is_left_alone_as_it_asks(
    subject: Subject, status: int, reason: str
) -> None:
    headers = {"Retry-After": "7"} if status in (429, 503) else {}
    good = subject.write(subject.number("12.5"), NOW_S - 30)
    responses: list[web.Response | str] = [web.Response(status=status, headers=headers), good]
    later = replace(BLOCK, height=101, time_us=BLOCK.time_us + 1_000_000)
    async with vendor(lambda _: responses.pop(0)) as server, sending(subject.now_s) as http:
        source = subject.sources(server.url)
        (quotes,) = await priced(http, source, [subject.asset])
        assert (quotes.prices, len(quotes.refused)) == ((), 1)
        assert reason in quotes.refused[0].reason
        (retry,) = await priced(http, source, [subject.asset], later)
        assert (len(server.requests), len(retry.prices)) == ((1, 0) if headers else (2, 1))
        if headers:
            await http.environment.clock.sleep(7.0)
            (retry,) = await priced(http, source, [subject.asset], later)
        assert len(retry.prices) == 1


@every
async def test_a_moment_is_asked_for_once(subject: Subject) -> None:
    body = subject.write(subject.number("12.5"), NOW_S - 30)
    async with vendor(lambda _: body) as server, sending(subject.now_s) as http:
        source = subject.sources(server.url)
        first = await priced(http, source, [subject.asset], BLOCK, BLOCK)
        second = await priced(http, source, [subject.asset])
    assert first == [*second, *second]
    assert len(server.requests) == 1


def test_the_answers_above_are_json() -> None:
    for subject in SUBJECTS:
        json.loads(subject.write(subject.number("1.5"), NOW_S))
