"""Rows of snapshots: each asset of a document with its place, and nothing for what is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from chainfolio.amounts import MAX_RAW
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import Holding, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, encode_one
from chainfolio.portfolio.snapshot_rows import holdings_of
from chainfolio.portfolio.valuation import ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, USDC, erc20, native, price, snapshot

DAI = erc20("0x" + "da" * 20, 18, "DAI")
LURE = erc20("0x" + "ba" * 20, 0, "LURE")
NAMELESS = erc20("0x" + "bb" * 20, None, "HM")
HUGE = erc20("0x" + "cc" * 20, 0, "HUGE")


def valued(token: Any, raw: int, usd: str | None) -> Any:
    quote = None if usd is None else price(token, usd)
    return value_holding(Holding(ALICE, token, raw, "aave3", "LENDING"), "ethereum", BLOCK, quote)


def raw(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_each_asset_is_a_row_with_its_place_and_what_is_unknown_is_nothing() -> None:
    loose = snapshot(
        Holding(ALICE, native(), 5 * 10**17),
        Holding(ALICE, LURE, 7),
        Holding(ALICE, NAMELESS, 9),
        Holding(ALICE, HUGE, MAX_RAW),
        prices=(price(native(), "2000"),),
    )
    loose = replace(loose, spam={(ALICE, LURE.asset): Spam(100, ("LURE",))})
    position = ValuedPosition(
        ALICE,
        "ethereum",
        "aave3",
        "LENDING",
        "Main market",
        supplied=(valued(DAI, 10**19, "1.01"),),
        borrowed=(valued(erc20(), 1_500_000, "1"),),
        rewards=(valued(DAI, 1, None),),
    )
    valuation = replace(valuate([loose]), positions=(position,))
    document = portfolio(ALICE, valuation, CHAINS, updated_ms=1)
    stored = msgspec.json.decode(encode_one(document), type=Portfolio)
    rows = holdings_of(stored)
    names = (
        "item",
        "protocol",
        "position",
        "name",
        "side",
        "asset",
        "symbol",
        "decimals",
        "raw",
        "price",
        "value",
        "spam",
    )
    lent, loose_in = ("aave3", "LENDING", "Main market"), ("wallet", "WALLET", "")
    assert rows == [
        dict(zip(names, (item, *row), strict=True))
        for item, row in enumerate(
            [
                (*lent, "supplied", DAI.asset.reference, "dai", 18, raw(10**19), "1.01", "10.1", False),
                (*lent, "borrowed", USDC, "usdc", 6, raw(1_500_000), "1", "1.5", False),
                (*lent, "reward", DAI.asset.reference, "dai", 18, raw(1), None, None, False),
                (*loose_in, "owned", ZERO_ADDRESS, "eth", 18, raw(5 * 10**17), "2000", "1000", False),
                (*loose_in, "owned", NAMELESS.asset.reference, "hm", None, None, None, None, False),
                (*loose_in, "owned", HUGE.asset.reference, "huge", 0, raw(MAX_RAW), None, None, False),
                (*loose_in, "owned", LURE.asset.reference, "lure", 0, raw(7), None, None, True),
            ]
        )
    ]
