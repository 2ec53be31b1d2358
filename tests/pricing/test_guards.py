from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.prices.feed_rounds import ROUND_RULES, FeedRound, read_fault, round_fault
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import Reverted, Unknown
from chainfolio.price_sources import MAX_USD, MIN_USD
from chainfolio.pricing.guards import MAX_DEPTH, MAX_DIGITS, price_fault

GOOD = FeedRound(
    round_id=7,
    answer=2000 * 10**8,
    updated_s=9_000,
    answered_in_round=7,
    decimals=8,
    feed_decimals=8,
    heartbeat_s=1_000,
    block_s=10_000,
)
BLOCK = Block(1, "0x01", "0x00", 10_000_000_000)
PRICE = Price(Asset("eip155:1", "slip44", "60"), Decimal(2000), "x", 9_000_000_000, Decimal(1))

# One row a rule, in the order of the rules, and rows just inside each bound.
REFUSED = [
    ({"feed_decimals": 18}, "the feed has 18 decimals, the settings say 8"),
    ({"answer": 0}, "zero"),
    ({"answer": -1}, "negative"),
    ({"updated_s": 0}, "not complete"),
    ({"updated_s": 10_001}, "1 s after the block"),
    ({"updated_s": 8_899}, "stale: 1101 s old"),
    ({"answered_in_round": 6}, "answer of round 6 into round 7"),
    ({"answer": 10**20 + 1}, "more than 1000000000000"),
    ({"answer": 1, "decimals": 19, "feed_decimals": 19}, "less than 0.000000000000000001"),
]
TAKEN = [
    {},
    {"updated_s": 10_000},
    {"updated_s": 8_900},
    {"answered_in_round": 0},
    {"answer": 10**20},
    {"answer": 1, "decimals": 18, "feed_decimals": 18},
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_a_round_is_refused_for_a_reason(change: dict[str, int], reason: str) -> None:
    assert reason in round_fault(replace(GOOD, **change))


@pytest.mark.parametrize("change", TAKEN)
def test_a_round_inside_the_bounds_is_taken(change: dict[str, int]) -> None:
    assert round_fault(replace(GOOD, **change)) == ""


def test_every_rule_has_its_row() -> None:
    hit = {
        next(n for n, (holds, _) in enumerate(ROUND_RULES) if holds(replace(GOOD, **change))) for change, _ in REFUSED
    }
    assert hit == set(range(len(ROUND_RULES)))


@given(
    st.tuples(
        st.integers(0, 2**80 - 1),
        st.integers(-(2**255), 2**255 - 1),
        st.integers(0, 2**256 - 1),
        st.integers(0, 2**80 - 1),
    ),
    st.integers(0, 36),
)
def test_whatever_a_feed_says_is_judged_without_raising(raw_round: tuple[int, int, int, int], decimals: int) -> None:
    round_id, answer, updated_s, answered_in = raw_round
    feed_round = FeedRound(round_id, answer, updated_s, answered_in, decimals, decimals, 3600, 1_760_000_000)
    assert round_fault(feed_round) or 0 < feed_round.usd <= 10**12


@pytest.mark.parametrize(
    ("answer", "fault"), [(Reverted(), "refused"), (Unknown("no code"), "no code"), (8, ""), ((1, 2), "")]
)
def test_an_answer_that_is_none_has_a_reason(answer: object, fault: str) -> None:
    assert fault in read_fault("decimals", answer)
    assert bool(fault) == bool(read_fault("decimals", answer))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"usd": Decimal("NaN")}, "not above zero"),
        ({"usd": Decimal("sNaN")}, "not above zero"),
        ({"usd": Decimal("Infinity")}, "not above zero"),
        ({"usd": Decimal("-0.0")}, "not above zero"),
        ({"usd": Decimal("1E+400000")}, "out of all proportion"),
        ({"usd": Decimal("1E-30")}, "out of all proportion"),
        ({"usd": Decimal("1." + "1" * 200)}, "digits"),
        ({"usd": MIN_USD}, ""),
        ({"usd": MAX_USD}, ""),
        ({"usd": MIN_USD / 2}, "out of all proportion"),
        ({"usd": MAX_USD * 2}, "out of all proportion"),
        ({"usd": Decimal("1." + "1" * (MAX_DIGITS - 1))}, ""),
        ({"usd": Decimal("1." + "1" * MAX_DIGITS)}, f"the price has more than {MAX_DIGITS} digits"),
        ({"time_us": 10_000_000_001}, "after the block"),
        ({"time_us": 10_000_000_000}, ""),
        ({"confidence": Decimal("1.01")}, "confidence"),
        ({"confidence": Decimal("-0.01")}, "confidence"),
        ({"confidence": Decimal("NaN")}, "confidence"),
        ({"confidence": Decimal(0)}, ""),
        ({"depth_usd": Decimal(0)}, ""),
        ({"depth_usd": MIN_USD}, ""),
        ({"depth_usd": MAX_DEPTH}, ""),
        ({"depth_usd": Decimal("1." + "1" * (MAX_DIGITS - 1))}, ""),
        ({"depth_usd": Decimal(-1)}, "what its market could pay is no sum: -1"),
        ({"depth_usd": Decimal("Infinity")}, "what its market could pay is no sum"),
        ({"depth_usd": MIN_USD / 2}, "what its market could pay is out of all proportion"),
        ({"depth_usd": MAX_DEPTH * 2}, "what its market could pay is out of all proportion"),
        ({"depth_usd": Decimal("1." + "1" * MAX_DIGITS)}, f"could pay has more than {MAX_DIGITS} digits"),
    ],
)
def test_no_source_can_bring_a_price_that_cannot_be(change: dict[str, object], fault: str) -> None:
    message = price_fault(replace(PRICE, **change), BLOCK)  # type: ignore[arg-type]
    assert fault in message
    assert bool(fault) == bool(message)
