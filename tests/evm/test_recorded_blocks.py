"""Four full blocks of four chains: the tables equal the collector's counts and confirmed roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from chainfolio.adapters.evm.datasets import approvals, blocks, logs, transactions, transfers
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, checked
from chainfolio.transport.wire import typed
from tests.evm.recorded import body, expected, lines, logs_in, needs_recordings, numbers

pytestmark = needs_recordings
NAMES = ("ethereum_1000000", "ethereum_4369999", "arbitrum_150000000", "hyperliquid_50000")


class Recorded:
    """One block through all of our datasets."""

    def __init__(self, name: str) -> None:
        block, receipts = (line["result"] for line in lines(f"blocks/{name}.rpc.jsonl.gz"))
        self.expected: Mapping[str, Any] = expected("blocks/blocks.expected.json")[name]
        hashes = [transaction["hash"] for transaction in block["transactions"]]
        header = checked(name, typed(name, body({**block, "transactions": hashes}), Header))
        executed = transactions.match_receipts(name, body(block), body(receipts), header)
        self.blocks = blocks.rows([header], name)
        self.transactions = transactions.rows(executed, name)
        self.native = transactions.native(executed, name)
        self.logs: Logs = logs_in(receipts, header.time_s)
        self.transfers, self.moved = transfers.decode(self.logs, name, None)
        self.approvals, self.allowed = approvals.decode(self.logs, name, None)

    def standards(self, table: pa.Table) -> Counter[str]:
        return Counter(table["standard"].to_pylist())


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


def test_the_block_is_the_block(recorded: Recorded) -> None:
    row, want = recorded.blocks.to_pylist()[0], recorded.expected
    assert (row["height"], row["hash"], row["tx_count"]) == (want["number"], want["hash"], want["tx_count"])
    assert int(row["time"].timestamp()) == want["timestamp"]
    assert row["gas_used"] == want["gas_used"]


def test_transactions_fees_and_failures_are_counted_alike(recorded: Recorded) -> None:
    table, want = recorded.transactions, recorded.expected
    assert len(table) == want["tx_count"] == want["receipt_count"]
    assert table["status"].to_pylist().count(0) == want["failed_txs"]
    assert len(table) - table["created"].null_count == want["contract_creations"]
    assert sum(numbers(table["fee"])) == int(want["total_fees_wei"])
    assert sum(table["gas_used"].to_pylist()) == want["gas_used"]
    assert sum(numbers(table["raw"])) == int(want["native_value_wei"])


def test_what_was_burned_is_base_fee_times_gas(recorded: Recorded) -> None:
    row = recorded.blocks.to_pylist()[0]
    base_fee = 0 if row["base_fee"] is None else int.from_bytes(row["base_fee"], "big")
    assert base_fee * row["gas_used"] == int(recorded.expected["burned_wei"])


def test_native_transfers_move_the_value_of_transactions_that_did_not_fail(recorded: Recorded) -> None:
    rows = recorded.transactions.to_pylist()
    total = sum(int.from_bytes(row["raw"], "big") for row in rows if row["status"] != 0)
    assert sum(numbers(recorded.native["raw"])) == total
    assert set(recorded.native["log_index"].to_pylist()) <= {-1}


def test_transfers_and_approvals_are_counted_alike(recorded: Recorded) -> None:
    want, transfer_counts, allowed = (
        recorded.expected,
        recorded.standards(recorded.transfers),
        recorded.standards(recorded.approvals),
    )
    # The collector counts by topics alone; old tokens without indexes, which ours also decodes, are among its logs.
    usual = Counter(
        row["standard"] for row in recorded.transfers.to_pylist() if row["layout"] is None and row["item"] == 0
    )
    assert usual["erc20"] == want["erc20_transfers"]
    assert transfer_counts["erc721"] == want["erc721_transfers"]
    assert usual["erc1155"] == want["erc1155_single"]
    assert allowed["erc20"] == want["erc20_approvals"]
    assert allowed["erc721"] == want["erc721_approvals"]


def test_the_largest_tokens_moved_as_much(recorded: Recorded) -> None:
    rows = [row for row in recorded.transfers.to_pylist() if row["standard"] == "erc20"]
    for token, want in recorded.expected["top_tokens"].items():
        raws = [int.from_bytes(row["raw"], "big") for row in rows if row["token"] == token]
        assert (len(raws), sum(raws)) == (want["transfers"], int(want["sum_raw"]))


def test_every_log_is_in_exactly_one_table(recorded: Recorded) -> None:
    assert len(recorded.logs) == recorded.expected["logs"]
    assert int((recorded.logs.topic_count == 0).sum()) == recorded.expected["anonymous_logs"]
    assert not (recorded.moved & recorded.allowed).any()
    unmatched = recorded.logs.take((~(recorded.moved | recorded.allowed)).nonzero()[0])
    raw = logs.rows_of_logs(unmatched, "any")
    log_indexes = [table["log_index"].to_pylist() for table in (recorded.transfers, recorded.approvals, raw)]
    assert sorted(index for table in log_indexes for index in set(table)) == sorted(recorded.logs.log_index.tolist())
