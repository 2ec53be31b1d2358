"""What was signed is whatever its sender wrote: the bytes of a transaction are read as nodes read them."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.tron.addresses import ZERO, in_hex, raw
from chainfolio.blocks import Span
from tests.tron.fakes import ALICE, BOB, USDT, FakeNode, done


async def moved(node: FakeNode) -> list[tuple[Any, ...]]:
    """What moved in the block at 50."""
    found = (await node.chain().collect(Span(50, 50), ("native",))).tables["transfers"].to_pylist()
    names = "standard", "token", "sender", "recipient"
    return [(*(each[name] for name in names), int.from_bytes(each["raw"], "big")) for each in found]


@pytest.mark.parametrize(
    ("more", "amount"),
    [
        (b"\x1a\x011", 5),  # the amount as text
        (b"\x1d\x09\x00\x00\x00" + b"\x19" + b"\x09" * 8, 5),  # in four bytes, in eight
        (b"\x0a\x15" + b"\x41" + raw(ALICE), 5),  # the owner twice
        (b"\x18\x07", 7),
        (b"\x98\x80\x00\x87\x00", 7),  # the amount twice, in more bytes than it takes
        (b"\x98\x80\x80\x80\x10\x07", 7),  # with a bit in the field's number that nobody looks at
        (b"\x22\x81\x80\x80\x80\x10a" + b"\x18\x07", 7),  # and in a size
        (b"\x23\x18\x07\x2b\x12\x01a\x2c\x24", 5),  # in a group, with another one in it
    ],
)
async def test_what_was_signed_is_read_as_nodes_read_it(more: bytes, amount: int) -> None:
    """In Java what is there twice counts once, and what has another kind is another field."""
    node = FakeNode()
    node.transactions[50] = [done(1, (1, ALICE), (2, BOB), (3, 5), (0, more))]
    assert await moved(node) == [("native", None, ALICE, BOB, amount)]


async def test_a_contract_that_is_told_in_parts_is_one() -> None:
    """Its coins in one part, its code in another: nodes read both together."""
    node, made = FakeNode(), {"contract_address": in_hex(USDT)}
    parts = (2, b"\x28\x09"), (2, b"\x22\x01a"), (0, b"\x22\x01#")
    node.transactions[50] = [done(30, (1, ALICE), *parts, **made)]
    assert await moved(node) == [("native", None, ALICE, USDT, 9)]


async def test_a_receiver_that_is_none_is_nobody() -> None:
    node = FakeNode()
    node.transactions[50] = [
        done(11, (1, ALICE), (2, each), (0, more)) for each, more in ((5, b"\x7a\0"), (6, b"\x7a\1a"))
    ]
    assert await moved(node) == [
        ("native", None, ALICE, ZERO, 5), ("native", None, ALICE, ZERO, 6),
    ]  # fmt: skip
