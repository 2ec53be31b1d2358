"""Recorded blocks of real chains: every movement and every fee that others found in them, and no other."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from chainfolio.adapters.starknet.events import AMBIGUOUS
from chainfolio.adapters.starknet.rows import BlockRows, build_tables
from chainfolio.errors import BadAnswer
from tests.starknet.recorded import BLOCKS, FACTS, expected, needs_recordings, recorded_block, result, rows

pytestmark = needs_recordings
TRANSFER = "0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9"
FEES = {"mainnet_64820": 165, "sepolia_7": 16, "sepolia_integration_9703": 4}  # in this block, by the collector's word


def number(felt: Any) -> int:
    """A felt as a number."""
    return int(felt, 16)


def event_places(block: Any) -> dict[tuple[int, int], int]:
    """The place in its block of each event, by its transaction and its place there."""
    indexes, at = {}, 0
    for tx_index, each in enumerate(block["transactions"]):
        for index, _ in enumerate(each["receipt"]["events"]):
            indexes[tx_index, index] = at
            at += 1
    return indexes


@pytest.mark.parametrize("name", BLOCKS)
def test_every_movement_and_every_fee_of_a_block_is_a_row(name: str) -> None:
    block, truth = recorded_block(name), expected()[name]
    block_rows, indexes = rows(block), event_places(block)
    units = dict(zip((number(each[0]) for each in truth["fees"]), truth["fees"], strict=True))
    fees = {(row.hash, int.from_bytes(row.fee, "big")) for row in block_rows.transactions}
    assert {(number(tx_hash), fee) for tx_hash, fee in fees} == {
        (tx_hash, int(amount) if unit == "FRI" else 0) for tx_hash, (_, amount, unit) in units.items()
    }
    movements = {
        (row.tx_index, row.log_index, number(row.token), number(row.sender), number(row.recipient), row.raw)
        for row in block_rows.movements
        if row.standard in (AMBIGUOUS, "erc20")
    }
    expected_moves = {
        (tx_index, indexes[tx_index, at], number(token), number(sender), number(recipient), int(amount))
        for tx_index, at, token, sender, recipient, amount in truth["transfers"]
    }
    sequencer, coin = number(block["sequencer_address"]), number(FACTS.coin)
    paid_in_strk = {each for each in expected_moves if each[2] == coin and each[4] == sequencer}
    assert len(paid_in_strk) == (FEES[name] if name == "sepolia_integration_9703" else 0)
    assert movements == expected_moves - paid_in_strk
    assert all(row.token_id is None for row in block_rows.movements if row.standard in (AMBIGUOUS, "erc20"))


def spent(block_rows: BlockRows, sequencer: int) -> Counter[tuple[str, int]]:
    """Return what each account but the sequencer sent less what it got, of each token, with its fees in STRK."""
    sums = Counter[tuple[str, int]]()
    for movement in block_rows.movements:
        if movement.standard in (AMBIGUOUS, "erc20"):
            sums[movement.sender, number(movement.token)] += movement.raw
            sums[movement.recipient, number(movement.token)] -= movement.raw
    for row in block_rows.transactions:
        sums[row.sender, number(FACTS.coin)] += int.from_bytes(row.fee, "big")
    return Counter({key: raw for key, raw in sums.items() if raw and number(key[0]) != sequencer})


@pytest.mark.parametrize("name", BLOCKS)
def test_sums_are_the_same_without_the_events_of_fees(name: str) -> None:
    """Drop the events of fees, as of earlier nodes; the collector found an event of each fee that was paid here."""
    block = recorded_block(name)
    stripped, removed_count = json.loads(json.dumps(block)), 0
    for each in stripped["transactions"]:
        receipt = each["receipt"]
        if number(receipt["actual_fee"]["amount"]):
            assert number(receipt["events"].pop()["keys"][0]) == number(TRANSFER)
            removed_count += 1
    assert removed_count == FEES.get(name, 0)
    sequencer = number(block["sequencer_address"])
    assert spent(rows(stripped), sequencer) == spent(rows(block), sequencer)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_parts_of_a_block_are_all_there(name: str) -> None:
    truth, block_rows = expected()[name], rows(recorded_block(name))
    assert (block_rows.block.height, number(block_rows.block.hash)) == (
        truth["block_number"],
        number(truth["block_hash"]),
    )
    assert block_rows.block.time_us == truth["timestamp"] * 1_000_000
    assert len(block_rows.transactions) == truth["transactions"]
    assert sum(1 for row in block_rows.transactions if row.status == 0) == truth["reverted"]


def test_a_block_of_today_has_its_rows_in_each_table() -> None:
    block_rows = rows(recorded_block("sepolia_3100000"))
    tables = build_tables(
        "starknet", [block_rows], ("blocks", "transactions", "native", "transfers"), (), FACTS.coin, {}
    )
    assert (len(tables["blocks"]), len(tables["transactions"])) == (1, len(block_rows.transactions))
    assert set(tables["transfers"]["standard"].to_pylist()) <= {"native", "erc20"}
    hashes = result("sepolia_3100000", "starknet_getBlockWithTxHashes")["transactions"]
    assert [number(row.hash) for row in block_rows.transactions] == [number(each) for each in hashes]


def test_a_block_of_today_without_one_of_its_transactions_or_events_is_refused() -> None:
    block = recorded_block("sepolia_3100000")
    with pytest.raises(BadAnswer, match="2 transactions, and its header counts 3"):
        rows({**block, "transactions": block["transactions"][1:]})
    first, *other_transactions = block["transactions"]
    shorter = {**first, "receipt": {**first["receipt"], "events": first["receipt"]["events"][1:]}}
    with pytest.raises(BadAnswer, match="2 events, and its header counts 3"):
        rows({**block, "transactions": [shorter, *other_transactions]})


def test_fees_by_the_gas_of_today_are_paid_once() -> None:
    """Version 3, which pays STRK for gas on Ethereum, for its data, and for gas here."""
    block = recorded_block("sepolia_3100000")
    receipts = [each["receipt"] for each in block["transactions"]]
    assert all(each["execution_resources"]["l2_gas"] and each["actual_fee"]["unit"] == "FRI" for each in receipts)
    block_rows, sequencer = rows(block), number(block["sequencer_address"])
    fees = [int.from_bytes(row.fee, "big") for row in block_rows.transactions]
    assert fees == [number(each["actual_fee"]["amount"]) for each in receipts]
    assert all(fees)
    assert {row.type for row in block_rows.transactions} == {3}
    assert not [row for row in block_rows.movements if number(row.recipient) == sequencer], "the fee is said once"


def test_addresses_of_rows_have_one_form() -> None:
    for name in BLOCKS:
        for row in rows(recorded_block(name)).movements:
            assert all(len(each) == 66 and each == each.lower() for each in (row.token, row.sender, row.recipient))
