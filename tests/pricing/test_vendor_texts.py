"""Settings of each price source with their whole error texts, its requests, and its quotes of answers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown
from chainfolio.pricing import binance, coingecko, defillama, jupiter, pyth, vendors
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.vendors import MarketQuote, VendorHost, VendorQuote, add_vendor_names

NAMES = {
    "ONE_TOKEN": f"eip155:1/erc20:0x{'a0' * 20}",
    "OTHER_TOKEN": f"eip155:10/erc20:0x{'a0' * 20}",
    "EVM_COIN": "eip155:1/slip44:60",
    "CONTRACT": f"0x{'a1' * 20}",
    "WORD": "ab" * 32,
    "PROGRAM": "So11111111111111111111111111111111111111112",
    "MINT": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/token:So11111111111111111111111111111111111111112",
    "SOL_COIN": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501",
}
# Each line: a chain, a file of prices with `\n` for new lines, and `accepted` or the text of the error.
LINES = (Path(__file__).parent / "settings_and_answers.txt").read_text(encoding="utf-8").splitlines()
HOST = VendorHost("http://vendor", (("x-key", "secret"),), 2.5, "/path")
NOW_S = 1_760_000_000


def expand_names(text: str) -> str:
    """Return a text with the names of NAMES replaced by their values."""
    for name, value in NAMES.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("line", LINES)
def test_a_file_of_prices_is_accepted_or_refused_with_this_whole_text(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("COINGECKO_DEMO_KEY", "COINGECKO_PRO_KEY", "JUPITER_KEY", "X"):
        monkeypatch.setenv(variable, "key")
    chain, settings, text = line.split(" | ")
    try:
        build_sources(
            tomllib.loads(expand_names(settings.replace(r"\n", "\n"))), {}, chain, "evm" if "eth" in chain else chain
        )
        outcome = "accepted"
    except BadSettings as error:
        outcome = str(error)
    assert outcome == expand_names(text)


# --- requests ---------------------------------------------------------------------------------------------------------


def get(path: str, *params: tuple[str, str]) -> HttpGet:
    return HttpGet(f"http://vendor/path{path}", params, (("x-key", "secret"),), 2.5)


CURRENT = (("vs_currencies", "usd"), ("include_last_updated_at", "true"), ("precision", "full"))
PAST_S = NOW_S - 300  # at and before it, prices are of the past


def history(first_s: int, last_s: int) -> tuple[tuple[str, str], ...]:
    return ("vs_currency", "usd"), ("from", str(first_s - 7200)), ("to", str(last_s)), ("precision", "full")


BATCHES: dict[str, Any] = {
    "coingecko": coingecko.CoinBatch(HOST),
    "defillama": defillama.CoinBatch(HOST),
    "pyth": pyth.UpdateBatch(HOST),
    "jupiter": jupiter.MintBatch(HOST),
    "binance": binance.CandleBatch(HOST),
}
PRECISE_S = 89 * 86_400
REQUESTS: list[tuple[str, Sequence[Any], list[tuple[Any, Sequence[Any]]]]] = [
    (
        "coingecko",
        [("", "b", PAST_S + 1), ("", "a", PAST_S + 1), ("eth", "0xa", PAST_S + 1), ("", "a", NOW_S)],
        [
            (get("/simple/price", ("ids", "a,b"), *CURRENT), [("", "a", PAST_S + 1), ("", "b", PAST_S + 1)]),
            (get("/simple/price", ("ids", "a"), *CURRENT), [("", "a", NOW_S)]),
            (get("/simple/token_price/eth", ("contract_addresses", "0xa"), *CURRENT), [("eth", "0xa", PAST_S + 1)]),
        ],
    ),
    (
        "coingecko",
        [("", "a", PAST_S), ("eth", "0xa", 9), ("", "a", PAST_S - PRECISE_S), ("", "a", PAST_S - PRECISE_S - 1)],
        [
            (
                get("/coins/a/market_chart/range", *history(PAST_S - PRECISE_S - 1, PAST_S - PRECISE_S)),
                [("", "a", PAST_S - PRECISE_S - 1), ("", "a", PAST_S - PRECISE_S)],
            ),
            (get("/coins/a/market_chart/range", *history(PAST_S, PAST_S)), [("", "a", PAST_S)]),
            (get("/coins/eth/contract/0xa/market_chart/range", *history(9, 9)), [("eth", "0xa", 9)]),
        ],
    ),
    (
        "defillama",
        [("a", 5), ("b", 5), ("a", 6)],
        [
            (
                get("/batchHistorical", ("coins", '{"a":[5,6],"b":[5]}')),
                [("a", 5), ("a", 6), ("b", 5)],
            )
        ],
    ),
    ("defillama", [("b", 5), ("a", 5)], [(get("/prices/historical/5/b,a"), [("b", 5), ("a", 5)])]),
    (
        "pyth",
        [("f1", 100), ("f2", 200), ("f3", 100)],
        [
            (
                get(
                    "/v2/updates/price/95",
                    ("ids[]", "f1"),
                    ("ids[]", "f3"),
                    ("parsed", "true"),
                    ("ignore_invalid_price_ids", "true"),
                ),
                [("f1", 100), ("f3", 100)],
            ),
            (
                get("/v2/updates/price/195", ("ids[]", "f2"), ("parsed", "true"), ("ignore_invalid_price_ids", "true")),
                [("f2", 200)],
            ),
        ],
    ),
    (
        "jupiter",
        [("m1", NOW_S - 59), ("m2", NOW_S - 60), ("m3", NOW_S - 59)],
        [
            (Unknown("Jupiter knows the prices of now alone, and the block is older"), [("m2", NOW_S - 60)]),
            (get("/price/v3", ("ids", "m1,m3")), [("m1", NOW_S - 59), ("m3", NOW_S - 59)]),
        ],
    ),
    (
        "binance",
        [("B", 100_000), ("A", 400), ("A", 400 + 999 * 60 - 300), ("A", 401 + 999 * 60 - 300)],
        [
            (
                get("/api/v3/klines", *market, ("startTime", first), ("endTime", last), ("limit", "1000")),
                keys,
            )
            for market, first, last, keys in (
                (
                    (("symbol", "A"), ("interval", "1m")),
                    "100000",
                    "60040000",
                    [("A", 400), ("A", 400 + 999 * 60 - 300)],
                ),
                ((("symbol", "A"), ("interval", "1m")), "59741000", "60041000", [("A", 401 + 999 * 60 - 300)]),
                ((("symbol", "B"), ("interval", "1m")), "99700000", "100000000", [("B", 100_000)]),
            )
        ],
    ),
]


@pytest.mark.parametrize(("vendor", "keys", "expected"), REQUESTS)
def test_a_vendor_is_sent_exactly_these_requests(vendor: str, keys: Sequence[Any], expected: list[Any]) -> None:
    assert list(BATCHES[vendor].requests(keys, NOW_S)) == expected


@pytest.mark.parametrize(
    ("vendor", "limit"), [("coingecko", 50), ("defillama", 100), ("pyth", 50), ("jupiter", 50)], ids=str
)
def test_one_request_has_as_many_coins_as_the_vendor_takes(vendor: str, limit: int) -> None:
    keys: list[Any] = [(f"{number:060}", NOW_S) for number in range(2 * limit + 1)]
    keys = [("", *key) for key in keys] if vendor == "coingecko" else keys
    requests_made = list(BATCHES[vendor].requests(keys, NOW_S))
    assert [len(request_keys) for _, request_keys in requests_made] == [limit, limit, 1]
    assert [key for _, request_keys in requests_made for key in request_keys] == keys


def test_a_combined_request_is_as_long_as_an_address_may_be() -> None:
    keys = [(f"c{number % 7}", 1_700_000_000 + number) for number in range(2000)]
    groups = list(defillama._fill_queries(keys))
    assert [key for group in groups for key in group] == sorted(keys)
    lengths = [len(json.dumps(defillama._times_by_coin(group), separators=(",", ":"))) for group in groups]
    assert max(lengths) <= defillama.MAX_QUERY + 2
    assert min(lengths[:-1]) > defillama.MAX_QUERY - 30
    assert list(defillama._fill_queries([])) == []


def test_a_read_is_labelled_as_the_request_for_it_alone() -> None:
    labels = [
        BATCHES[vendor].label(key)
        for vendor, key in (
            ("coingecko", ("eth", "0xa", 9000)),
            ("defillama", ("a", 5)),
            ("pyth", ("f1", 100)),
            ("jupiter", ("m1", 100)),
            ("binance", ("A", 400)),
        )
    ]
    assert [(label[0], label[1], label[3]) for label in labels] == [
        (
            "GET",
            "http://vendor/path/coins/eth/contract/0xa/market_chart/range",
            ("vs_currency=usd", "from=1800", "to=9000", "precision=full"),
        ),
        ("GET", "http://vendor/prices/historical/5/a", ()),
        (
            "GET",
            "http://vendor/path/v2/updates/price/95",
            ("ids[]=f1", "parsed=true", "ignore_invalid_price_ids=true"),
        ),
        ("GET", "http://vendor/price/v3", ("ids=m1",)),
        (
            "GET",
            "http://vendor/path/api/v3/klines",
            ("symbol=A", "interval=1m", "startTime=100000", "endTime=400000", "limit=1000"),
        ),
    ]
    assert {label[2] for label in labels} == {None}


# --- answers ----------------------------------------------------------------------------------------------------------

FEED = {"price": "123456", "conf": "1234", "expo": -2, "publish_time": 7}
CANDLE = [40_000, "1", "1", "1", "2.5", "9", 99_999, "9", 3, "1", "1", "0"]


def candle(closed_ms: int, close: object, trades: int = 3) -> list[object]:
    return [*CANDLE[:4], close, "9", closed_ms, "9", trades, *CANDLE[9:]]


ANSWERS: list[tuple[str, object, Sequence[Any], dict[Any, Any]]] = [
    (
        "coingecko",
        {"A": {"usd": 1.50, "last_updated_at": 7}, "b": {"usd": 2}, "c": {"usd": "2"}},
        [("", "a", 9), ("", "B", 9), ("", "c", 9), ("", "d", 9)],
        {
            ("", "a", 9): VendorQuote(Decimal("1.5"), 7),
            ("", "B", 9): VendorQuote(Decimal(2), 0),
            ("", "c", 9): Unknown('CoinGecko\'s answer has no price: "2" is no plain number', "contract"),
        },
    ),
    (
        "coingecko",
        {"prices": [[3000, 3], [1000, 1], [2999, 2.5], [5000, None]]},
        [("", "a", 0), ("", "a", 1), ("", "a", 2), ("", "a", 3), ("", "a", 4), ("", "a", 5)],
        {
            ("", "a", 0): Unknown("CoinGecko's history begins after the block", "contract"),
            ("", "a", 1): VendorQuote(Decimal(1), 1),
            ("", "a", 2): VendorQuote(Decimal("2.5"), 2),
            ("", "a", 3): VendorQuote(Decimal(3), 3),
            ("", "a", 4): VendorQuote(Decimal(3), 3),
            ("", "a", 5): Unknown("CoinGecko's history has no price: null is no plain number", "contract"),
        },
    ),
    ("coingecko", {"prices": []}, [("", "a", 5)], {}),
    (
        "defillama",
        {
            "coins": {
                "eth:0xAB": {"price": 2, "timestamp": 4, "confidence": 0.9},
                "x:Y": {"prices": [{"price": each, "timestamp": each, "confidence": 1} for each in (2, 4, 9)]},
                "bad": {"price": "2", "timestamp": 4, "confidence": 1},
                "none": {"prices": []},
            }
        },
        [("eth:0xab", 5), ("x:Y", 3), ("x:Y", 7), ("x:Y", 6), ("x:y", 3), ("bad", 1), ("none", 1)],
        {
            ("eth:0xab", 5): VendorQuote(Decimal(2), 4, Decimal("0.9")),
            ("x:Y", 3): VendorQuote(Decimal(2), 2),
            ("x:Y", 7): VendorQuote(Decimal(9), 9),
            ("x:Y", 6): VendorQuote(Decimal(4), 4),
            ("bad", 1): Unknown('DefiLlama\'s answer has no price: "2" is no plain number', "contract"),
        },
    ),
    (
        "pyth",
        {
            "parsed": [
                {"id": "0xf1", "price": FEED},
                {"id": "f2", "price": {**FEED, "conf": "1235"}},
                {"id": "f3", "price": {**FEED, "expo": 37}},
                {"id": "f4", "price": {**FEED, "price": "1.5"}},
                {"id": "f5", "price": {**FEED, "expo": -36}},
                {"id": "f6", "price": {**FEED, "price": "-5"}},
                {"id": "f7", "price": {**FEED, "price": "1" * 60}},
                {"id": "f8", "price": {**FEED, "price": str(2**256), "conf": "0"}},
                {"id": "f9", "price": {**FEED, "price": "0", "conf": "0", "expo": 36}},
            ]
        },
        [(f"f{number}", 9) for number in range(10)],
        {
            ("f1", 9): VendorQuote(Decimal("1234.56"), 7, Decimal("0.990005")),
            ("f2", 9): Unknown("Pyth is not sure of it: 1234.56 ± 12.35 USD, at most ± 1% are allowed", "contract"),
            ("f3", 9): Unknown("Pyth's answer has no price: an exponent of 37", "contract"),
            ("f4", 9): Unknown("Pyth's answer has no price: 1.5 is no whole number", "contract"),
            ("f5", 9): VendorQuote(Decimal("1.23456E-31"), 7, Decimal("0.990005")),
            ("f6", 9): VendorQuote(Decimal("-0.05"), 7),
            ("f7", 9): VendorQuote(Decimal(f"{'1' * 58}.11"), 7),
            ("f8", 9): Unknown(f"Pyth's answer has no price: {str(2**256)[:40]} is no plain number", "contract"),
            ("f9", 9): VendorQuote(Decimal(0), 7),
        },
    ),
    (
        "jupiter",
        {
            jupiter.WRAPPED: {"usdPrice": 150.5, "liquidity": 10_000},
            "m": {"usdPrice": 2, "liquidity": 10_000.5},
            "thin": {"usdPrice": 2, "liquidity": 9999.99},
            "bad": {"usdPrice": None, "liquidity": 1},
        },
        [(jupiter.WRAPPED, 9), ("m", 9), ("thin", 9), ("bad", 9), ("none", 9)],
        {
            (jupiter.WRAPPED, 9): VendorQuote(Decimal("150.5"), 9),
            ("m", 9): MarketQuote(Decimal(2), 9, Decimal("10000.5")),
            ("thin", 9): Unknown(
                "Jupiter's price is not to be relied on: its markets have 9999.99 USD, 10000 are the least", "contract"
            ),
            ("bad", 9): Unknown("Jupiter's answer has no price: null is no plain number", "contract"),
        },
    ),
    ("binance", [], [("A", 100)], {}),
    (
        "binance",
        [candle(59_999, "9"), candle(119_999, "2.5"), candle(179_999, "3", trades=0), candle(239_999, "4")],
        [("A", 59), ("A", 60), ("A", 120), ("A", 239)],
        {
            ("A", 59): Unknown("there was no trade before the block; the first minute closed 1 s after the block"),
            ("A", 60): VendorQuote(Decimal(9), 60),
            ("A", 120): VendorQuote(Decimal("2.5"), 120),
            ("A", 239): VendorQuote(Decimal("2.5"), 120),
        },
    ),
    (
        "binance",
        [candle(59_999, "1e99")],
        [("A", 60)],
        {("A", 60): Unknown("Binance's answer has no price: 1.000E+99 is out of all proportion", "contract")},
    ),
    (
        "binance",
        [CANDLE[:8]],
        [("A", 100)],
        {("A", 100): Unknown("Binance's answer has no price: list index out of range", "contract")},
    ),
]


@pytest.mark.parametrize(("vendor", "answer", "keys", "expected"), ANSWERS)
def test_a_vendors_answer_is_read_as_exactly_these_quotes(
    vendor: str, answer: object, keys: Sequence[Any], expected: dict[Any, Any]
) -> None:
    assert BATCHES[vendor].parse(json.dumps(answer).encode(), keys) == expected


@pytest.mark.parametrize("vendor", BATCHES)
@pytest.mark.parametrize("body", [b"", b"<html>", b"5", b'"\xff"', b"[" * 10_000])
def test_what_is_no_answer_of_a_vendor_is_a_value_error(vendor: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        BATCHES[vendor].parse(body, [("a", 1)])


@pytest.mark.parametrize("text", ["1", "-1", "1.5", "1e-7", "1E+300", "9" * 60, f"0.{'1' * 120}"])
def test_a_plain_number_is_read_to_its_last_digit(text: str) -> None:
    assert vendors.parse_number(text) == vendors.parse_number(msgspec.Raw(text.encode())) == Decimal(text)


@pytest.mark.parametrize("text", ["", "+1", "1.", ".5", "1e", "1e1000", "9" * 61, f"0.{'1' * 121}", "1\n", "NaN"])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text[:40])} is no plain number$"):
        vendors.parse_number(text)


def test_names_of_a_vendor_stand_behind_what_its_own_section_says() -> None:
    names = {
        "chains": {"one": {"pyth": "1", "binance": "b1"}, "two": {"binance": "b2"}},
        "coins": {"x": {"pyth": "px"}, "y": {"pyth": "py", "coingecko": "gy"}},
        "pyth": {"max_age_s": 5, "base_url": "http://a"},
    }
    tree = {
        "pyth": {"base_url": "http://b", "coins": {"y": "own"}, "chains": {"own": "2"}},
        "binance": {"coins": 5},
        "peg": {"z": "1"},
    }
    assert add_vendor_names(tree, names) == {
        "pyth": {
            "max_age_s": 5,
            "base_url": "http://b",
            "chains": {"one": "1", "own": "2"},
            "coins": {"x": "px", "y": "own"},
        },
        "binance": {"coins": 5, "chains": {"one": "b1", "two": "b2"}},
        "peg": {"z": "1"},
    }
