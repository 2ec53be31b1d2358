"""Every event of a real chain, honest and hostile: in the table it belongs to, and back again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from chainfolio.adapters.evm.datasets.decoding import decode, restore
from chainfolio.adapters.evm.log_parser import parse, strict
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.localchain.evm import MAX
from tests.evm.anvil import Local, chain_of
from tests.evm.generated import plain_values
from tests.evm.recorded import body

pytestmark = pytest.mark.node
EVERYTHING = ("blocks", "transactions", "native", "transfers", "approvals")

TABLES = {
    "fake transfer from the victim": [("transfers", "erc20", None)],
    "transfer without indexes": [("transfers", "erc20", "indexed0")],
    "transfer with two topics": [("transfers", "erc20", "indexed1")],
    "transfer with long data": [("logs", None, None)],
    "transfer with short data": [("logs", None, None)],
    "transfer without data": [("logs", None, None)],
    "transfer of both standards": [("logs", None, None)],
    "transfer to a dirty address": [("logs", None, None)],
    "transfer with 64 kB": [("logs", None, None)],
    "mint of max uint256": [("transfers", "erc20", None)],
    "two mints of max uint256": [("transfers", "erc20", None)] * 2,
    "batch of unequal lengths": [("logs", None, None)],
    "batch that points outside": [("logs", None, None)],
    "batch that is longer than its data": [("logs", None, None)],
    "batch of the same id twice": [("transfers", "erc1155", "batch")] * 2,
    "empty batch": [("logs", None, None)],
    "single with short data": [("logs", None, None)],
}


async def collected(local: Local, datasets: tuple[str, ...] = EVERYTHING) -> SpanTables:
    async with chain_of(local) as chain:
        return await chain.collect(Span(1, local.heights[-1]), datasets, before=await chain.block(0))


def rows(table: pa.Table) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = table.to_pylist()
    return records


def raw(row: dict[str, Any], name: str = "raw") -> int:
    return int.from_bytes(row[name], "big")


async def test_hostile_events_land_where_they_belong(local: Local) -> None:
    tables = (await collected(local)).tables
    for name, expected in TABLES.items():
        token = local.hostile[name].lower()
        transfers = [row for row in rows(tables["transfers"]) if row["token"] == token]
        kinds = [("transfers", row["standard"], row["layout"]) for row in transfers]
        kinds += [("logs", None, None) for row in rows(tables["logs"]) if row["address"] == token]
        assert kinds == expected, name


async def test_what_a_fake_transfer_says_is_kept_as_said(local: Local) -> None:
    transfers = rows((await collected(local)).tables["transfers"])
    (fake,) = [row for row in transfers if row["token"] == local.hostile["fake transfer from the victim"].lower()]
    assert (fake["sender"], raw(fake)) == (local.wallets[1], 10**30)
    mints = [row for row in transfers if row["token"] == local.hostile["two mints of max uint256"].lower()]
    assert [raw(row) for row in mints] == [MAX, MAX]
    batch = [row for row in transfers if row["token"] == local.hostile["batch of the same id twice"].lower()]
    assert [(row["item"], raw(row, "token_id"), raw(row)) for row in batch] == [(0, 7, MAX), (1, 7, MAX)]


async def test_the_answer_of_a_real_node_is_read_alike_both_ways(local: Local) -> None:
    reply = local.node.rpc("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    logs = parse("node", body(reply))
    assert plain_values(logs) == plain_values(strict("node", body(reply)))
    assert len(logs) == len(reply) > 200


async def test_all_logs_come_back_from_the_tables(local: Local) -> None:
    fetched = await collected(local)
    async with chain_of(local) as chain:
        restored = restore(fetched.tables)
        decoded = decode(chain.facts, restored, ("transfers", "approvals"))
    assert len(restored) == fetched.event_count
    native = [row for row in rows(fetched.tables["transfers"]) if row["standard"] == "native"]
    tokens = [row for row in rows(fetched.tables["transfers"]) if row["standard"] != "native"]
    assert native
    assert rows(decoded["transfers"]) == tokens
    assert decoded["approvals"] == fetched.tables["approvals"]
    assert decoded["logs"] == fetched.tables["logs"]


async def test_native_movements_and_fees_add_up_to_the_balances(local: Local) -> None:
    """Initial balance, transfers and fees of wallets add up to the balances that the node returns."""
    tables = (await collected(local)).tables
    net: Counter[str] = Counter()
    for row in rows(tables["transfers"]):
        if row["standard"] == "native":
            net[row["sender"]] -= raw(row)
            net[row["recipient"]] += raw(row)
    for row in rows(tables["transactions"]):
        net[row["sender"]] -= raw(row, "fee")
    bob = local.deployment.accounts["bob"].lower()
    net[bob] += 10**18 // 2  # what WETH gave back comes in an internal call, which no event of ours covers
    for name in ("alice", "bob", "carol"):
        wallet = local.deployment.accounts[name]
        assert 10_000 * 10**18 + net[wallet.lower()] == int(local.node.rpc("eth_getBalance", wallet, "latest"), 16)


async def test_wrapping_is_a_movement_of_the_wrapper(local: Local) -> None:
    bob = local.deployment.accounts["bob"].lower()
    transfers = [
        row for row in rows((await collected(local)).tables["transfers"]) if bob in (row["sender"], row["recipient"])
    ]
    wraps = [(row["standard"], raw(row)) for row in transfers if row["standard"] in ("wrap", "unwrap")]
    assert wraps == [("wrap", 10**18), ("unwrap", 10**18 // 2)]


async def test_every_transaction_is_what_its_receipt_says(local: Local) -> None:
    table = rows((await collected(local, ("blocks", "transactions"))).tables["transactions"])
    receipts = local.node.batch(("eth_getTransactionReceipt", [row["hash"]]) for row in table)
    for row, receipt in zip(table, receipts, strict=True):
        assert row["status"] == int(receipt["status"], 16)
        assert row["gas_used"] == int(receipt["gasUsed"], 16)
        assert raw(row, "fee") == int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        created = receipt["contractAddress"]
        assert row["created"] == (created.lower() if created else None)


async def test_blocks_are_linked_to_the_first(local: Local) -> None:
    table = rows((await collected(local, ("blocks",))).tables["blocks"])
    assert [row["height"] for row in table] == list(range(1, local.heights[-1] + 1))
    assert [row["parent"] for row in table[1:]] == [row["hash"] for row in table[:-1]]
    assert table[0]["parent"] == local.node.block(0)["hash"]
