"""Recorded answers of real nodes, stored outside the repository; tests are skipped without them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.tron.facts import load
from chainfolio.adapters.tron.forms import Transaction, TransactionInfo

ROOT = Path(__file__).parents[2]
FACTS = load(ROOT / "configs" / "chains" / "tron.toml")
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "tron"
needs_recordings = pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded data is not here")


def lines(name: str) -> list[Any]:
    """The lines of a recording."""
    with gzip.open(FOLDER / f"{name}.http.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def expected(name: str) -> Any:
    """Return the movements of the recorded transactions as an independent tool computed them."""
    return json.loads((FOLDER / f"{name}.expected.json").read_text())


def list_transactions(name: str) -> list[tuple[Transaction, TransactionInfo]]:
    """Return the transactions of a recorded list, with receipts by the list's numbers."""
    answer = next(each["json"] for each in lines(name) if each["path"].endswith("/transactions"))
    return [(msgspec.convert(each, Transaction), _info(each)) for each in answer["data"]]


def _info(each: Any) -> TransactionInfo:
    receipt = {name: each.get(name, 0) for name in ("energy_fee", "energy_usage", "energy_usage_total", "net_fee")}
    content = {
        "id": each["txID"],
        "blockNumber": each.get("blockNumber", 1),
        "fee": each["ret"][0]["fee"],
        "receipt": receipt,
        "withdraw_amount": each.get("withdraw_amount", 0),
        "unfreeze_amount": each.get("unfreeze_amount", 0),
    }
    return msgspec.convert(content, TransactionInfo)


def sends() -> list[tuple[Transaction, TransactionInfo]]:
    """Return the recorded transactions of a full node with their receipts."""
    answers = lines("trc20_sends")
    bodies = {e["json"]["txID"]: e["json"] for e in answers if e["path"] == "/wallet/gettransactionbyid"}
    infos = {e["json"]["id"]: e["json"] for e in answers if e["path"] == "/wallet/gettransactioninfobyid"}
    return [
        (msgspec.convert(bodies[each], Transaction), msgspec.convert(infos[each], TransactionInfo)) for each in bodies
    ]
