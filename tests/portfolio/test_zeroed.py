"""Documents for clients that compute with every number: unknown values become zeros."""

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
    holdings = tuple(
        Holding(ALICE, token, 10**18) for token in (native(), erc20("0x" + "ab" * 20, 18, "MOON"), strange)
    )
    wallet_snapshot = Snapshot("ethereum", BLOCK, (ALICE,), holdings, (price(native(), "2000"),), ())
    return portfolio(ALICE, valuate([wallet_snapshot]), CHAINS, updated_ms=1)


def unknown(document: Any, field: str = "") -> list[str]:
    """The fields that are `N/A`."""
    if isinstance(document, dict):
        return [path for name, each in document.items() for path in unknown(each, name)]
    if isinstance(document, list):
        return [path for each in document for path in unknown(each, field)]
    return [field] if document == "N/A" else []


def test_every_number_but_profits_and_costs_can_be_computed_with() -> None:
    before = set(unknown(json.loads(encode_one(a_document()))))
    assert {"price", "value", "balance", "decimal", "dailyIncome", "fees"} <= before
    remaining = set(unknown(json.loads(encode_one(zero_unknown(a_document())))))
    assert {name for name in remaining if not name.endswith(UNKNOWN_FOR_CLIENTS)} == set()
    assert remaining < before
    assert set(unknown(msgspec.to_builtins(zero_unknown(overview([a_document()]))))) <= {"symbol", "name"}


def test_the_counts_stay_as_they_are() -> None:
    document, zeroed = a_document(), zero_unknown(a_document())
    assert (zeroed.unpriced_assets, zeroed.completeness, zeroed.issues) == (2, document.completeness, document.issues)
    assert (zeroed.networth, zeroed.chains) == (document.networth, document.chains)
