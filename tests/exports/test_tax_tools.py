"""Rows of tax tools: every amount once, each pair in one row, and types that the tools know."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.amounts import EXACT
from chainfolio.exports import coinledger, cointracking, koinly, rotki
from chainfolio.exports.formats import TAX_TOOLS
from tests.exports.samples import NATIVE, USDC, asset, transaction

SWAP = transaction(
    asset("0.5"),
    asset("1000.000001", "usdc", USDC, price="1", into=False),
    fees="0.001",
    fees_fiat="2",
    protocol="Uniswap",
)
HASH = SWAP.hash
IS_AMOUNT = re.compile(r"(?!Net Worth).*Amount.*|Fee")


def test_a_swap_is_one_row_of_koinly() -> None:
    assert list(koinly.rows(SWAP)) == [
        (
            "2023-11-14 22:13:20 UTC",
            *("1000.000001", "USDC", "0.5", "ETH", "0.001", "ETH", "1000", "USD", "", "swap Uniswap", HASH),
        )
    ]


def test_a_swap_is_a_trade_and_a_fee_of_cointracking() -> None:
    tail = ("", "", "ethereum", "", f"{HASH} swap Uniswap", "14.11.2023 22:13:20")
    assert list(cointracking.rows(SWAP)) == [
        ("Trade", "0.5", "ETH", "1000.000001", "USDC", *tail),
        ("Other Fee", "", "", "0.001", "ETH", *tail),
    ]


def test_a_swap_is_one_trade_of_coinledger() -> None:
    assert list(coinledger.rows(SWAP)) == [
        (
            *("11/14/2023 22:13:20", "ethereum", "USDC", "1000.000001", "ETH", "0.5", "ETH", "0.001"),
            *("Trade", "swap Uniswap", HASH),
        )
    ]


def test_a_swap_is_two_events_of_rotki_in_milliseconds() -> None:
    text = f"ethereum {HASH} swap Uniswap"
    assert list(rotki.rows(SWAP)) == [
        ("Income", "external", "ETH", "0.5", "0.001", "ETH", text, "1700000000000"),
        ("Spend", "external", "USDC", "1000.000001", "", "", text, "1700000000000"),
    ]


@pytest.mark.parametrize(
    ("tool", "column", "reward", "fee"),
    [
        ("koinly", "Label", "reward", "cost"),
        ("cointracking", "Type", "Reward / Bonus", "Other Fee"),
        ("coinledger", "Type", "Staking", "Merchant Payment"),
        ("rotki", "Type", "Staking", "Spend"),
    ],
)
def test_rewards_and_fees_without_a_movement_have_their_types(tool: str, column: str, reward: str, fee: str) -> None:
    chosen = TAX_TOOLS[tool]
    at = chosen.columns.index(column)
    claim = transaction(asset("1"), kind="CLAIM")
    failed = transaction(kind="FAILED", fees="0.1", fees_fiat="200")
    assert [row[at] for row in chosen.rows_of(claim)] == [reward]
    (row,) = chosen.rows_of(failed)
    assert row[at] == fee
    assert "0.1" in row


def test_an_amount_that_is_not_known_is_in_no_row_and_is_named() -> None:
    rows = list(koinly.rows(transaction(asset("1"), asset("N/A", "odd", USDC, price="N/A"))))
    assert [row[3] for row in rows] == ["1"]
    assert f"(amount of {USDC} not known)" in str(rows[0][10])


def test_a_transaction_without_movement_and_fee_has_no_row() -> None:
    for tool in TAX_TOOLS.values():
        assert list(tool.rows_of(transaction(kind="APPROVAL"))) == []
        assert all(len(row) == len(tool.columns) for row in tool.rows_of(SWAP))


numbers = st.integers(1, 10**30).map(lambda raw: f"{EXACT.scaleb(Decimal(raw), -18):f}")
moves = st.lists(st.tuples(numbers, st.sampled_from([("eth", NATIVE), ("usdc", USDC)]), st.booleans()), max_size=5)


@given(moves)
def test_every_amount_and_the_fee_are_once_in_every_tool(
    chosen: list[tuple[str, tuple[str, str], bool]],
) -> None:
    assets = [asset(amount, *token, into=into) for amount, token, into in chosen]
    expected = Counter(each.balance for each in assets) + Counter(["7.25"])
    document = transaction(*assets, fees="7.25")
    for tool in TAX_TOOLS.values():
        numeric = [at for at, name in enumerate(tool.columns) if IS_AMOUNT.fullmatch(name)]
        cells = Counter(str(row[at]) for row in tool.rows_of(document) for at in numeric if row[at])
        assert cells == expected
