"""Recorded examples of gains as entries: of a tax program (rp2) and of HM Revenue & Customs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from chainfolio.amounts import EXACT
from chainfolio.portfolio.pnl.entries import Entry, Kind, money

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "pnl"
PROGRAM = ("rp2_crypto_example", "rp2_test_data", "rp2_test_hifo2")
AUTHORITY = FOLDER / "hmrc_examples.json"
DECIMALS = 18
KINDS: Mapping[str, Kind] = {
    "buy": "buy",
    "interest": "income",
    "sell": "sell",
    "gift": "gift",
    "donate": "donate",
}


def load(name: str) -> Any:
    """One file of the tax program: `input` and `golden`."""
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def at_us(text: str) -> int:
    """A moment as microseconds; without a zone it is in UTC."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp()) * 1_000_000 + time.microsecond


def raw(amount: Decimal) -> int:
    """An amount in smallest units."""
    return int(EXACT.scaleb(amount, DECIMALS).to_integral_exact())


def program_entries(asset: Mapping[str, Any]) -> Iterator[Entry]:
    """The transactions of one asset of the tax program."""
    for each in asset["in"]:
        amount, spot = Decimal(each["crypto_in"]), Decimal(each["spot_price"])
        cost = Decimal(each["fiat_in_no_fee"]) if "fiat_in_no_fee" in each else EXACT.multiply(amount, spot)
        yield Entry(
            at_us(each["timestamp"]),
            KINDS[each["transaction_type"].lower()],
            each["asset"],
            raw(amount),
            money(cost),
            money(Decimal(each.get("fiat_fee", "0"))),
            f"{each['exchange']}/{each['holder']}",
        )
    for each in asset["out"]:
        amount, fee = Decimal(each["crypto_out_no_fee"]), Decimal(each["crypto_fee"])
        yield Entry(
            at_us(each["timestamp"]),
            KINDS[each["transaction_type"].lower()],
            each["asset"],
            raw(EXACT.add(amount, fee)),
            money(EXACT.multiply(amount, Decimal(each["spot_price"]))),
            wallet=f"{each['exchange']}/{each['holder']}",
        )
    for each in asset["intra"]:
        sent_amount, received_amount = Decimal(each["crypto_sent"]), Decimal(each["crypto_received"])
        source, target = (f"{each[f'{end}_exchange']}/{each[f'{end}_holder']}" for end in ("from", "to"))
        yield Entry(at_us(each["timestamp"]), "move", each["asset"], raw(received_amount), wallet=source, to=target)
        if fee := EXACT.subtract(sent_amount, received_amount):
            value = money(EXACT.multiply(fee, Decimal(each["spot_price"])))
            yield Entry(at_us(each["timestamp"]), "fee", each["asset"], raw(fee), value, wallet=source)


def authority_entries(example: Mapping[str, Any]) -> Iterator[Entry]:
    """The transactions of one example of the tax authority; pounds are money, not an asset."""
    for each in example["transactions"]:
        if each["Type"] != "Trade":
            continue
        buys = each["Sell Asset"] == "GBP"
        side, opposite = ("Buy", "Sell") if buys else ("Sell", "Buy")
        yield Entry(
            at_us(each["Timestamp"]),
            "buy" if buys else "sell",
            each[f"{side} Asset"],
            raw(Decimal(str(each[f"{side} Quantity"]))),
            money(Decimal(str(each[f"{opposite} Quantity"]))),
        )
