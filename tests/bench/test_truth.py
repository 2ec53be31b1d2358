"""The independent decoder, by hand-made logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import truth
from bench.node import fetched_blocks
from bench.truth import APPROVAL, NOBODY, TRANSFER

ALICE, BOB, TOKEN = ("0x" + digit * 40 for digit in "abc")


def log(topic: str, sender: str, recipient: str, raw: int, *, height: int = 1, index: int = 0) -> dict[str, Any]:
    return {
        "address": TOKEN.upper().replace("0X", "0x"),
        "topics": [topic, "0x" + sender[2:].zfill(64), "0x" + recipient[2:].zfill(64)],
        "data": f"0x{raw:064x}",
        "blockNumber": hex(height),
        "blockTimestamp": hex(1_700_000_000 + height),
        "transactionHash": "0x" + "d" * 64,
        "transactionIndex": "0x2",
        "logIndex": hex(index),
    }


def event(topic: str, sender: str, recipient: str, raw: int, *, height: int = 1, index: int = 0) -> truth.Event:
    decoded = truth.decoded(log(topic, sender, recipient, raw, height=height, index=index))
    assert decoded is not None
    return decoded


def test_a_transfer_is_read_field_by_field() -> None:
    transfer = event(TRANSFER, ALICE, BOB, 2**255, height=7, index=3)
    assert (transfer.kind, transfer.height, transfer.tx_index, transfer.log_index) == ("transfer", 7, 2, 3)
    assert (transfer.token, transfer.party, transfer.counterparty, transfer.raw) == (TOKEN, ALICE, BOB, 2**255)
    assert transfer.time_s == 1_700_000_007


def test_other_logs_are_nobodys() -> None:
    assert truth.decoded(log("0x" + "1" * 64, ALICE, BOB, 1)) is None
    assert truth.decoded({**log(TRANSFER, ALICE, BOB, 1), "topics": []}) is None


def test_balances_are_what_came_minus_what_went() -> None:
    events = [event(TRANSFER, NOBODY, ALICE, 10), event(TRANSFER, ALICE, BOB, 4), event(APPROVAL, ALICE, BOB, 99)]
    assert truth.balances(events) == {(ALICE, TOKEN): 6, (BOB, TOKEN): 4}


def test_the_last_approval_counts_whatever_the_order_of_the_rows() -> None:
    events = [event(APPROVAL, ALICE, BOB, 5, height=2), event(APPROVAL, ALICE, BOB, 9, height=1)]
    assert truth.allowances(events) == {(ALICE, TOKEN, BOB): 5}


def test_a_digest_sees_rows_and_not_their_order() -> None:
    first, second = event(TRANSFER, ALICE, BOB, 1), event(TRANSFER, ALICE, BOB, 1, index=1)
    assert truth.digest([first, second]) == truth.digest([second, first])
    assert truth.digest([first, second]) != truth.digest([first, first, second])
    assert truth.digest([first]) != truth.digest([replace(first, raw=2)])


def test_only_the_wanted_blocks_of_a_recording_are_read(tmp_path: Path) -> None:
    blocks = [[log(TRANSFER, ALICE, BOB, height, height=height)] for height in range(4)]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(block) + "\n" for block in blocks))
    assert [event_read.raw for event_read in truth.events(tmp_path, 1, 2)] == [1, 2]


def test_a_table_that_was_never_written_has_no_rows(tmp_path: Path) -> None:
    assert truth.count(tmp_path, "transfers") == 0
    assert truth.stored_events(tmp_path) == []


def test_blocks_asked_for_twice_count_twice() -> None:
    assert fetched_blocks([[1, 10, []], [10, 10, []]]) == 11
