"""What documents become for clients that compute with every number."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Snapshot, Token
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, encode_one
from chainfolio.portfolio.overview import overview
from chainfolio.portfolio.valuation import valuate
from chainfolio.portfolio.zeroed import zero_unknown
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, erc20, native, price

UNKNOWN_FOR_CLIENTS = ("Pnl", "CostBasis", "priceSource")  # a source is no number


def a_document() -> Portfolio:
    """Ether with a price, a token without one, and one whose contract says nothing of its decimals."""
    odd = "0x" + "0d" * 20
    strange = Token(Asset("eip155:1", "erc20", odd), "N/A", "N/A", None)
    held = tuple(Holding(ALICE, token, 10**18) for token in (native(), erc20("0x" + "ab" * 20, 18, "MOON"), strange))
    taken = Snapshot("ethereum", BLOCK, (ALICE,), held, (price(native(), "2000"),), ())
    return portfolio(ALICE, valuate([taken]), CHAINS, updated_ms=1)


def unknown(document: Any, place: str = "") -> list[str]:
    """The fields that are `N/A`."""
    if isinstance(document, dict):
        return [found for name, each in document.items() for found in unknown(each, name)]
    if isinstance(document, list):
        return [found for each in document for found in unknown(each, place)]
    return [place] if document == "N/A" else []


def test_every_number_but_profits_and_costs_can_be_computed_with() -> None:
    before = set(unknown(json.loads(encode_one(a_document()))))
    assert {"price", "value", "balance", "decimal", "dailyIncome", "fees"} <= before
    left = set(unknown(json.loads(encode_one(zero_unknown(a_document())))))
    assert {name for name in left if not name.endswith(UNKNOWN_FOR_CLIENTS)} == set()
    assert left < before
    assert set(unknown(msgspec.to_builtins(zero_unknown(overview([a_document()]))))) <= {"symbol", "name"}


def test_the_counts_stay_as_they_are() -> None:
    document, made = a_document(), zero_unknown(a_document())
    assert (made.unpriced_assets, made.completeness, made.issues) == (2, document.completeness, document.issues)
    assert (made.networth, made.chains) == (document.networth, document.chains)
