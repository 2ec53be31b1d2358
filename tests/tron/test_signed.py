"""The signed bytes of a transaction are read as nodes read them, whatever its sender wrote."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from chainfolio.adapters.tron.addresses import ZERO, decode_address, hex_address
from chainfolio.adapters.tron.contracts import DirectTransfer
from chainfolio.adapters.tron.forms import Transaction, TransactionInfo
from chainfolio.adapters.tron.protobuf import encode_field, first_bytes_field
from chainfolio.adapters.tron.rows import decode_operation
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from tests.tron.fakes import ALICE, BOB, USDT, FakeNode, make_transaction


async def movements(node: FakeNode) -> list[tuple[Any, ...]]:
    """Return the movements in block 50."""
    transfers = (await node.chain().collect(Span(50, 50), ("native",))).tables["transfers"].to_pylist()
    names = "standard", "token", "sender", "recipient"
    return [(*(each[name] for name in names), int.from_bytes(each["raw"], "big")) for each in transfers]


@pytest.mark.parametrize(
    ("extra", "amount"),
    [
        (b"\x1a\x011", 5),  # the amount as text
        (b"\x1d\x09\x00\x00\x00" + b"\x19" + b"\x09" * 8, 5),  # in four bytes, in eight
        (b"\x0a\x15" + b"\x41" + decode_address(ALICE), 5),  # the owner twice
        (b"\x18\x07", 7),
        (b"\x98\x80\x00\x87\x00", 7),  # the amount twice, in more bytes than it takes
        (b"\x98\x80\x80\x80\x10\x07", 7),  # with an ignored bit in the field's number
        (b"\x22\x81\x80\x80\x80\x10a" + b"\x18\x07", 7),  # and in a size
        (b"\x23\x18\x07\x2b\x12\x01a\x2c\x24", 5),  # in a group, with another one in it
    ],
)
async def test_what_was_signed_is_read_as_nodes_read_it(extra: bytes, amount: int) -> None:
    """In Java a repeated field counts once, and a field of another kind is another field.

    Google's library for Java gave the same on 300,000 messages with such faults.
    """
    node = FakeNode()
    node.transactions[50] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 5), (0, extra))]
    assert await movements(node) == [("native", None, ALICE, BOB, amount)]


def transfer_value(amount: int) -> bytes:
    """Return the encoded value of a transfer contract."""
    owner, to = (b"\x41" + decode_address(each) for each in (ALICE, BOB))
    return encode_field(1, owner) + encode_field(2, to) + encode_field(3, amount)


@pytest.mark.parametrize(
    "contract",
    [
        encode_field(1, 1)
        + encode_field(
            2, encode_field(2, transfer_value(9)) + encode_field(2, transfer_value(5))
        ),  # what is asked for, twice
        encode_field(1, 1)
        + encode_field(2, encode_field(2, transfer_value(9)))
        + encode_field(2, encode_field(2, transfer_value(5))),  # what it lies in, twice
        encode_field(1, 1)
        + encode_field(2, encode_field(2, transfer_value(5)))
        + encode_field(2, encode_field(1, b"X")),  # that in two parts
        encode_field(1, 1)
        + 2 * encode_field(2, encode_field(1, b"X"))
        + encode_field(2, encode_field(2, transfer_value(5)))
        + encode_field(2, encode_field(1, b"X")),
        encode_field(1, 1)
        + encode_field(2, encode_field(2, transfer_value(5)))
        + 150_000 * b"\x12\x00",  # in as many parts as fit
        encode_field(1, 2**32 + 1)
        + encode_field(2, encode_field(2, transfer_value(5))),  # a type of more bits than nodes look at
        encode_field(1, 2) + encode_field(1, 1) + encode_field(2, encode_field(2, transfer_value(5))),  # a type twice
    ],
)
def test_nobody_signs_one_payment_and_shows_another(contract: bytes) -> None:
    """An index that reads the first of two contracts, unlike nodes, would store a false payment."""
    data = encode_field(11, contract) + encode_field(
        11, encode_field(1, 1) + encode_field(2, encode_field(2, transfer_value(9)))
    )
    signed = Transaction(hashlib.sha256(data).hexdigest(), data.hex())
    kind, operation = decode_operation("node", signed, TransactionInfo(signed.txID))
    assert (kind, operation.transfers) == (1, (DirectTransfer(None, ALICE, BOB, 5),))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"\x58\x05", id="number"),
        pytest.param(b"\x59" + b"\x5a\x02" + b"\x00" * 6, id="eight-bytes"),
        pytest.param(b"\x5d\x5a\x02\x00\x00", id="four-bytes"),
        pytest.param(b"\x5b\x5a\x01\x00\x5c", id="group"),
    ],
)
def test_fields_of_other_wire_types_before_the_contract_are_skipped(before: bytes) -> None:
    """Field 11 is the contract only where it is bytes."""
    contract = encode_field(1, 1) + encode_field(2, encode_field(2, transfer_value(5)))
    assert first_bytes_field(before + encode_field(11, contract), 11) == contract


def test_the_first_of_several_contracts_counts_an_empty_one_too() -> None:
    assert first_bytes_field(b"\x5a\x00" + encode_field(11, transfer_value(5)), 11) == b""
    assert first_bytes_field(
        encode_field(11, transfer_value(5)) + encode_field(11, transfer_value(9)), 11
    ) == transfer_value(5)


@pytest.mark.parametrize("last", [0, 1, 2, 127])
def test_a_number_of_ten_bytes_is_less_than_nothing(last: int) -> None:
    """Java takes the tenth for the sign without looking at it, and the chain takes no such amount."""
    data = encode_field(
        11,
        encode_field(1, 1)
        + encode_field(2, encode_field(2, transfer_value(0) + b"\x18\x85" + b"\x80" * 8 + bytes([last]))),
    )
    signed = Transaction(hashlib.sha256(data).hexdigest(), data.hex())
    with pytest.raises(BadAnswer, match="an amount of -9223372036854775803"):
        decode_operation("node", signed, TransactionInfo(signed.txID))


async def test_a_contract_that_is_told_in_parts_is_one() -> None:
    """Nodes merge the parts of a contract, with its coins in one and its code in another."""
    node, created = FakeNode(), {"contract_address": hex_address(USDT)}
    parts = (2, b"\x28\x09"), (2, b"\x22\x01a"), (0, b"\x22\x01#")
    node.transactions[50] = [make_transaction(30, (1, ALICE), *parts, **created)]
    assert await movements(node) == [("native", None, ALICE, USDT, 9)]


async def test_a_receiver_that_is_none_is_nobody() -> None:
    node = FakeNode()
    node.transactions[50] = [
        make_transaction(11, (1, ALICE), (2, each), (0, extra)) for each, extra in ((5, b"\x7a\0"), (6, b"\x7a\1a"))
    ]
    assert await movements(node) == [
        ("native", None, ALICE, ZERO, 5),
        ("native", None, ALICE, ZERO, 6),
    ]


def test_a_call_that_carries_less_than_nothing_carries_nothing() -> None:
    """Early blocks may have such: nodes looked only whether it was more than nothing."""
    transaction = make_transaction(31, (1, ALICE), (2, USDT), (3, 2**64 - 5), (5, 2**64 - 1))
    kind, operation = decode_operation(
        "node", Transaction(transaction["txID"], transaction["raw_data_hex"]), TransactionInfo(transaction["txID"])
    )
    assert (kind, operation.raw, operation.transfers) == (31, 0, ())
