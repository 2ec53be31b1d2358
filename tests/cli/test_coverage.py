"""`chainfolio coverage`: the share of interactions with decoded protocols, and other contracts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chainfolio.cli.coverage import Coverage, document, shares, show
from chainfolio.portfolio.transactions import TransactionDocument, Transactions
from tests.cli.conftest import Run

WALLET, POOL, FARM, WETH = ("0x" + digit * 40 for digit in "1234")
DECODED, WRAPPED = {"swap"}, {WETH}


def asset(value: str) -> dict[str, Any]:
    text = ("symbol", "name", "balance", "price", "contract", "chainContract", "chainKey", "decimal", "from", "to")
    return {**dict.fromkeys(text, ""), "value": value, "isAssetIn": False}


def call(to: str, protocol: str = "unknown", kind: str = "SWAP", **more: Any) -> TransactionDocument:
    """A transaction that the wallet sent, with a fee of 2 USD and 100 USD that left."""
    fields = {
        **dict.fromkeys(("hash", "timestamp", "value", "valueFiat", "fees"), "0"),
        "blockNumber": 1,
        "chain": {"key": "ethereum", "name": "Ethereum"},
        "from": WALLET,
        "to": to,
        "type": kind,
        "feesFiat": "2",
        "nativeAssetFees": asset("2"),
        "assetsIn": [asset("90"), asset("N/A")],
        "assetsOut": [asset("100")],
        "user": {"address": WALLET},
        "protocol": {"key": protocol, "name": protocol.title()},
        **more,
    }
    return msgspec.convert(fields, TransactionDocument)


def coverage(*transactions: TransactionDocument) -> Coverage:
    tally = Coverage()
    for each in transactions:
        tally.add(each, DECODED, WRAPPED)
    return tally


def test_shares_are_by_calls_fees_and_value() -> None:
    report = coverage(call(POOL, "swap"), call(POOL, "swap"), call(FARM, feesFiat="6", assetsOut=[asset("300")]))
    assert {name: str(share) for name, share in shares(report)} == {
        "calls": "0.6667",
        "fees": "0.4000",
        "value": "0.4000",
    }
    assert [(chain, contract, weight.calls) for chain, contract, weight in report.heaviest()] == [("ethereum", FARM, 1)]


@pytest.mark.parametrize(
    "transaction",
    [
        call(WETH),
        call(FARM, kind="TRANSFEROUT"),
        call(FARM, kind="APPROVAL"),
        call(FARM, kind="FAILED"),
        call(FARM, **{"from": POOL}),
        call(""),
    ],
    ids=["wrapped coin", "transfer", "approval", "failed", "sent by another", "deployment"],
)
def test_what_is_no_interaction_with_a_protocol_does_not_count(transaction: TransactionDocument) -> None:
    report = coverage(transaction)
    assert (report.total.calls, report.undecoded) == (0, {})
    assert [share for _, share in shares(report)] == [None, None, None]


def test_a_protocol_without_a_decoder_is_named_and_the_heaviest_contract_is_first() -> None:
    tally = coverage(call(POOL, "vault"), call(FARM, assetsOut=[asset("5000")]), call(POOL, "vault", feesFiat="N/A"))
    report = document(WALLET, tally, Transactions(()))
    assert [(each["contract"], each["protocol"], each["calls"]) for each in report["undecoded"]] == [
        (FARM, "Unknown", 1),
        (POOL, "Vault", 2),
    ]
    assert report["undecoded"][1] | {"fees": "2", "value": "200"} == report["undecoded"][1]
    assert report["share"] == {"calls": "0", "fees": "0", "value": "0"}


def test_text_names_shares_and_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    show(WALLET, coverage(call(POOL, "swap"), call(FARM)))
    printed = capsys.readouterr().out
    assert "decoded of 2 calls: calls 50.0%, fees 50.0%, value 50.0%" in printed
    assert FARM in printed
    show(WALLET, Coverage())
    assert "calls none" in capsys.readouterr().out


@pytest.mark.node
def test_a_wallet_of_the_demo_has_its_calls_counted(run: Run, wallets: dict[str, str]) -> None:
    report = run("coverage", wallets["frank"], "--json").json
    assert report["total"]["calls"] == report["decoded"]["calls"] + sum(each["calls"] for each in report["undecoded"])
    assert report["total"]["calls"] > 0
    assert run("coverage", wallets["frank"]).code == 0
