"""Ledgers that beancount accepts: its holdings are ours, to the unit, whatever happened."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from beancount import loader
from beancount.core import data
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from chainfolio.amounts import EXACT, text
from chainfolio.exports.beancount import Beancount
from chainfolio.exports.commodities import AssetKey, commodity_names
from chainfolio.exports.dataset import Page, Summary
from chainfolio.exports.gone_assets import IN_POSITION, NOT_KNOWN
from chainfolio.exports.ledger import UNEXPLAINED, LedgerWriter
from chainfolio.portfolio.document import (
    CallDocument,
    ChainDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    PositionSources,
    ProtocolChainDocument,
    ProtocolDocument,
)
from chainfolio.portfolio.transactions import TransactionDocument
from tests.api.fakes import a_portfolio
from tests.exports.samples import ALICE, BOB, HOSTILE, NATIVE, USDC, asset, transaction

SUMMARY = Summary(
    kind="transactions",
    addresses=(ALICE,),
    facts={"period": "the beginning to now"},
    rows=0,
    completeness="complete",
    issues=(),
    digest="0",
)


def ledger(
    transactions: Sequence[TransactionDocument],
    *,
    method: str = "fifo",
    summary: Summary = SUMMARY,
    portfolios: Sequence[Portfolio] = (),
) -> str:
    file = io.StringIO()
    writer = LedgerWriter(file, portfolios, Beancount(method))
    writer.write(Page([], transactions=tuple(transactions[::-1])))
    writer.close(summary)
    return file.getvalue()


def load(content: str) -> list[Any]:
    entries, errors, _ = loader.load_string(content)
    assert errors == []
    return list(entries)


def balances(content: str, account: str) -> dict[str, Decimal]:
    """Return the units in an account by commodity, without commodities whose units are zero."""
    held: dict[str, Decimal] = {}
    for entry in load(content):
        for posting in entry.postings if isinstance(entry, data.Transaction) else ():
            if posting.account == account and posting.units is not None:
                name, number = posting.units.currency, posting.units.number or Decimal()
                held[name] = held.get(name, Decimal()) + number
    return {name: number for name, number in held.items() if number}


def units(content: str) -> dict[str, Decimal]:
    return balances(content, "Assets:Ethereum")


BUY = transaction(asset("2", price="1000"), kind="TRANSFERIN", number=0)
SECOND = transaction(asset("1", price="3000"), kind="TRANSFERIN", number=24)


@pytest.mark.parametrize(("method", "gain"), [("fifo", "1000"), ("lifo", "-1000"), ("hifo", "-1000")])
def test_a_sale_has_the_gain_of_the_lots_that_the_method_chooses(method: str, gain: str) -> None:
    sale = transaction(
        asset("1", price="2000", into=False),
        asset("2000", "usdc", USDC, price="1"),
        number=48,
        fees="0.1",
        fees_fiat="200",
    )
    content = ledger([BUY, SECOND, sale], method=method)
    assert units(content) == {"ETH": Decimal("1.9"), "USDC": Decimal("2000")}
    of_fee = 100  # 0.1 ETH of a lot that cost 1000 USD for each is worth 200 USD
    assert balances(content, "Income:Gains") == {"USD": -Decimal(gain) - of_fee}
    assert balances(content, "Expenses:Fees") == {"USD": Decimal("200")}
    assert balances(content, "Income:Received") == {"USD": Decimal("-5000")}


def test_units_that_nothing_brought_are_received_before_they_leave_and_flagged() -> None:
    content = ledger([transaction(asset("0.75", into=False), kind="TRANSFEROUT")])
    flagged = [each for each in load(content) if isinstance(each, data.Transaction) and each.flag == "!"]
    assert [each.narration for each in flagged] == ["not explained by the transactions of this file"]
    assert units(content) == {}
    assert UNEXPLAINED in content


def test_a_movement_between_own_wallets_changes_nothing() -> None:
    transfer = structs.replace(asset("1", into=False), sender=ALICE, recipient=BOB)
    both = structs.replace(SUMMARY, addresses=(ALICE, BOB))
    bought = transaction(structs.replace(asset("2"), sender=USDC), kind="TRANSFERIN")
    content = ledger([bought, transaction(transfer, kind="TRANSFEROUT", number=1)], summary=both)
    assert units(content) == {"ETH": Decimal(2)}


def test_hostile_names_cannot_leave_their_string_and_a_token_called_usd_is_no_money() -> None:
    evil = 'x"\n2020-01-01 open Assets:Evil\n\\'
    content = ledger(
        [
            transaction(asset("1", evil, USDC), asset("2", "USD", BOB), asset("3", HOSTILE, ALICE), protocol=evil),
            transaction(asset("1", "usdc", USDC, price="N/A"), number=1),
        ]
    )
    entries = load(content)
    assert "Assets:Evil" not in {each.account for each in entries if isinstance(each, data.Open)}
    names = {each.currency for each in entries if isinstance(each, data.Commodity)}
    assert "USD" not in names
    assert not set(content) & {"\x1b", "\u202e"}


def empty_wallet(*positions: PositionDocument) -> Portfolio:
    """A wallet that holds nothing loose on Ethereum."""
    lending = PositionsDocument("Lending", "0", protocol_positions=positions)
    chain = ProtocolChainDocument("Ethereum", "ethereum", "0", {"Lending": lending})
    portfolio = a_portfolio(ALICE)
    return structs.replace(
        portfolio,
        chains={"ethereum": ChainDocument("Ethereum", "ethereum", 1, "0", "0", "5")},
        asset_by_protocols={**portfolio.asset_by_protocols, "p": ProtocolDocument("P", "p", "0", {"ethereum": chain})},
    )


def position(*contracts: str) -> PositionDocument:
    """A position that was read from some contracts."""
    calls = tuple(CallDocument("position", "eth_call", each, "f()", (), ()) for each in contracts)
    return PositionDocument("loan", "0", sources=PositionSources("5", "0x5", calls))


def test_units_that_no_wallet_holds_now_are_flagged_and_asserted_as_gone() -> None:
    content = ledger([BUY], portfolios=[empty_wallet()])
    assert units(content) == {}
    flagged = [each for each in load(content) if isinstance(each, data.Transaction) and each.flag == "!"]
    assert [each.narration for each in flagged] == ["not explained by the transactions of this file"]
    assert [str(each.amount) for each in load(content) if isinstance(each, data.Balance)] == ["0 ETH"]


@pytest.mark.parametrize(
    ("portfolios", "doubt"),
    [
        ([], ""),
        ([structs.replace(empty_wallet(), completeness="partial")], NOT_KNOWN),
        ([structs.replace(empty_wallet(), chains={})], NOT_KNOWN),
        ([empty_wallet(position(USDC.upper()))], IN_POSITION),
        ([empty_wallet(PositionDocument("loan", "0"))], IN_POSITION),
    ],
    ids=["no proof", "partial", "unread chain", "share", "position without sources"],
)
def test_units_that_wallets_may_still_hold_are_not_flagged(portfolios: list[Portfolio], doubt: str) -> None:
    content = ledger([transaction(asset("5", "usdc", USDC), kind="TRANSFERIN")], portfolios=portfolios)
    assert units(content) == {"USDC": Decimal(5)}
    assert (f"; Assets:Ethereum 5 USDC: {doubt}" in content) == bool(doubt)
    assert not [each for each in load(content) if isinstance(each, data.Balance)]


def test_a_position_in_another_token_does_not_hide_that_units_are_gone() -> None:
    assert units(ledger([BUY], portfolios=[empty_wallet(position(USDC))])) == {}


def test_a_collectible_is_gone_if_collectibles_are_listed() -> None:
    history = [transaction(asset("1", "ape", USDC, token_id="7"), kind="TRANSFERIN")]
    assert list(units(ledger(history, portfolios=[empty_wallet()])).values()) == [Decimal(1)]
    assert units(ledger(history, portfolios=[structs.replace(empty_wallet(), nfts_by_collection={})])) == {}


def test_an_empty_history_is_a_ledger() -> None:
    assert not [each for each in load(ledger([])) if isinstance(each, data.Transaction)]


def test_names_of_commodities_are_unique_and_accepted() -> None:
    symbols = ["stETH", "USDC.e", "_", "1INCH", "", "a", "USD", "eth", "ETH", "₿", "x" * 100, "A-B"]
    symbols += ["null", "TRUE", "false"]
    names = commodity_names({AssetKey("ethereum", f"0x{at}"): symbol for at, symbol in enumerate(symbols)})
    assert len(set(names.values())) == len(symbols)
    assert names[AssetKey("ethereum", "0x0")] == "STETH"
    assert load("\n".join(f"2020-01-01 commodity {name}" for name in names.values()))


amounts_of = st.integers(1, 10**24).map(lambda raw: text(EXACT.scaleb(Decimal(raw), -18)))
prices = st.one_of(st.just("N/A"), st.integers(1, 10**12).map(lambda raw: text(EXACT.scaleb(Decimal(raw), -6))))
tokens = st.sampled_from([("eth", NATIVE), ("usdc", USDC), ("eth", BOB)])
movements = st.lists(st.tuples(amounts_of, tokens, prices, st.booleans()), max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(movements, amounts_of), max_size=5))
def test_beancount_holds_what_the_transactions_leave(history: list[tuple[list[Any], str]]) -> None:
    transactions, expected_units = [], dict[tuple[str, str], Decimal]()
    for number, (moves, fee) in enumerate(history):
        assets = [asset(amount, *token, price=price, into=into) for amount, token, price, into in moves]
        transactions.append(transaction(*assets, number=7 * number, fees=fee, fees_fiat="3.5"))
        net: dict[str, Decimal] = {}
        for each in assets:
            change = Decimal(each.balance) if each.is_asset_in else -Decimal(each.balance)
            net[each.contract] = net.get(each.contract, Decimal()) + change
        for contract, change in [*net.items(), (NATIVE, -Decimal(fee))]:
            before = expected_units.get(("", contract), Decimal())
            expected_units["", contract] = max(before + change, Decimal())  # what is missing was received unexplained
    loaded = units(ledger(transactions))
    assert sorted(loaded.values()) == sorted(each for each in expected_units.values() if each)
