"""Values of many accounts computed in columns equal the values of their single holdings."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chainfolio.amounts import MAX_RAW
from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Issue, Position, Price, Snapshot, Spam, Token
from chainfolio.portfolio import columns
from chainfolio.portfolio.columns import MAX_PLACES, AssetQuote, values_by_account
from chainfolio.portfolio.valuation import valuate
from chainfolio.portfolio.worths import net_worth, net_worths
from tests.portfolio.examples import ALICE, BOB, IDS, erc20, native, price, snapshot

ACCOUNTS = (ALICE, BOB, "0x3333333333333333333333333333333333333333")
ASSETS = [Asset(IDS["ethereum"], "erc20", f"0x{number:040x}") for number in range(6)]
# Of every size, and around the edges of limbs and of all that fits.
RAWS = st.one_of(
    st.integers(0, MAX_RAW),
    st.integers(0, 10**24),
    st.sampled_from(
        [0, 1, 2**32 - 1, 2**32, 2**64 - 1, 2**64, 2**128 - 1, 2**192, MAX_RAW - 1, MAX_RAW, MAX_RAW + 1, -1]
    ),
)
DIGITS = st.integers(0, 10**38)
PRICES = st.one_of(
    st.builds(lambda digits, places: Decimal(digits).scaleb(-places), DIGITS, st.integers(0, 36)),
    st.builds(lambda digits, places: Decimal(digits).scaleb(places), DIGITS, st.integers(-200, 60)),
    st.sampled_from([Decimal(text) for text in ("0", "-1", "NaN", "Infinity", "1E-37", "1E+40", "0.99999999")]),
)
DEPTHS = st.one_of(st.none(), st.just(Decimal("NaN")), st.just(Decimal(-1)), PRICES.filter(Decimal.is_finite))
TOKENS = st.lists(
    st.builds(
        lambda asset, decimals: Token(asset, "T", "T", decimals),
        st.sampled_from(ASSETS),
        st.one_of(st.none(), st.sampled_from([0, 6, 8, 18, 18, 36]), st.integers(0, 256)),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw a snapshot with tokens of any decimals, amounts and prices, positions, and spam."""
    tokens = draw(TOKENS)
    holding = st.builds(Holding, st.sampled_from(ACCOUNTS), st.sampled_from(tokens), RAWS)
    priced = st.builds(
        lambda asset, usd, depth: Price(asset, usd, "example", 0, Decimal(1), depth_usd=depth),
        st.sampled_from(ASSETS),
        PRICES,
        DEPTHS,
    )
    part = st.tuples(st.sampled_from(tokens), RAWS)
    parts = st.lists(part, max_size=2)
    positions = st.builds(
        _position, st.sampled_from(ACCOUNTS), parts, parts, st.sets(st.sampled_from(ASSETS), max_size=2)
    )
    spam = st.dictionaries(
        st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(ASSETS)), st.just(Spam(90, ("airdrop",)))
    )
    issues = st.builds(
        lambda account, partial: Issue("balance", "0xaa", "refused", makes_partial=partial, account=account),
        st.sampled_from(["", *ACCOUNTS]),
        st.booleans(),
    )
    wallet_snapshot = snapshot(
        *draw(st.lists(holding, max_size=30)),
        prices=tuple(draw(st.lists(priced, max_size=8))),
        accounts=ACCOUNTS,
        issues=tuple(draw(st.lists(issues, max_size=2))),
        chain=draw(st.sampled_from(["ethereum", "base"])),
    )
    return replace(wallet_snapshot, positions=tuple(draw(st.lists(positions, max_size=2))), spam=draw(spam))


def _position(
    account: str, supplied: list[tuple[Token, int]], borrowed: list[tuple[Token, int]], replaces: set[Asset]
) -> Position:
    deposits, debts = (tuple(Holding(account, token, raw) for token, raw in side) for side in (supplied, borrowed))
    return Position(account, "aave3", "LENDING", "Main", deposits, debts, replaces=tuple(replaces))


@settings(deadline=None, max_examples=100, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(snapshots(), max_size=3))
def test_every_account_is_worth_the_same_as_by_its_rows(snapshot_list: list[Snapshot]) -> None:
    by_row = {account: net_worth(part) for account, part in valuate(snapshot_list).by_account().items()}
    assert net_worths(snapshot_list) == by_row


def test_a_bound_holds_for_all_that_an_account_has_of_an_asset() -> None:
    thin = replace(price(erc20(), "2"), depth_usd=Decimal(10))
    holdings = (
        Holding(ALICE, erc20(), 5 * 10**6),
        Holding(ALICE, erc20(), 5 * 10**6 + 1),
        Holding(ALICE, erc20(), 10**30),
        Holding(BOB, erc20(), 3 * 10**6),
    )
    vault = Position(BOB, "aave3", "LENDING", "Main", (Holding(BOB, erc20(), 4 * 10**6),))
    wallet_snapshot = replace(snapshot(*holdings, prices=(thin,), accounts=(ALICE, BOB)), positions=(vault,))
    worths_by_account = net_worths([wallet_snapshot])
    assert [worths_by_account[account].value_usd for account in (ALICE, BOB)] == [10, 10]
    assert worths_by_account == {
        account: net_worth(part) for account, part in valuate([wallet_snapshot]).by_account().items()
    }


def test_what_nobody_priced_is_counted_and_in_no_sum() -> None:
    holdings = Holding(ALICE, native(), 10**18), Holding(ALICE, erc20(), 7), Holding(BOB, erc20(decimals=None), 7)
    prices = price(native(), "2000"), price(erc20(), "NaN")
    worths_by_account = net_worths([snapshot(*holdings, prices=prices, accounts=(ALICE, BOB))])
    assert [(int(each.value_usd), each.unpriced_assets) for each in worths_by_account.values()] == [(2000, 1), (0, 1)]


def test_spam_of_an_account_is_in_no_sum_of_it() -> None:
    wallet_snapshot = snapshot(
        *(Holding(each, token, 10**6) for each in (ALICE, BOB) for token in (erc20(), erc20(ASSETS[1].reference))),
        prices=(price(erc20(), "2"), price(erc20(ASSETS[1].reference), "5")),
        accounts=(ALICE, BOB),
    )
    values = net_worths([replace(wallet_snapshot, spam={(ALICE, ASSETS[1]): Spam(90, ("LINK",))})])
    assert [(int(values[each].value_usd), values[each].unpriced_assets) for each in (ALICE, BOB)] == [(2, 0), (7, 0)]


def test_what_fits_columns_is_not_valued_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(quote: AssetQuote, raw: int) -> Decimal:
        raise AssertionError(f"{raw} at {quote} one by one")

    holdings = pl.DataFrame({"account": ["a"] * 2, "asset": ["t"] * 2, "raw": [MAX_RAW.to_bytes(32, "big")] * 2})
    finest = AssetQuote(18, Decimal("123456.123456789012345678901234567890123456"))
    expected = Fraction(2 * MAX_RAW, 10**18) * Fraction(finest.usd)
    monkeypatch.setattr(columns.AssetQuote, "value", refuse)
    assert {each: Fraction(usd) for each, usd in values_by_account(holdings, {"t": finest}).items()} == {"a": expected}
    with pytest.raises(AssertionError, match="one by one"):
        values_by_account(holdings, {"t": AssetQuote(MAX_PLACES, Decimal("0.1"))})


@pytest.mark.parametrize("side", ["supplied", "borrowed", "rewards"])
def test_a_position_with_parts_of_another_account_is_refused(side: str) -> None:
    parts: dict[str, Any] = {side: (Holding(ALICE, erc20(), 5), Holding(BOB, erc20(), 5))}
    with pytest.raises(ValueError, match="has parts of another account"):
        replace(Position(ALICE, "aave3", "LENDING", "Main"), **parts)


def test_a_raw_of_another_size_is_refused() -> None:
    holdings = pl.DataFrame({"account": ["a"], "asset": ["t"], "raw": [b"\x01"]})
    with pytest.raises(AssertionError, match="32 bytes"):
        values_by_account(holdings, {"t": AssetQuote(18, Decimal(1))})
