"""Frames say exactly what answers say: text for text, and the decimal beside it rounded once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from fractions import Fraction

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.contracts import Holding, Position, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import ASSETS
from chainfolio.portfolio.frames import DECIMAL_PLACES, frame
from chainfolio.portfolio.nav import Nav
from chainfolio.portfolio.numbers import UNKNOWN
from chainfolio.portfolio.transactions import COLUMNS, Nft, Transactions
from chainfolio.portfolio.valuation import valuate
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, USDC, erc20, native, price, snapshot
from tests.portfolio.test_pnl_records import ME, OTHER, POOL, asset, transaction

raws = st.integers(-(2**256), 2**256)
numbers = st.builds(lambda raw, places: amounts.text(amounts.amount(abs(raw), places)), raws, st.integers(0, 40))
cells = st.one_of(st.just(UNKNOWN), st.none(), numbers)


@given(st.lists(st.tuples(st.text(), cells)))
def test_every_number_is_its_text_and_what_is_not_known_is_null(rows: list[tuple[str, str | None]]) -> None:
    table = frame(("name", "value"), rows, numbers=("value",))
    assert table["name"].to_list() == [name for name, _ in rows]
    assert table["value"].to_list() == [None if value == UNKNOWN else value for _, value in rows]
    assert table.schema == {"name": pl.String, "value": pl.String, "valueDecimal": pl.Decimal(38, DECIMAL_PLACES)}


@given(numbers)
def test_the_decimal_is_the_nearest_that_there_is(number: str) -> None:
    (nearest,) = frame(("value",), [(number,)], numbers=("value",))["valueDecimal"]
    exact = Fraction(number)
    if nearest is None:
        assert exact >= Fraction(10) ** (38 - DECIMAL_PLACES) - Fraction(1, 10**DECIMAL_PLACES)
    else:
        assert abs(Fraction(nearest) - exact) <= Fraction(1, 2 * 10**DECIMAL_PLACES)


@given(st.integers(0, 2**256 - 1))
def test_whole_numbers_have_no_places(raw: int) -> None:
    table = frame(("raw",), [(str(raw),)], numbers=("raw",), decimal_places=0)
    assert table["raw"].item() == str(raw)
    assert table["rawDecimal"].item() == (Decimal(raw) if raw < 10**38 else None)


@given(st.integers(0, 2**256 - 1), st.integers(0, 36))
def test_a_net_asset_value_is_one_row_that_says_it_exactly(raw: int, scale: int) -> None:
    with localcontext(amounts.EXACT):
        value = Decimal(raw).scaleb(-scale)
    table = Nav(value, "EUR", Decimal("0.92"), 2, "partial", "ecb").to_polars()
    assert Fraction(table["nav"].item()) == Fraction(value)
    assert table.drop("nav", "navDecimal").row(0) == (
        "EUR",
        "0.92",
        "ecb",
        2,
        "partial",
        Decimal("0.92"),
    )


def test_a_frame_without_rows_has_its_columns() -> None:
    table = frame(("time", "block"), [], times=("time",), counts=("block",))
    assert table.schema == {"time": pl.Datetime("us", "UTC"), "block": pl.Int64}
    assert table.is_empty()


def test_a_portfolio_is_a_row_for_each_asset_with_its_side() -> None:
    def usdc_holding(raw: int) -> tuple[Holding, ...]:
        return (Holding(ALICE, erc20(), raw),)

    coin = Holding(ALICE, native(), 10**18)
    lending = Position(
        ALICE, "aave3", "LENDING", "Main", usdc_holding(5), borrowed=usdc_holding(2), rewards=usdc_holding(3)
    )
    wallet_snapshot = replace(
        snapshot(*usdc_holding(1_500_000), coin, prices=(price(erc20(), "2"),)),
        positions=(lending,),
        spam={(ALICE, coin.token.asset): Spam(90, ("LINK",))},
    )
    table = portfolio(ALICE, valuate([wallet_snapshot]), CHAINS, updated_ms=1).to_polars()
    texts = table.select(ASSETS)
    wallet_columns, vault_columns = (
        (ALICE, "ethereum", BLOCK.height, "wallet", "WALLET", ""),
        ("aave3", "LENDING", "Main"),
    )
    assert set(texts.rows()) == {
        (*wallet_columns, "owned", "usdc", USDC, "1.5", "2", "3", None),
        (*wallet_columns, "owned", "eth", coin.token.asset.shown_contract, "1", None, None, "spam"),
        (*wallet_columns[:3], *vault_columns, "owned", "usdc", USDC, "0.000005", "2", "0.00001", None),
        (*wallet_columns[:3], *vault_columns, "owed", "usdc", USDC, "0.000002", "2", "0.000004", None),
        (*wallet_columns[:3], *vault_columns, "claimable", "usdc", USDC, "0.000003", "2", "0.000006", None),
    }
    assert table["valueDecimal"].sum() == Decimal("3.00002")


def test_transactions_are_a_row_for_each_asset_and_the_fee_stands_once() -> None:
    nft = asset("nft", "1", nft=Nft(token_id="7"))
    swap = transaction("SWAP", [asset("a", "5", "50"), nft], [asset("b", "7", "49")], ("2", "3"))
    vote, gift = transaction("VOTE", fee=("4", "5")), transaction("TRANSFERIN", [asset("a", "1", "10")], sender=OTHER)
    table = Transactions((swap, vote, gift)).to_polars()
    time = datetime.fromtimestamp(1_600_000_000, UTC)

    def shared(type_: str, sender: str = ME) -> tuple[object, ...]:
        return "chain", 1, time, "0x1", type_, "", "unknown", sender, POOL

    assert table.select(COLUMNS).rows() == [
        (*shared("SWAP"), "in", "a", "a", None, "5", None, "50", "2", "coin"),
        (*shared("SWAP"), "in", "nft", "nft", "7", "1", None, None, None, None),
        (*shared("SWAP"), "out", "b", "b", None, "7", None, "49", None, None),
        (*shared("VOTE"), *[None] * 7, "4", "coin"),
        (*shared("TRANSFERIN", OTHER), "in", "a", "a", None, "1", None, "10", None, None),
    ]
    assert (table["feeDecimal"].sum(), table["valueDecimal"].sum()) == (6, 109)
