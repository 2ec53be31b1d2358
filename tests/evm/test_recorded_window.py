"""Half a thousand consecutive blocks of Sepolia, and a stretch of it with the headers that lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chainfolio.adapters.evm.datasets import blocks, transactions
from chainfolio.adapters.evm.integrity import check_links
from chainfolio.adapters.evm.node import Header, checked
from chainfolio.errors import BadAnswer, Reorged
from chainfolio.transport.wire import typed
from tests.evm.recorded import body, expected, lines, needs_recordings, numbers

pytestmark = needs_recordings


def header_of(block: dict[str, Any]) -> Header:
    hashes = [each["hash"] for each in block.get("transactions", [])]
    return checked("sepolia", typed("sepolia", body({**block, "transactions": hashes}), Header))


@pytest.fixture(scope="module")
def window() -> list[Any]:
    return lines("chain_window/sepolia.jsonl.gz")


@pytest.fixture(scope="module")
def forks() -> list[Any]:
    return lines("chain_window/sepolia_forks.jsonl.gz")


def test_the_window_is_linked_from_end_to_end(window: list[Any]) -> None:
    want = expected("chain_window/sepolia.expected.json")
    headers = [header_of(line["block"]) for line in window]
    check_links("sepolia", headers, None)
    rows = blocks.rows(headers, "sepolia").to_pylist()
    assert [row["height"] for row in rows] == list(range(want["first"], want["last"] + 1))
    assert [row["parent"] for row in rows[1:]] == [row["hash"] for row in rows[:-1]]
    assert rows[-1]["hash"] == want["last_hash"]
    assert sum(row["tx_count"] for row in rows) == want["transactions"]


def test_totals_and_the_change_of_every_address(window: list[Any]) -> None:
    want = expected("chain_window/sepolia.expected.json")
    every = [
        executed
        for line in window
        for executed in transactions.match_receipts(
            "sepolia", body(line["block"]), body(line["receipts"]), header_of(line["block"])
        )
    ]
    table = transactions.rows(every, "sepolia")
    assert len(table) == want["transactions"]
    assert table["status"].to_pylist().count(0) == want["failed"]
    assert len(table) - table["created"].null_count == want["creations"]
    assert sum(numbers(table["fee"])) == int(want["total_fees_wei"])
    net: Counter[str] = Counter()
    for row in transactions.native(every, "sepolia").to_pylist():
        net[row["sender"]] -= int.from_bytes(row["raw"], "big")
        net[row["recipient"]] += int.from_bytes(row["raw"], "big")
    for row in table.to_pylist():
        net[row["sender"]] -= int.from_bytes(row["fee"], "big")
    expected_net = want["net_native_wei_from_top_level_transfers_and_fees"]
    assert {account: str(raw) for account, raw in net.items() if raw} == expected_net


def test_a_header_that_lost_is_refused_in_place_of_the_parent(forks: list[Any]) -> None:
    canonical = {int(line["block"]["number"], 16): header_of(line["block"]) for line in forks}
    losers = [header_of(uncle) for line in forks for uncle in line.get("uncle_headers", [])]
    assert len(losers) == 26
    checked = 0
    for loser in losers:
        height = loser.height
        assert loser.hash != canonical[height].hash
        if height + 1 not in canonical:
            continue
        checked += 1
        follower = canonical[height + 1]
        with pytest.raises(BadAnswer, match="another parent hash"):
            check_links("sepolia", [loser, follower], None)
        with pytest.raises(Reorged) as caught:
            check_links("sepolia", [follower], loser.block())
        assert (caught.value.height, caught.value.block_hash) == (height, loser.hash)
        check_links("sepolia", [canonical[height], follower], None)
    assert checked == len(losers)


def test_a_loser_follows_the_same_parent_as_the_winner(forks: list[Any]) -> None:
    canonical = {int(line["block"]["number"], 16): header_of(line["block"]) for line in forks}
    losers = [header_of(uncle) for line in forks for uncle in line.get("uncle_headers", [])]
    for loser in losers:
        if loser.height - 1 in canonical:
            check_links("sepolia", [loser], canonical[loser.height - 1].block())
