"""Answers of real nodes, recorded by others. They lie beside the repository; without them tests are skipped."""

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
    """What the recorded transactions moved, worked out by others."""
    return json.loads((FOLDER / f"{name}.expected.json").read_text())


def listed(name: str) -> list[tuple[Transaction, TransactionInfo]]:
    """Transactions of a recorded list, each with the receipt that the list has the numbers of."""
    answer = next(each["json"] for each in lines(name) if each["path"].endswith("/transactions"))
    return [(msgspec.convert(each, Transaction), _info(each)) for each in answer["data"]]


def _info(each: Any) -> TransactionInfo:
    receipt = {name: each.get(name, 0) for name in ("energy_fee", "energy_usage", "energy_usage_total", "net_fee")}
    told = {
        "id": each["txID"],
        "blockNumber": each.get("blockNumber", 1),
        "fee": each["ret"][0]["fee"],
        "receipt": receipt,
        "withdraw_amount": each.get("withdraw_amount", 0),
        "unfreeze_amount": each.get("unfreeze_amount", 0),
    }
    return msgspec.convert(told, TransactionInfo)


def sends() -> list[tuple[Transaction, TransactionInfo]]:
    """The recorded transactions that a full node gave with their receipts."""
    said = lines("trc20_sends")
    done = {e["json"]["txID"]: e["json"] for e in said if e["path"] == "/wallet/gettransactionbyid"}
    infos = {e["json"]["id"]: e["json"] for e in said if e["path"] == "/wallet/gettransactioninfobyid"}
    return [(msgspec.convert(done[each], Transaction), msgspec.convert(infos[each], TransactionInfo)) for each in done]
