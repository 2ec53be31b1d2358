"""Fields of answers have one form each; any other form is refused when the answer is decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chainfolio.adapters.evm import forms
from chainfolio.adapters.evm.datasets.internal import ExplorerTransfer, Frame, Trace
from chainfolio.adapters.evm.datasets.transactions import (
    Receipt,
    Transaction,
    check_header_hashes,
    match_receipts,
    native,
    rows,
)
from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.adapters.evm.node import Header
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed

HASH, ADDRESS = "0x" + "ab" * 32, "0x" + "cd" * 20
SENT: dict[str, Any] = {
    "hash": HASH,
    "from": ADDRESS,
    "to": ADDRESS,
    "value": "0x1",
    "nonce": "0x0",
    "input": "0x",
    "type": "0x2",
    "gasPrice": "0x7",
    "transactionIndex": "0x0",
}
RECEIPT: dict[str, Any] = {
    "transactionHash": HASH,
    "transactionIndex": "0x0",
    "blockHash": HASH,
    "gasUsed": "0x5208",
    "status": "0x1",
    "effectiveGasPrice": "0x7",
    "contractAddress": ADDRESS,
}
HEADER: dict[str, Any] = {
    "number": "0x10",
    "hash": HASH,
    "parentHash": HASH,
    "timestamp": "0x65000000",
    "logsBloom": "0x" + "00" * 256,
    "gasUsed": "0x1",
    "gasLimit": "0x2",
    "miner": ADDRESS,
    "baseFeePerGas": "0x7",
    "transactions": [HASH],
    "transactionsRoot": HASH,
    "receiptsRoot": HASH,
}
FRAME: dict[str, Any] = {"type": "CALL", "from": ADDRESS, "to": ADDRESS, "value": "0x1"}
LISTED: dict[str, Any] = {"value": "1", "from": ADDRESS, "to": ADDRESS, "hash": HASH, "blockNumber": "16"}
KINDS: list[tuple[type[Any], dict[str, Any], set[str]]] = [
    (Header, HEADER, {"transactions"}),
    (Transaction, SENT, {"input"}),
    (Receipt, RECEIPT, set()),
    (Frame, FRAME, {"type"}),
    (ExplorerTransfer, LISTED, set()),
]
FORMLESS: list[object] = [
    "zz",
    "0xA_",
    "0x",
    "0X1",
    "-0x1",
    "0x-1",
    "0x00",
    "0x" + "f" * 65,
    "0x" + "g" * 40,
    " 0x1",
    "0x1 ",
    "0x1\n",
    "1.5",
    "\u0663",
    "\uff10x1",
    "latest",
    "9" * 5000,
    5,
    1.5,
    True,
    [],
    {},
    ["0x1"],
]


def read(kind: type[Any], content: dict[str, Any]) -> Any:
    return typed("node", msgspec.json.encode(content), kind)


@pytest.mark.parametrize(("kind", "content", "free"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_field_of_another_form_is_refused_and_not_repeated(
    kind: type[Any], content: dict[str, Any], free: set[str]
) -> None:
    read(kind, content)
    for name in content.keys() - free:
        for wrong in FORMLESS:
            with pytest.raises(BadAnswer) as caught:
                read(kind, content | {name: wrong})
            assert "latest" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "content", "name", "maximum"),
    [
        (Header, HEADER, "number", 2**31 - 1),
        (Header, HEADER, "timestamp", forms.MAX_TIME_S),
        (Header, HEADER, "gasUsed", 2**63 - 1),
        (Header, HEADER, "baseFeePerGas", 2**256 - 1),
        (Transaction, SENT, "value", 2**256 - 1),
        (Transaction, SENT, "nonce", 2**63 - 1),
        (Transaction, SENT, "gasPrice", 2**120 - 1),
        (Receipt, RECEIPT, "status", 1),
        (Receipt, RECEIPT, "transactionIndex", 2**31 - 1),
    ],
)
def test_a_number_is_as_wide_as_its_column_and_no_wider(
    kind: type[Any], content: dict[str, Any], name: str, maximum: int
) -> None:
    read(kind, content | {name: hex(maximum)})
    read(kind, content | {name: "0x0"})
    with pytest.raises(BadAnswer):
        read(kind, content | {name: hex(maximum + 1)})


def test_a_trace_between_what_are_no_addresses_is_refused() -> None:
    trace = {"type": "call", "action": {"from": ADDRESS, "to": ADDRESS, "value": "0x1"}, "traceAddress": []}
    read(Trace, trace)
    for name in ("from", "to", "value"):
        with pytest.raises(BadAnswer):
            read(Trace, trace | {"action": trace["action"] | {name: "zz"}})  # type: ignore[operator]


@pytest.mark.parametrize("wrong", ["zz", "0", "0x0", "0x0g", "0X00", " 0x", "0x\n", 5, None, []])
def test_call_data_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(BadAnswer):
        read(Transaction, SENT | {"input": wrong})


@pytest.mark.parametrize("value", [None, 5, 1.5, [], {}, True])
def test_what_is_no_text_is_no_quantity_and_no_data(value: object) -> None:
    for judge in (quantity, data):
        with pytest.raises(BadAnswer):
            judge("node", value)


# --- a block, its header and its receipts ----------------------------------------------------------------------------


def block(**changed: dict[str, Any]) -> None:
    """Put a block together as a chain does, with some fields changed."""
    head = read(Header, HEADER | changed.get("header", {}))
    bodies = [SENT | changed.get("sent", {})]
    full = {"number": "0x10", "hash": HASH, "timestamp": "0x65000000", "transactions": bodies} | changed.get("full", {})
    receipts = [RECEIPT | changed.get("receipt", {})]
    matched = match_receipts("node", msgspec.json.encode(full), msgspec.json.encode(receipts), head)
    check_header_hashes("node", matched, head)


OTHER = "0x" + "ee" * 32


OTHER_HASHES = "block 16 has other transactions than its header lists"
ELSEWHERE = "transaction 0 of block 16 is said to lie at another place"
OF_ANOTHER = "receipt 0 of block 16 belongs to another transaction"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"full": {"hash": OTHER}}, f"block 16 is {OTHER} in one answer and {HASH} in another"),
        ({"full": {"number": "0x11"}}, "block 16 has another height or time than its header"),
        ({"full": {"timestamp": "0x65000001"}}, "block 16 has another height or time than its header"),
        ({"full": {"transactions": []}}, "block 16 has 0 transactions and 1 receipts"),
        ({"full": {"transactions": [SENT, SENT]}}, "block 16 has a transaction twice"),
        ({"header": {"transactions": [OTHER]}}, OTHER_HASHES),
        ({"header": {"transactions": []}}, OTHER_HASHES),
        ({"header": {"transactions": [7]}}, "an answer of the wrong shape: Expected `str`, got `int`"),
        ({"sent": {"transactionIndex": "0x1"}}, ELSEWHERE),
        ({"receipt": {"transactionIndex": "0x1"}}, ELSEWHERE),
        ({"receipt": {"blockHash": OTHER}}, OF_ANOTHER),
        ({"receipt": {"transactionHash": OTHER}}, OF_ANOTHER),
    ],
)
def test_a_header_a_block_and_receipts_that_do_not_agree_are_refused(changed: dict[str, Any], text: str) -> None:
    block()
    with pytest.raises(BadAnswer) as error:
        block(**changed)
    assert str(error.value) == f"node: {text}"


def test_hashes_and_addresses_are_stored_in_lower_case_however_a_node_spells_them() -> None:
    shouted = {name: text[:2] + text[2:].upper() for name, text in SENT.items() if name in ("hash", "from", "to")}
    bodies = [SENT | shouted]
    full = {"number": "0x10", "hash": HASH, "timestamp": "0x65000000", "transactions": bodies}
    head = read(Header, HEADER)
    matched = match_receipts("node", msgspec.json.encode(full), msgspec.json.encode([RECEIPT]), head)
    (native_row,), (tx_row,) = native(matched, "local").to_pylist(), rows(matched, "local").to_pylist()
    assert (native_row["tx_hash"], native_row["sender"], native_row["recipient"]) == (HASH, ADDRESS, ADDRESS)
    assert (tx_row["hash"], tx_row["sender"], tx_row["recipient"]) == (HASH, ADDRESS, ADDRESS)
