"""Every log ends up in exactly one place, and can be had back from there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.datasets import approvals, transfers
from chainfolio.adapters.evm.datasets.decoding import decode, restore
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.settings import EvmSettings
from tests.evm.fakes import FakeChain, FakeNode, transfer, wired
from tests.evm.generated import WRAPPED, events_of_tokens, plain_values, topic_of, word

BOTH = ("transfers", "approvals")


def chain() -> EvmChain:
    node = wired(FakeNode(FakeChain())).node
    return EvmChain(node.facts, node, EvmSettings())


CHAIN = chain()


def parsed(logs: list[dict[str, Any]]) -> Logs:
    return parse("node", json.dumps(logs).encode())


def without_hash(logs: Logs) -> list[dict[str, Any]]:
    """Block hashes are in `blocks` and not kept with every log."""
    return [{key: value for key, value in row.items() if key != "block_hash"} for row in plain_values(logs)]


@given(events_of_tokens())
def test_decoded_and_restored_logs_are_the_logs(logs: list[dict[str, Any]]) -> None:
    event_logs = parsed(logs)
    stored = decode(CHAIN.facts, event_logs, BOTH)
    assert without_hash(restore(stored)) == without_hash(event_logs)


@given(events_of_tokens())
def test_decoding_what_was_restored_gives_the_same_rows(logs: list[dict[str, Any]]) -> None:
    stored = decode(CHAIN.facts, parsed(logs), BOTH)
    assert decode(CHAIN.facts, restore(stored), BOTH) == stored


@given(events_of_tokens())
def test_every_log_is_in_exactly_one_table(logs: list[dict[str, Any]]) -> None:
    event_logs = parsed(logs)
    stored = decode(CHAIN.facts, event_logs, BOTH)
    positions = [
        position
        for table in stored.values()
        for position in sorted(set(zip(table["height"].to_pylist(), table["log_index"].to_pylist(), strict=True)))
    ]
    assert sorted(positions) == sorted(zip(event_logs.height.tolist(), event_logs.log_index.tolist(), strict=True))


@given(events_of_tokens())
def test_rows_are_in_the_order_of_the_chain_and_their_keys_are_unique(logs: list[dict[str, Any]]) -> None:
    table = decode(CHAIN.facts, parsed(logs), BOTH)["transfers"]
    names = ("height", "tx_index", "log_index", "item")
    keys = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert keys == sorted(set(keys))


@given(events_of_tokens())
def test_a_log_decoded_alone_says_the_same(logs: list[dict[str, Any]]) -> None:
    """No row depends on which other logs came with it."""
    event_logs = parsed(logs)
    combined, _ = transfers.decode(event_logs, "fake", WRAPPED)
    alone = [transfers.decode(event_logs.take(np.array([row])), "fake", WRAPPED)[0] for row in range(len(event_logs))]
    assert pa.concat_tables(alone).to_pylist() == combined.to_pylist()


# --- by name ---------------------------------------------------------------------------------------------------------


def rows_of(*logs: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    node = FakeChain()
    node.mine(*logs)
    return {
        name: table.to_pylist() for name, table in decode(CHAIN.facts, parsed(node.logs[1]), BOTH).items() if len(table)
    }


def test_an_nft_is_not_read_as_an_amount() -> None:
    log = transfer()
    (row,) = rows_of({**log, "topics": [*log["topics"], "0x" + word(77)], "data": "0x"})["transfers"]
    assert (row["standard"], int.from_bytes(row["token_id"], "big"), int.from_bytes(row["raw"], "big")) == (
        "erc721",
        77,
        1,
    )


def test_parties_in_the_data_are_read_as_they_lie_there() -> None:
    log = transfer(raw=5)
    sender, recipient = (topic[2:] for topic in log["topics"][1:])
    bare = {**log, "topics": log["topics"][:1], "data": "0x" + sender + recipient + word(5)}
    partly_indexed = {**log, "topics": log["topics"][:2], "data": "0x" + recipient + word(5)}
    rows = rows_of(log, bare, partly_indexed)["transfers"]
    assert [row["layout"] for row in rows] == [None, "indexed0", "indexed1"]
    assert len({(row["sender"], row["recipient"], row["raw"]) for row in rows}) == 1


def test_an_address_with_dirt_before_it_is_no_address() -> None:
    log = transfer()
    dirty = {**log, "topics": [*log["topics"][:2], "0x" + "ff" * 12 + "aa" * 20]}
    assert list(rows_of(dirty)) == ["logs"]


def test_deposits_count_only_at_the_wrapper_of_the_chain() -> None:
    log = {"topics": [transfers.TOPICS[3], topic_of("0x" + "aa" * 20)], "data": "0x" + word(9)}
    (row,) = rows_of({**log, "address": WRAPPED})["transfers"]
    assert (row["standard"], row["sender"], row["recipient"]) == ("wrap", "0x" + "00" * 20, "0x" + "aa" * 20)
    assert list(rows_of({**log, "address": "0x" + "12" * 20})) == ["logs"]


def test_an_approval_for_all_that_is_neither_yes_nor_no_stays_raw() -> None:
    log = {"address": WRAPPED, "topics": [approvals.TOPICS[1], *[topic_of(WRAPPED)] * 2]}
    assert [row["approved"] for row in rows_of({**log, "data": "0x" + word(1)})["approvals"]] == [True]
    assert list(rows_of({**log, "data": "0x" + word(2)})) == ["logs"]


def test_an_approval_of_one_token_keeps_its_number_there_and_back() -> None:
    topics = [approvals.TOPICS[0], *[topic_of(WRAPPED)] * 2, "0x" + word(77)]
    node = FakeChain()
    node.mine({"address": WRAPPED, "topics": topics, "data": "0x"})
    event_logs = parsed(node.logs[1])
    stored = decode(CHAIN.facts, event_logs, BOTH)
    (row,) = stored["approvals"].to_pylist()
    assert (row["standard"], int.from_bytes(row["token_id"], "big"), row["raw"], row["approved"]) == (
        "erc721",
        77,
        None,
        None,
    )
    assert without_hash(restore(stored)) == without_hash(event_logs)


def test_a_log_without_topics_is_kept() -> None:
    (row,) = rows_of({"address": WRAPPED, "topics": [], "data": "0x01"})["logs"]
    assert (row["topic0"], row["data"]) == (None, b"\x01")
