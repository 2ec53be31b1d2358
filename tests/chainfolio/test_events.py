"""Declarations of events: their topics, and the checks of their fields."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import Event

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
VALUES = {
    "address": st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex()),
    "bool": st.booleans(),
    "uint8": st.integers(0, 2**8 - 1),
    "uint256": st.integers(0, 2**256 - 1),
    "int24": st.integers(-(2**23), 2**23 - 1),
    "bytes32": st.binary(min_size=32, max_size=32),
    "bytes4": st.binary(min_size=4, max_size=4),
}
PARAMETERS = st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind]))


@pytest.mark.parametrize(
    "declaration",
    ["Transfer(address,address,uint256)", "Transfer(address indexed from, address indexed to, uint256 value)"],
)
def test_names_and_what_is_indexed_do_not_change_by_what_an_event_is_found(declaration: str) -> None:
    assert parse_event(declaration).topic == TRANSFER


@given(st.lists(PARAMETERS, max_size=3), st.lists(PARAMETERS, max_size=4), st.data())
def test_what_was_written_is_read_wherever_it_stands(
    topics: list[tuple[str, Any]], data_fields: list[tuple[str, Any]], data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations([(*each, True) for each in topics] + [(*each, False) for each in data_fields]))
    event = parse_event(f"E({', '.join(kind + ' indexed' * indexed for kind, _, indexed in mixed)})")
    logged = ["0x" + encode([kind], [value]).hex() for kind, value, indexed in mixed if indexed]
    unindexed = [(kind, value) for kind, value, indexed in mixed if not indexed]
    content = encode([kind for kind, _ in unindexed], [value for _, value in unindexed])
    read = event.values(range(len(mixed)), logged, content)
    assert read == tuple(value for _, value, _ in mixed)


@pytest.mark.parametrize(
    ("topics", "data"),
    [
        (["0x" + "00" * 12 + "11" * 20], bytes(64)),  # one parameter less is indexed
        (["0x" + "00" * 12 + "11" * 20, *["0x" + "00" * 32] * 2], bytes(64)),  # one more is
        (["0x" + "00" * 12 + "11" * 20, "0x" + "00" * 32], b""),  # the data stops short
        (["0x" + "00" * 12 + "11" * 20, "0x" + "01" * 32], bytes(32)),  # no 8-bit number
    ],
)
def test_a_log_that_is_not_as_declared_says_nothing(topics: list[str], data: bytes) -> None:
    event = parse_event("Deposit(address indexed user, uint8 indexed pid, uint256 amount)")
    assert event.values((0, 1), topics, data) is None


@pytest.mark.parametrize(
    "declaration",
    [
        "Deposit",
        "E(struct)",
        "E(uint)",
        "E(uint7)",
        "E(bytes33)",
        "E((uint256,bool))",
        "E(uint256[2])",
        "E(" + "bool indexed," * 3 + "bool indexed)",
    ],
)
def test_what_is_no_event_is_refused(declaration: str) -> None:
    with pytest.raises(ValueError, match=r"event"):
        parse_event(declaration)


@pytest.mark.parametrize(
    ("signature", "owner", "of"),
    [
        ("E(address user, uint256 indexed pid)", 0, (1,)),  # no user can be looked up by a field that is not indexed
        ("E(uint256 indexed pid, address indexed user)", 0, ()),
        ("E(address indexed user, string indexed name)", 0, (1,)),  # a hash of it is all there is
        ("E(address indexed user)", 0, (1,)),
        ("E(address indexed user)", -1, ()),
    ],
)
def test_a_rule_names_an_indexed_address_and_values_that_can_be_read(
    signature: str, owner: int, of: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"position"):
        Event("role", signature, owner, of)


@pytest.mark.parametrize(
    ("kind", "edge", "beyond"),
    [
        ("address", 2**160 - 1, 2**160),
        ("bool", 1, 2),
        ("uint8", 255, 256),
        ("int8", 127, 128),
        ("int8", -128, -129),
        ("int8", -1, 2**255),
    ],
)
def test_a_word_is_a_value_of_its_type_up_to_the_type_s_edge(kind: str, edge: int, beyond: int) -> None:
    event = parse_event(f"E({kind})")
    read = event.values((0,), (), (edge % 2**256).to_bytes(32, "big"))
    assert read == ("0x" + "ff" * 20 if kind == "address" else edge,)
    assert type(read[0]) is {"address": str, "bool": bool}.get(kind, int)
    assert event.values((0,), (), (beyond % 2**256).to_bytes(32, "big")) is None
