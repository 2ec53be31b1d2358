"""The execution API's own conformance suite: every exchange of it can be read, every error has a kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.adapters.evm.datasets.blocks import rows as block_rows
from chainfolio.adapters.evm.datasets.transactions import FullBlock, Receipt, match_receipts
from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.adapters.evm.log_parser import parse, strict
from chainfolio.adapters.evm.node import Header, checked
from chainfolio.adapters.evm.refusals import CallReverted, meaning
from chainfolio.errors import NodeBehind, ResponseTooLarge, SourceError, UnsupportedMethod
from chainfolio.transport.wire import RpcError, decode, typed
from tests.evm.recorded import body, lines, needs_recordings

pytestmark = needs_recordings


def block(content: bytes) -> None:
    tree = json.loads(content)
    if tree is None:
        return
    if tree["transactions"] and isinstance(tree["transactions"][0], dict):
        full = typed("suite", content, FullBlock)
        assert [each.hash for each in full.transactions] == [each["hash"] for each in tree["transactions"]]
    header = checked("suite", typed("suite", content, Header), int(tree["number"], 16))
    row = block_rows([header], "suite").to_pylist()[0]
    assert (row["hash"], row["gas_used"]) == (tree["hash"], int(tree["gasUsed"], 16))


def receipts(content: bytes) -> None:
    tree = json.loads(content)
    if tree is not None:
        parsed = typed("suite", content, list[Receipt])
        assert [each.gasUsed for each in parsed] == [each["gasUsed"] for each in tree]


def receipt(content: bytes) -> None:
    if content != b"null":
        typed("suite", content, Receipt)


def logs(content: bytes) -> None:
    assert len(parse("suite", content)) == len(strict("suite", content)) == len(json.loads(content))


def balance(content: bytes) -> None:
    quantity("suite", typed("suite", content, str))


def returned(content: bytes) -> None:
    data("suite", typed("suite", content, str))


READERS: dict[str, Callable[[bytes], None]] = {
    "eth_getBlockByNumber": block,
    "eth_getBlockByHash": block,
    "eth_getBlockReceipts": receipts,
    "eth_getTransactionReceipt": receipt,
    "eth_getLogs": logs,
    "eth_getBalance": balance,
    "eth_chainId": balance,
    "eth_blockNumber": balance,
    "eth_call": returned,
    "eth_getCode": returned,
}


@pytest.fixture(scope="module")
def exchanges() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    suite = lines("conformance/rpc_compat.jsonl.gz")
    return [(case["name"], each["request"], each["response"]) for case in suite for each in case["exchanges"]]


def test_every_exchange_of_the_111_cases_can_be_read(
    exchanges: list[tuple[str, dict[str, Any], dict[str, Any]]],
) -> None:
    assert len({name for name, _, _ in exchanges}) == 111
    read = 0
    for _, request, response in exchanges:
        (answer,) = decode("suite", body({**response, "id": 1}), 1)
        if isinstance(answer, RpcError):
            refusal = meaning("suite", request["method"], answer, 3)
            assert isinstance(refusal, SourceError)
            assert refusal.source == "suite"
        elif reader := READERS.get(request["method"]):
            reader(answer)
            read += 1
    assert read >= 45


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("eth_getLogs/filter-error-future-block-range", NodeBehind),
        ("eth_getLogs/filter-error-invalid-blockHash-and-range", UnsupportedMethod),
        ("eth_getLogs/filter-error-reversed-block-range", UnsupportedMethod),
        ("eth_call/call-revert-abi-error", CallReverted),
        ("eth_call/call-revert-abi-panic", CallReverted),
        ("debug_traceBlockByHash/trace-block-not-found", NodeBehind),
    ],
)
def test_errors_have_the_kind_that_says_what_to_do(
    exchanges: list[tuple[str, dict[str, Any], dict[str, Any]]], name: str, kind: type[SourceError]
) -> None:
    request, response = next((question, answer) for case, question, answer in exchanges if case == name)
    (answer,) = decode("suite", body(response), 1)
    assert isinstance(answer, RpcError)
    refusal = meaning("suite", request["method"], answer)
    assert type(refusal) is kind
    assert not isinstance(refusal, ResponseTooLarge)  # a smaller question would not help


def test_the_words_of_a_revert_are_kept(exchanges: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    response = next(answer for case, _, answer in exchanges if case == "eth_call/call-revert-abi-error")
    (answer,) = decode("suite", body(response), 1)
    assert isinstance(answer, RpcError)
    refusal = meaning("suite", "eth_call", answer)
    assert isinstance(refusal, CallReverted)
    assert b"user error" in refusal.data


def test_blocks_and_receipts_of_the_suite_belong_together(
    exchanges: list[tuple[str, dict[str, Any], dict[str, Any]]],
) -> None:
    results = [response.get("result") for _, _, response in exchanges]
    full = {
        each["hash"]: each
        for each in results
        if isinstance(each, dict) and isinstance((each.get("transactions") or [None])[0], dict)
    }
    lists = [each for each in results if isinstance(each, list) and each and "gasUsed" in each[0]]
    assert len(lists) == 3
    for receipts in lists:
        block_hash = receipts[0]["blockHash"]
        header = typed("suite", body(full[block_hash]), Header)
        every = match_receipts("suite", body(full[block_hash]), body(receipts), header)
        assert [each.fee for each in every] == [each.gas_used * each.gas_price + _blobs(each.receipt) for each in every]


def _blobs(of: Receipt) -> int:
    return int(of.blobGasUsed or "0x0", 16) * int(of.blobGasPrice or "0x0", 16)
