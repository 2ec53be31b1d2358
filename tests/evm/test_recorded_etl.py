"""Cases of Ethereum ETL: every value that both its tables and ours have is equal, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.adapters.evm.datasets import blocks, transactions, transfers
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock, of_frames, of_traces
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header
from chainfolio.transport.wire import typed
from tests.evm.recorded import body, lines, logs_in, needs_recordings

pytestmark = needs_recordings

NOT_COVERED = {"traces"}  # only what lies inside transactions is read of them: in these there is nothing
COVERED = {"blocks", "transactions", "receipts", "logs", "token_transfers"}
# Columns of theirs that none of our tables keeps: proofs, mining and encodings, not movements.
IGNORED = {
    "type",
    "item_id",
    "item_timestamp",
    "block_timestamp",
    "sha3_uncles",
    "logs_bloom",
    "transactions_root",
    "state_root",
    "receipts_root",
    "difficulty",
    "total_difficulty",
    "size",
    "extra_data",
    "withdrawals",
    "withdrawals_root",
    "gas",
    "max_fee_per_gas",
    "max_priority_fee_per_gas",
    "receipt_cumulative_gas_used",
    "receipt_root",
    "cumulative_gas_used",
    "root",
    "receipt_l1_fee",
    "receipt_l1_gas_used",
    "receipt_l1_gas_price",
    "receipt_l1_fee_scalar",
    "l1_fee",
    "l1_gas_used",
    "l1_gas_price",
    "l1_fee_scalar",
    "block_hash",
}
OURS = {
    "blocks": {
        "number": "height",
        "hash": "hash",
        "parent_hash": "parent",
        "miner": "miner",
        "gas_limit": "gas_limit",
        "gas_used": "gas_used",
        "timestamp": "time",
        "transaction_count": "tx_count",
        "base_fee_per_gas": "base_fee",
    },
    "transactions": {
        "hash": "hash",
        "nonce": "nonce",
        "transaction_index": "tx_index",
        "from_address": "sender",
        "to_address": "recipient",
        "value": "raw",
        "input": "input",
        "block_number": "height",
        "transaction_type": "type",
        "receipt_gas_used": "gas_used",
        "receipt_contract_address": "created",
        "receipt_status": "status",
        "receipt_effective_gas_price": "gas_price",
    },
    "token_transfers": {
        "token_address": "token",
        "from_address": "sender",
        "to_address": "recipient",
        "value": "raw",
        "transaction_hash": "tx_hash",
        "log_index": "log_index",
        "block_number": "height",
    },
}


def cases() -> list[Any]:
    return lines("etl_cases.jsonl.gz")


def case(name: str) -> Any:
    return next(each for each in cases() if each["case"].endswith(name))


def answers(recording: Any, method: str) -> list[Any]:
    return [each["result"] for each in recording["rpc"] if each["method"] == method]


def full_blocks(recording: Any) -> list[Any]:
    """The blocks that were asked for with their transactions; `latest` was asked for without."""
    return [e["result"] for e in recording["rpc"] if e["method"] == "eth_getBlockByNumber" and e["params"][1]]


def text(value: Any) -> str:
    """A value of theirs or ours in one notation: theirs are text in some cases and numbers in others."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return str(int.from_bytes(value, "big"))
    return str(int(value.timestamp())) if hasattr(value, "timestamp") else str(value).lower()


def check(
    name: str, expected_rows: list[dict[str, Any]], actual_rows: list[dict[str, Any]], keys: tuple[str, ...]
) -> None:
    """Every row of theirs is a row of ours with the same values."""
    names = OURS[name]
    by_key = {tuple(text(row[names[key]]) for key in keys): row for row in actual_rows}
    assert len(by_key) == len(actual_rows) == len(expected_rows)
    for want in expected_rows:
        row = by_key[tuple(text(want[key]) for key in keys)]
        actual = row if name != "transactions" else {**row, "input": "0x" + row["input"].hex()}
        shared = {theirs: column for theirs, column in names.items() if theirs in want}
        assert {k: text(want[k]) for k in shared} == {k: text(actual[column]) for k, column in shared.items()}
        assert set(want) - set(names) - IGNORED - ({"nonce"} if name == "blocks" else set()) == set()


def tables(full: list[Any], receipts: list[Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Our blocks and transactions of some recorded blocks; where no receipts were recorded, of bare ones."""
    by_hash = {receipt["transactionHash"]: receipt for receipt in receipts}
    headers, every = [], []
    for block in full:
        block_receipts = [by_hash.get(each["hash"]) or bare(each) for each in block["transactions"]]
        slim = {**block, "transactions": [each["hash"] for each in block["transactions"]]}
        headers.append(typed("etl", body(slim), Header))
        executed = transactions.match_receipts("etl", body(block), body(block_receipts), headers[-1])
        transactions.check_header_hashes("etl", executed, headers[-1])
        every += executed
    return blocks.rows(headers, "etl").to_pylist(), transactions.rows(every, "etl").to_pylist()


def bare(transaction: dict[str, Any]) -> dict[str, Any]:
    return {
        "transactionHash": transaction["hash"],
        "transactionIndex": transaction["transactionIndex"],
        "blockHash": transaction["blockHash"],
        "gasUsed": "0x0",
    }


def test_every_table_of_the_cases_is_compared_or_named() -> None:
    assert {table for each in cases() for table in each["expected"]} == COVERED | NOT_COVERED


@pytest.mark.parametrize("name", ["blocks_with_transactions", "blocks_1755634_1755635"])
def test_blocks_and_transactions(name: str) -> None:
    recording = case(name)
    ours_blocks, ours_transactions = tables(full_blocks(recording), answers(recording, "eth_getTransactionReceipt"))
    check("blocks", recording["expected"]["blocks"], ours_blocks, ("number",))
    # The offered gas price is not stored; the paid price is, and is checked with the receipts.
    expected = [{k: v for k, v in row.items() if k != "gas_price"} for row in recording["expected"]["transactions"]]
    check("transactions", expected, ours_transactions, ("block_number", "transaction_index"))


def test_the_gas_price_is_the_one_that_was_paid() -> None:
    recording = case("blocks_with_transactions")
    _, tx_rows = tables(full_blocks(recording), [])
    prices = {row["hash"]: text(row["gas_price"]) for row in tx_rows}
    assert prices == {row["hash"]: row["gas_price"] for row in recording["expected"]["transactions"]}


@pytest.mark.parametrize(
    ("name", "read"),
    [("export_traces_job/block_with_create", of_traces), ("geth_traces_job/block_with_create", of_frames)],
)
def test_traces_that_were_recorded_are_read(
    name: str, read: Callable[[str, bytes, TracedBlock], list[CoinTransfer]]
) -> None:
    (answer,) = (each["result"] for each in case(name)["rpc"] if "trace" in each["method"])
    hashes = {each.get("transactionPosition", k): each.get("transactionHash") for k, each in enumerate(answer)}
    details = tuple(hashes[index] or "" for index in sorted(k for k in hashes if k is not None))
    at = next((each["blockHash"] for each in answer if "blockHash" in each), "")
    want = [t for t in case(name)["expected"]["traces"] if t["trace_address"] and int(t["value"])]
    assert len(read("etl", body(answer), TracedBlock(1000690, 0, at, details))) == len(want)


def test_receipts() -> None:
    recording = case("receipts_with_logs")
    receipts = {each["transactionHash"]: each for each in answers(recording, "eth_getTransactionReceipt")}
    for want in recording["expected"]["receipts"]:
        receipt = typed("etl", body(receipts[want["transaction_hash"]]), transactions.Receipt)
        tx = transactions.Transaction(receipt.transactionHash, "0x" + "00" * 20, "0x0", "0x0", "0x")
        executed = transactions.executed_transaction(
            "etl", want["block_number"], 0, want["transaction_index"], tx, receipt
        )
        assert executed.gas_used == want["gas_used"]
        assert executed.gas_price == want["effective_gas_price"]
        assert executed.fee == want["gas_used"] * want["effective_gas_price"]
        assert executed.status == want["status"]
        assert receipt.contractAddress == want["contract_address"]
        assert int(receipt.transactionIndex, 16) == want["transaction_index"]
        assert receipt.blockHash == want["block_hash"]


def found_logs(recording: Any) -> Logs:
    if receipts := answers(recording, "eth_getTransactionReceipt"):
        return logs_in(receipts, 0)
    return parse("etl", body([log for answer in answers(recording, "eth_getLogs") for log in answer]))


@pytest.mark.parametrize("name", ["receipts_with_logs", "blocks_1755634_1755635"])
def test_logs(name: str) -> None:
    recording = case(name)
    logs = found_logs(recording)
    rows = {
        (logs.tx_hash[row].tobytes().decode(), int(logs.log_index[row])): {
            "transaction_index": int(logs.tx_index[row]),
            "block_hash": logs.block_hash[row].tobytes().decode(),
            "block_number": int(logs.height[row]),
            "address": logs.address[row].tobytes().decode(),
            "data": "0x" + logs.data(row).hex(),
            "topics": [logs.topics[k][row].tobytes().decode() for k in range(int(logs.topic_count[row]))],
        }
        for row in range(len(logs))
    }
    expected = recording["expected"]["logs"]
    assert len(rows) == len(expected)
    for want in expected:
        row = rows[want["transaction_hash"], want["log_index"]]
        assert row == {key: want[key] for key in row}


@pytest.mark.parametrize("name", ["block_with_transfers", "blocks_1755634_1755635"])
def test_token_transfers(name: str) -> None:
    recording = case(name)
    rows, _ = transfers.decode(found_logs(recording), "etl", None)
    check(
        "token_transfers", recording["expected"]["token_transfers"], rows.to_pylist(), ("transaction_hash", "log_index")
    )
