"""Parts covered by a block's hash are hashed again: recorded blocks, a real node, and forgeries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.evm import roots
from chainfolio.adapters.evm.facts import Facts, load
from chainfolio.errors import BadAnswer, Contradiction
from tests.evm.anvil import LOCAL, Local
from tests.evm.recorded import expected, lines, needs_recordings

CHAINS = Path(__file__).parents[2] / "configs" / "chains"
ETHEREUM = load(CHAINS / "ethereum.toml")
EMPTY = "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
BLOCKS = ("ethereum_1000000", "ethereum_4369999", "arbitrum_150000000", "hyperliquid_50000")


def recorded(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole block and its receipts."""
    answers = {line["method"]: line["result"] for line in lines(f"blocks/{name}.rpc.jsonl.gz")}
    return answers["eth_getBlockByNumber"], answers["eth_getBlockReceipts"]


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_the_root_of_nothing_is_known() -> None:
    assert roots.list_root([]).hex() == EMPTY


def test_every_value_and_every_place_counts() -> None:
    """More than 128 values: their indices are of one byte, of two, and end in branches with a value."""
    values = [bytes([k % 251]) * (k % 40 + 1) for k in range(400)]
    distinct = {roots.list_root(values[:n]) for n in range(401)}
    assert len(distinct) == 401
    assert roots.list_root([values[1], values[0], *values[2:]]) not in distinct


@needs_recordings
@pytest.mark.parametrize("name", BLOCKS)
def test_recorded_blocks_hash_to_what_they_name(name: str) -> None:
    block, receipts = recorded(name)
    proven = expected("blocks/blocks.expected.json")[name]["verified"]
    facts = msgspec.structs.replace(ETHEREUM, unproven=[] if proven["transactions_root"] else ["transactions"])
    assert roots.check_header(facts, "node", body(block)) is None
    part = roots.check_transactions(facts, "node", body(block), block["transactionsRoot"])
    assert (part is None) == bool(proven["transactions_root"])
    assert roots.check_receipts(facts, "node", body(receipts), block["hash"], block["receiptsRoot"]) is None


@needs_recordings
@pytest.mark.parametrize("chain", ["arbitrum", "base", "bsc", "ethereum", "gnosis", "monad", "optimism", "polygon"])
def test_headers_and_transactions_of_the_configured_chains_hash_to_what_they_name(chain: str) -> None:
    count = 0
    for line in lines(f"tx_cases/{chain}.rpc.jsonl.gz"):
        if line["method"].startswith("eth_getBlockBy"):
            block = line["result"]
            assert roots.header_hash("node", block).hex() == block["hash"][2:]
            for tx in block["transactions"]:
                if isinstance(tx, dict) and int(tx["type"], 16) <= 4:
                    assert roots.keccak(roots.transaction("node", tx)).hex() == tx["hash"][2:]
            count += 1
    assert count


@needs_recordings
def test_every_header_of_a_window_hashes_to_what_it_names() -> None:
    for name in ("sepolia", "sepolia_forks"):
        for line in lines(f"chain_window/{name}.jsonl.gz"):
            block, receipts = line["block"], line["receipts"]
            assert roots.header_hash("node", block).hex() == block["hash"][2:]
            if receipts:
                root = roots.list_root([roots.receipt("node", each) for each in receipts])
                assert root.hex() == block["receiptsRoot"][2:]


@needs_recordings
def test_transactions_of_every_type_hash_to_what_they_name() -> None:
    kinds = set()
    for case in lines("conformance/rpc_compat.jsonl.gz"):
        for exchange in case["exchanges"]:
            result = exchange["response"].get("result")
            if "getTransactionBy" in exchange["request"]["method"] and result:
                assert roots.keccak(roots.transaction("node", result)).hex() == result["hash"][2:]
                kinds.add(result["type"])
    assert kinds == {"0x0", "0x1", "0x2", "0x3", "0x4"}


@pytest.mark.node
def test_every_block_of_a_real_node_is_proven(local: Local) -> None:
    facts = load(LOCAL)
    for height in range(local.node.height + 1):
        block = local.node.rpc("eth_getBlockByNumber", hex(height), True)
        receipts = local.node.rpc("eth_getBlockReceipts", hex(height))
        assert roots.check_header(facts, "node", body(block)) is None
        assert roots.check_transactions(facts, "node", body(block), block["transactionsRoot"]) is None
        assert roots.check_receipts(facts, "node", body(receipts), block["hash"], block["receiptsRoot"]) is None


def header_lies(block: dict[str, Any]) -> list[dict[str, Any]]:
    """A header with one field of it changed, each in turn."""
    changed = {"logsBloom": "0x" + "00" * 256, "miner": "0x" + "12" * 20, "stateRoot": "0x" + "34" * 32}
    names = ("gasUsed", "gasLimit", "timestamp", "difficulty", "number")
    changed |= {name: hex(int(block[name], 16) + 1) for name in names}
    return [{**block, name: value} for name, value in changed.items()] + [{**block, "baseFeePerGas": "0x7"}]


@needs_recordings
def test_a_header_with_any_field_changed_is_contradicted_by_its_hash() -> None:
    block, _ = recorded("ethereum_4369999")
    for lie in header_lies(block):
        with pytest.raises(Contradiction, match="they hash to"):
            roots.check_header(ETHEREUM, "node", body(lie))


Change = Callable[[list[dict[str, Any]]], Any]


@needs_recordings
@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.pop(),
        lambda given: given.reverse(),
        lambda given: given[3].update(status="0x0", root=None),
        lambda given: given[3].update(gasUsed="0x1"),
        lambda given: given[3].update(transactionIndex="0x4"),
        lambda given: next(each for each in given if each["logs"])["logs"].pop(),
        lambda given: next(each for each in given if each["logs"])["logs"][0].update(data="0x01"),
        lambda given: next(each for each in given if each["logs"])["logs"][0].update(logIndex="0x3f"),
    ],
)
def test_receipts_with_anything_changed_are_contradicted(change: Change) -> None:
    block, receipts = recorded("ethereum_4369999")
    change(receipts)
    with pytest.raises(Contradiction):
        roots.check_receipts(ETHEREUM, "node", body(receipts), block["hash"], block["receiptsRoot"])


@needs_recordings
@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.pop(),
        lambda given: given[2].update(value="0x1"),
        lambda given: given[2].update(to="0x" + "77" * 20),
        lambda given: given[2].update(hash="0x" + "77" * 32),
        lambda given: given[2].update(transactionIndex="0x0"),
    ],
)
def test_bodies_with_anything_changed_are_contradicted(change: Change) -> None:
    block, _ = recorded("ethereum_4369999")
    change(block["transactions"])
    with pytest.raises(Contradiction):
        roots.check_transactions(ETHEREUM, "node", body(block), block["transactionsRoot"])


@pytest.mark.parametrize("answer", [{}, {"parentHash": 3}, {"hash": "0x12", "parentHash": "0xzz"}, {"logsBloom": None}])
def test_what_is_no_header_is_a_bad_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        roots.check_header(ETHEREUM, "node", body(answer))


@pytest.mark.parametrize("answer", [{"logs": [3]}, {"logs": {}}, {"logs": [], "status": "1"}, {"type": "0x100"}])
def test_what_is_no_receipt_is_a_bad_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        roots.check_receipts(ETHEREUM, "node", body([answer]), "0x12", "0x12")


def test_what_a_chain_hashes_in_its_own_way_is_a_fact_and_no_failure() -> None:
    facts: Facts = load(CHAINS / "fantom.toml")
    for unproven in (
        roots.check_header(facts, "node", b"{}"),
        roots.check_transactions(facts, "node", b"{}", "0x"),
        roots.check_receipts(facts, "node", b"[]", "0x", "0x"),
    ):
        assert isinstance(unproven, roots.UnprovenPart)
        assert unproven.reason.endswith("of Fantom are hashed in a way of its own")


@needs_recordings
def test_the_logs_of_receipts_are_an_answer_to_get_logs() -> None:
    _, receipts = recorded("ethereum_4369999")
    logs = json.loads(roots.logs_of("node", body(receipts)))
    assert logs == [log for each in receipts for log in each["logs"]]
    assert roots.logs_of("node", b"[]") == b"[]"
