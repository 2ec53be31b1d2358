"""Tokens over all wallets, chains and protocols."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgspec
from hypothesis import given, settings

from chainfolio import amounts
from chainfolio.contracts import Holding
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import ProtocolFacts
from chainfolio.portfolio.overview import overview, pictures_of
from chainfolio.portfolio.pictures import drawn
from chainfolio.portfolio.valuation import ValuedHolding, ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, erc20, native, price, snapshot
from tests.portfolio.test_merge import exact, portfolio_lists

AAVE = {"aave3": ProtocolFacts("aave3", "Aave V3", {"small": "https://images.example/a.svg"})}
ETHER = 10**18


def ether_portfolio(*rows: tuple[str, int, str | None], position: ValuedPosition | None = None) -> Portfolio:
    """A portfolio of ether: chain, raw and USD price of each holding."""
    snapshots = []
    for chain, raw, usd in rows:
        token = native(chain)
        prices = (price(token, usd),) if usd else ()
        snapshots.append(snapshot(Holding(ALICE, token, raw), prices=prices, chain=chain))
    valuation = replace(valuate(snapshots), positions=(position,) if position else ())
    return portfolio(ALICE, valuation, CHAINS, updated_ms=0, protocols=AAVE)


def lending(supplied: int, borrowed: int, usd: str) -> ValuedPosition:
    def part(raw: int) -> tuple[ValuedHolding, ...]:
        return (value_holding(Holding(ALICE, native(), raw), "ethereum", BLOCK, price(native(), usd)),)

    return ValuedPosition(
        ALICE, "ethereum", "aave3", "LENDING", "Main", supplied=part(supplied), borrowed=part(borrowed)
    )


def test_a_token_is_one_row_over_chains_and_protocols() -> None:
    first_part = ether_portfolio(("ethereum", ETHER, "2000"), position=lending(3 * ETHER, ETHER, "2000"))
    rows = overview([first_part, ether_portfolio(("base", ETHER, "2000"))], pictures_of(CHAINS.values(), AAVE.values()))
    assert msgspec.json.decode(msgspec.json.encode(rows)) == [
        {
            "image": drawn("base:0x0000000000000000000000000000000000000000", "ETH"),
            "symbol": "ETH",
            "name": "ethereum",
            "price": "2000",
            "balance": "4",
            "value": "8000",
            "percentage": "100",
            "protocolsDetailed": [
                {
                    "key": "aave3",
                    "name": "Aave V3",
                    "value": "4000",
                    "balance": "2",
                    "image": "https://images.example/a.svg",
                },
                {
                    "key": "wallet",
                    "name": "Wallet",
                    "value": "4000",
                    "balance": "2",
                    "image": drawn("wallet", "Wallet"),
                },
            ],
        }
    ]


def test_what_is_owed_beyond_what_is_held_is_negative() -> None:
    (row,) = overview([ether_portfolio(position=lending(ETHER, 3 * ETHER, "2"))])
    assert (row.balance, row.value, row.price, row.percentage) == ("-2", "-4", "2", "0")


def test_at_other_prices_the_mean_by_balance_is_shown() -> None:
    (row,) = overview([ether_portfolio(("ethereum", ETHER, "2"), ("base", 2 * ETHER, "5"))])
    assert (row.balance, row.value, row.price) == ("3", "12", "4")


def test_what_nobody_priced_is_a_row_of_its_own_at_the_end() -> None:
    rows = overview([ether_portfolio(("ethereum", ETHER, "2"), ("base", 9 * ETHER, None))])
    assert [(row.symbol, row.balance, row.value, row.price, row.percentage) for row in rows] == [
        ("ETH", "1", "2", "2", "100"),
        ("ETH", "9", "N/A", "N/A", "N/A"),
    ]


def test_tokens_of_one_symbol_and_other_names_are_two() -> None:
    usdc, fake = erc20(), erc20("0x" + "fa" * 20, symbol="usdc")
    renamed = replace(fake, name="Free money")
    tokens = snapshot(
        Holding(ALICE, usdc, 5_000_000),
        Holding(ALICE, renamed, 1_000_000),
        prices=(price(usdc, "1"), price(renamed, "9")),
    )
    rows = overview([portfolio(ALICE, valuate([tokens]), CHAINS, updated_ms=0)])
    assert [(row.symbol, row.name, row.value) for row in rows] == [
        ("USDC", "free money", "9"),
        ("USDC", "usd coin", "5"),
    ]


def test_a_token_without_decimals_has_no_balance() -> None:
    token = erc20(decimals=None)
    document = portfolio(ALICE, valuate([snapshot(Holding(ALICE, token, 5))]), CHAINS, updated_ms=0)
    (row,) = overview([document])
    assert (row.balance, row.value, row.protocols_detailed[0].balance) == ("N/A", "N/A", "N/A")


def test_nothing_is_held_of_nothing() -> None:
    assert overview([]) == overview([ether_portfolio()]) == []


@given(portfolio_lists)
@settings(max_examples=40)
def test_the_rows_are_the_net_worth_to_the_last_digit(parts: list[Portfolio]) -> None:
    rows = overview(parts)
    assert exact([row.value for row in rows if row.value != "N/A"]) == exact([part.networth for part in parts])
    for row in rows:
        for total, pieces in (
            (row.value, [each.value for each in row.protocols_detailed]),
            (row.balance, [each.balance for each in row.protocols_detailed]),
        ):
            values = [Decimal(piece) for piece in pieces if piece != "N/A"]
            assert (None if total == "N/A" else Decimal(total)) == (amounts.total(values) if values else None)
    priced = [Decimal(row.value) for row in rows if row.value != "N/A"]
    assert priced == sorted(priced, reverse=True)
    assert overview(list(reversed(parts))) == rows
