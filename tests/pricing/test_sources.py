"""Fixed prices, Chainlink, the chain of sources and the registry, answered from dictionaries."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.prices.chainlink import LATEST, build_chainlink
from chainfolio.adapters.evm.reads import DECIMALS, Call, Read
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Reverted, Unknown, run_offline
from chainfolio.price_sources import PriceSection, PriceSource, Quotes, Refusal
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.registry import build_sources, load_sections
from chainfolio.pricing.source_chain import query_sources

BLOCK = Block(100, "0xaa", "0xbb", 1_760_000_000_500_000)
NOW_S = 1_760_000_000
ETH, WETH, USDC = "eip155:1/slip44:60", f"eip155:1/erc20:0x{'c0' * 20}", f"eip155:1/erc20:0x{'a0' * 20}"
ETH_USD, USDC_USD = f"0x{'f1' * 20}", f"0x{'f2' * 20}"
FEEDS = {
    ETH: {"feed": ETH_USD, "decimals": 8, "heartbeat_s": 3600},
    WETH: {"feed": ETH_USD, "decimals": 8, "heartbeat_s": 3600},
    USDC: {"feed": USDC_USD, "decimals": 8, "heartbeat_s": 86_400},
}
SAID: dict[Read, Any] = {
    Call(ETH_USD, LATEST): (7, 200_012_345_678, NOW_S - 60, NOW_S - 50, 7),
    Call(ETH_USD, DECIMALS): 8,
    Call(USDC_USD, LATEST): (9, 99_990_000, NOW_S - 80_000, NOW_S - 80_000, 9),
    Call(USDC_USD, DECIMALS): 8,
}


def quoted(source: PriceSource, *assets: str, answers: dict[Read, Any] | None = None) -> Quotes:
    return run_offline(source.prices([asset(each) for each in assets], BLOCK), SAID if answers is None else answers)


def never(_: Read) -> Any:
    raise AssertionError("asked")


# --- fixed ------------------------------------------------------------------------------------------------------------


def test_a_fixed_price_is_certain_at_every_block_and_asks_nobody() -> None:
    quotes = run_offline(build_fixed({USDC: "1.00"}, "prices").prices([asset(ETH), asset(USDC)], BLOCK), never)
    assert quotes == Quotes((Price(asset(USDC), Decimal("1.00"), "fixed", BLOCK.time_us, Decimal(1)),))


@pytest.mark.parametrize(
    "price", ["0", "-1", "1e3", "NaN", "", "0.0", "1000000000000.01", "9" * 200, 1.0, 1, True, None, " 1"]
)
def test_a_fixed_price_that_is_none_is_a_settings_error_that_names_the_asset(price: object) -> None:
    with pytest.raises(BadSettings, match="a0a0"):
        build_fixed({USDC: price}, "[prices]")


def test_fixed_prices_reach_to_their_bound() -> None:
    assert build_fixed({USDC: "1000000000000"}, "prices").usd[asset(USDC)] == 10**12


@pytest.mark.parametrize("name", ["usdc", "eip155:1/erc20:0x1", f"eip155:1/erc20:0x{'A0' * 20}", ETH + " "])
def test_an_asset_that_is_not_canonical_is_a_settings_error(name: str) -> None:
    with pytest.raises(BadSettings):
        build_fixed({name: "1"}, "[prices]")


# --- chainlink --------------------------------------------------------------------------------------------------------


def test_a_fresh_feed_is_a_price_with_its_time_and_round() -> None:
    (price,) = quoted(build_chainlink(FEEDS, "x"), ETH).prices
    assert price == Price(
        asset(ETH),
        Decimal("2000.12345678"),
        "chainlink",
        (NOW_S - 50) * 1_000_000,
        Decimal(1),
        f"feed {ETH_USD} round 7",
    )
    assert {call.read: call.result for call in price.calls} == {
        k: v for k, v in SAID.items() if isinstance(k, Call) and k.to == ETH_USD
    }


def test_all_feeds_are_read_in_one_round_and_unknown_assets_not_at_all() -> None:
    plan = build_chainlink(FEEDS, "x").prices([asset(ETH), Asset("eip155:1", "erc20", "0xunknown"), asset(USDC)], BLOCK)
    reads = next(plan)
    assert list(reads) == list(SAID)
    with pytest.raises(StopIteration) as stop:
        plan.send([SAID[ask] for ask in reads if isinstance(ask, Read)])
    assert [str(price.asset) for price in stop.value.value.prices] == [ETH, USDC]


def test_where_there_is_no_feed_nothing_is_asked() -> None:
    assert run_offline(build_chainlink({}, "x").prices([asset(ETH)], BLOCK), never) == Quotes()


def test_the_heartbeat_is_the_feeds_own() -> None:
    late = (9, 99_990_000, NOW_S - 4000, NOW_S - 4000, 9)
    quotes = quoted(
        build_chainlink(FEEDS, "x"),
        ETH,
        USDC,
        answers=SAID | {Call(ETH_USD, LATEST): late, Call(USDC_USD, LATEST): late},
    )
    assert [str(price.asset) for price in quotes.prices] == [USDC]
    (refusal,) = quotes.refused
    assert refusal.asset == asset(ETH)
    assert refusal.source == "chainlink"
    assert "stale: 4000 s old, its heartbeat is 3600 s" in refusal.reason
    assert ETH_USD in refusal.reason


@pytest.mark.parametrize(
    ("feed_answers", "reason"),
    [
        ({Call(ETH_USD, LATEST): Reverted(b"No data present")}, "refused to tell its latest round"),
        ({Call(ETH_USD, LATEST): Unknown("no code there")}, "no code there"),
        ({Call(ETH_USD, DECIMALS): Reverted()}, "refused to tell its decimals"),
        ({Call(ETH_USD, DECIMALS): 18}, "18 decimals, the settings say 8"),
        ({Call(ETH_USD, LATEST): (7, -5, 0, NOW_S, 7)}, "negative"),
    ],
)
def test_a_feed_that_cannot_be_believed_says_why_and_spoils_no_other(
    feed_answers: dict[Read, Any], reason: str
) -> None:
    quotes = quoted(build_chainlink(FEEDS, "x"), ETH, USDC, answers=SAID | feed_answers)
    assert [str(price.asset) for price in quotes.prices] == [USDC]
    assert [reason in refusal.reason for refusal in quotes.refused] == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"feed": "0x1"},
        {"feed": ETH_USD.upper()},
        {"feed": 5},
        {"decimals": 37},
        {"decimals": "8"},
        {"decimals": True},
        {"heartbeat_s": 0},
        {"heartbeat_s": 1.5},
        {"extra": 1},
    ],
)
def test_a_feed_that_is_written_wrongly_is_a_settings_error(change: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        build_chainlink({ETH: FEEDS[ETH] | change}, "x")


def test_feeds_of_two_chains_in_one_section_are_a_settings_error() -> None:
    with pytest.raises(BadSettings, match="several chains"):
        build_chainlink({WETH: FEEDS[ETH], WETH.replace(":1/", ":8453/"): FEEDS[ETH]}, "x")


def test_a_feed_may_price_the_native_coin_of_another_chain() -> None:
    """There is no other way to ask for a net asset value in the coin of a chain that is not configured."""
    solana = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/slip44:501"
    feeds = build_chainlink({WETH: FEEDS[ETH], solana: FEEDS[ETH]}, "x")
    assert [price.usd for price in quoted(feeds, solana).prices] == [Decimal("2000.12345678")]


# --- the chain of sources ---------------------------------------------------------------------------------------------


@dataclass
class Scripted:
    """A source that returns or raises `gives` and records the assets asked of it."""

    name: str
    gives: Quotes | Exception
    requests: tuple[Asset, ...] = ()

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        self.requests = tuple(assets)
        yield [Call(self.name, "x()(uint256)")]
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


def price(name: str, usd: str, source: str) -> Price:
    return Price(asset(name), Decimal(usd), source, BLOCK.time_us, Decimal(1))


def chain_quoted(chained: list[Any], *assets: str) -> Quotes:
    return run_offline(query_sources(chained, [asset(each) for each in assets], BLOCK), lambda _: 1)


def test_the_next_source_is_asked_only_for_what_is_unpriced_and_each_price_names_its_source() -> None:
    first = Scripted("first", Quotes((price(ETH, "2000", "first"),), (Refusal(asset(USDC), "first", "stale"),)))
    second = Scripted("second", Quotes((price(USDC, "1", "second"),)))
    third = Scripted("third", Quotes())
    quotes = chain_quoted([first, second, third], USDC, ETH, USDC)
    assert [(str(each.asset), each.source) for each in quotes.prices] == [(USDC, "second"), (ETH, "first")]
    assert quotes.refused == (Refusal(asset(USDC), "first", "stale"),)
    assert (first.requests, second.requests, third.requests) == ((asset(USDC), asset(ETH)), (asset(USDC),), ())


def test_a_source_that_breaks_is_a_refusal_and_the_next_is_asked() -> None:
    quotes = chain_quoted(
        [Scripted("broken", ZeroDivisionError("oh")), Scripted("whole", Quotes((price(ETH, "2", "whole"),)))], ETH
    )
    assert [each.source for each in quotes.prices] == ["whole"]
    assert [(each.source, each.reason) for each in quotes.refused] == [
        ("broken", "the source failed: ZeroDivisionError: oh")
    ]


def test_an_impossible_price_is_refused_and_one_nobody_asked_for_ignored() -> None:
    quotes = chain_quoted([Scripted("odd", Quotes((price(ETH, "0", "odd"), price(USDC, "1", "odd"))))], ETH)
    assert quotes.prices == ()
    assert [each.asset for each in quotes.refused] == [asset(ETH)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"usd": float("nan")}, "the price's usd is a float, not a Decimal"),
        ({"usd": "1.5"}, "the price's usd is a str, not a Decimal"),
        ({"usd": Decimal("NaN")}, "the price is not above zero: NaN"),
        ({"usd": Decimal("sNaN")}, "the price is not above zero: sNaN"),
        ({"usd": Decimal("Infinity")}, "the price is not above zero: Infinity"),
        ({"usd": Decimal(-3)}, "the price is not above zero: -3"),
        ({"usd": Decimal("1e400")}, "the price is out of all proportion: 1.000E+400 USD"),
        ({"time_us": 1.5}, "the price's time_us is a float, not an int"),
        ({"confidence": None}, "the price's confidence is a NoneType, not a Decimal"),
        ({"depth_usd": 7000.0}, "the price's depth_usd is a float, not a Decimal"),
        ({"depth_usd": Decimal("NaN")}, "what its market could pay is no sum: NaN"),
        ({"depth_usd": Decimal("sNaN")}, "what its market could pay is no sum: sNaN"),
        ({"depth_usd": Decimal("Infinity")}, "what its market could pay is no sum: Infinity"),
        ({"depth_usd": Decimal(-1)}, "what its market could pay is no sum: -1"),
        ({"depth_usd": Decimal("1e999")}, "what its market could pay is out of all proportion: 1.000E+999 USD"),
        ({"depth_usd": Decimal("1e-999")}, "what its market could pay is out of all proportion: 1.000E-999 USD"),
        ({"depth_usd": Decimal("1." + "1" * 120)}, "what its market could pay has more than 120 digits"),
        ({"source": "fixed"}, "the price names another source: fixed"),
    ],
)
def test_a_price_that_is_none_is_refused_and_the_next_source_is_asked(change: dict[str, Any], reason: str) -> None:
    odd = Scripted("odd", Quotes((replace(price(ETH, "1", "odd"), **change), price(USDC, "1", "odd"))))
    quotes = chain_quoted([odd, Scripted("whole", Quotes((price(ETH, "2", "whole"),)))], ETH, USDC)
    assert [(str(each.asset), each.source) for each in quotes.prices] == [(ETH, "whole"), (USDC, "odd")]
    assert quotes.refused == (Refusal(asset(ETH), "odd", reason),)


ODD: dict[str, Any] = {
    "nothing": None,
    "a tuple": (),
    "text as a price": Quotes(("1.5",)),  # type: ignore[arg-type]
    "text as a refusal": Quotes(refused=("no",)),  # type: ignore[arg-type]
    "text as an asset": Quotes((replace(price(ETH, "1", "odd"), asset=ETH),)),  # type: ignore[arg-type]
    "a number": Quotes(5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_quotes_is_a_refusal_of_the_source(name: str) -> None:
    quotes = chain_quoted([Scripted("odd", ODD[name]), Scripted("whole", Quotes((price(ETH, "2", "whole"),)))], ETH)
    assert [each.source for each in quotes.prices] == ["whole"]
    ((source, reason),) = [(each.source, each.reason) for each in quotes.refused]
    assert (source, reason.partition(": ")[0]) == ("odd", "the source failed")


def test_no_assets_and_no_sources_are_no_quotes() -> None:
    assert chain_quoted([]) == Quotes()
    assert chain_quoted([], ETH) == Quotes()
    assert chain_quoted([Scripted("never", Quotes())]) == Quotes()


# --- the registry -----------------------------------------------------------------------------------------------------


def test_the_settings_come_first_then_fixed_then_feeds_then_pegs() -> None:
    tree = {"peg": {USDC: "1", WETH: "5"}, "chainlink": {"ethereum": FEEDS}, "fixed": {ETH: "3"}}
    chained = build_sources(tree, {ETH: "4"}, "ethereum", "evm")
    quotes = run_offline(
        query_sources(chained, [asset(ETH), asset(WETH), asset(USDC)], BLOCK), SAID | {Call(USDC_USD, DECIMALS): 6}
    )
    assert [(each.source, each.usd) for each in quotes.prices] == [
        ("fixed", Decimal(4)),
        ("chainlink", Decimal("2000.12345678")),
        ("peg", Decimal(1)),
    ]


def test_a_source_that_reads_another_kind_of_chain_is_told_where_a_section_names_that_chain() -> None:
    tree = {"chainlink": {"ethereum": FEEDS}, "fixed": {ETH: "3"}}
    assert [source.name for source in build_sources(tree, {}, "moon", "moonchain")] == ["fixed"]
    with pytest.raises(BadSettings, match="chainlink reads chains of the kind evm, and moon is of the kind moonchain"):
        build_sources({"chainlink": {"moon": FEEDS}}, {}, "moon", "moonchain")


@pytest.mark.parametrize("chain", ["ethereum", "arbitrum", "local", "nowhere"])
def test_the_shipped_prices_can_be_read_for_every_chain(chain: str) -> None:
    tree = tomllib.loads((Path(__file__).parents[2] / "configs" / "prices.toml").read_text())
    assert {source.name for source in build_sources(tree, {}, chain, "evm")} <= {"fixed", "chainlink", "peg"}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"pegs": {}}, r"did you mean \[peg\]"),
        ({"coins": {}}, "known are .*chainlink.*fixed.*peg"),
        ({"fixed": "1"}, "is not a section"),
        ({"chainlink": {"ethereum": 5}}, "prices.toml: chainlink.ethereum: is not a section"),
        ({"fixed": {ETH: "-1"}}, "prices.toml: fixed"),
    ],
)
def test_a_prices_file_that_is_wrong_says_where(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message) as caught:
        build_sources(tree, {}, "ethereum", "evm")
    (section,) = tree
    assert (caught.value.field + str(caught.value)).startswith("prices.toml")
    assert section in str(caught.value)


def test_sources_of_ours_are_the_modules_that_have_a_section_and_no_others() -> None:
    assert load_sections(["fixed", "chainlink", "peg"], "prices.toml").keys() == {"fixed", "chainlink", "peg"}
    for name in ("guards", "quotes", "os.path", ""):
        with pytest.raises(BadSettings, match=rf"unknown section \[{name}\]"):
            load_sections([name], "prices.toml")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda section, chain, where: section["url"], "no source can be made of it: KeyError: 'url'"),
        (lambda section, chain, where: None, "what is made of it is a NoneType, not a source of prices"),
    ],
)
def test_a_section_of_which_no_source_can_be_made_is_a_settings_error_that_names_it(
    build: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.pricing.registry.load_sections", lambda names, file: {"odd": PriceSection(build)})
    with pytest.raises(BadSettings) as caught:
        build_sources({"odd": {}}, {}, "ethereum", "evm")
    assert str(caught.value) == f"prices.toml: odd: {reason}"


def test_a_source_that_two_packages_have_is_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("odd", f"{package}:SECTION", "chainfolio.prices") for package in ("p_one", "p_two")]
    monkeypatch.setattr("chainfolio.pricing.registry.entry_points", lambda **_: entries)
    with pytest.raises(BadSettings, match=r"\[odd\]: several packages .* p_one:SECTION, p_two:SECTION"):
        load_sections(["odd"], "prices.toml")


# --- a chain with a sequencer -----------------------------------------------------------------------------------------

UPTIME = f"0x{'5e' * 20}"
L2 = {**FEEDS, "sequencer": {"feed": UPTIME, "grace_s": 3600}}


def uptime(status: int, since_s: int) -> dict[Read, Any]:
    return SAID | {Call(UPTIME, LATEST): (2, status, since_s, since_s, 2)}


def test_feeds_are_believed_while_the_sequencer_is_up_and_its_feed_is_read_in_the_same_round() -> None:
    plan = build_chainlink(L2, "x").prices([asset(ETH)], BLOCK)
    reads = next(plan)
    assert list(reads) == [Call(ETH_USD, LATEST), Call(ETH_USD, DECIMALS), Call(UPTIME, LATEST)]
    (ether_price,) = quoted(build_chainlink(L2, "x"), ETH, answers=uptime(0, NOW_S - 3601)).prices
    assert [call.read for call in ether_price.calls] == list(reads)


@pytest.mark.parametrize(
    ("feed_answers", "reason"),
    [
        (uptime(1, NOW_S - 9), "the sequencer is down"),
        (uptime(0, NOW_S - 3600), "the sequencer is up for 3600 s only, 3600 s are waited for"),
        (uptime(0, NOW_S + 5), "the sequencer's feed is dated 5 s after the block"),
        (uptime(0, 0), "the sequencer's feed has no round yet"),
        (uptime(2, NOW_S - 9999), "the sequencer's feed answers 2, not 0 or 1"),
        (SAID | {Call(UPTIME, LATEST): Reverted(b"")}, "whether the sequencer is up is not known"),
        (SAID | {Call(UPTIME, LATEST): Unknown("timed out")}, "whether the sequencer is up is not known"),
    ],
)
def test_no_feed_is_believed_while_the_sequencer_is_down_just_came_back_or_is_not_known(
    feed_answers: dict[Read, Any], reason: str
) -> None:
    quotes = quoted(build_chainlink(L2, "x"), ETH, USDC, answers=feed_answers)
    assert quotes.prices == ()
    assert [(str(each.asset), reason in each.reason, UPTIME in each.reason) for each in quotes.refused] == [
        (ETH, True, True),
        (USDC, True, True),
    ]


def test_before_the_uptime_feed_was_there_nobody_could_know_and_feeds_are_believed() -> None:
    absent = SAID | {Call(UPTIME, LATEST): Unknown("no contract there", "absent")}
    assert [str(each.asset) for each in quoted(build_chainlink(L2, "x"), ETH, answers=absent).prices] == [ETH]


@pytest.mark.parametrize("facts", [5, {"feed": UPTIME}, {"feed": "0x1", "grace_s": 5}, {"feed": UPTIME, "grace_s": -1}])
def test_a_sequencer_that_is_written_wrongly_is_a_settings_error(facts: Any) -> None:
    with pytest.raises(BadSettings):
        build_chainlink({**FEEDS, "sequencer": facts}, "x")
