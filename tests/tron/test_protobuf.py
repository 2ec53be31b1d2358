"""Protocol buffers against a writer of their own, which also writes what a sender's tool would not."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.tron import protobuf
from chainfolio.adapters.tron.protobuf import (
    bytes_field,
    bytes_fields,
    decode_fields,
    encode_bytes_field,
    encode_field,
    encode_varint,
    enum_field,
    first_bytes_field,
    int_field,
)

EDGES = [0, 1, 127, 128, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS = st.sampled_from([1, 2, 3, 15, 16, 2047, 2048, 2**29 - 1])
VALUES = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
Field = tuple[int, int, Any, bytes]  # number, wire type, value, and all its bytes
TEXTS = st.binary(max_size=5) | st.sampled_from([b"x" * size for size in (127, 128, 300)])


def varint(value: int, padding: int = 0) -> bytes:
    """Return a number in groups of seven bits with padding up to nine bytes; a tenth is the sign."""
    groups = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    groups += [0] * min(padding, 9 - len(groups))
    return bytes(each | 128 for each in groups[:-1]) + bytes(groups[-1:])


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> Field:
    """A field of any wire type, groups in groups too."""
    number, padding = draw(NUMBERS), draw(st.integers(0, 3))
    kind = draw(st.sampled_from([0, 0, 1, 2, 2, 5, *([3] if depth else [])]))
    head = varint(number << 3 | kind, padding)
    if kind == 0:
        value = draw(VALUES)
        return number, kind, value, head + varint(value, padding)
    if kind == 2:
        text = draw(TEXTS)
        return number, kind, text, head + varint(len(text), padding) + text
    if kind == 3:
        inner = draw(st.lists(fields(depth=depth - 1), max_size=3))
        return number, kind, None, head + b"".join(each[3] for each in inner) + varint(number << 3 | 4)
    return number, kind, None, head + draw(st.binary(min_size={1: 8, 5: 4}[kind], max_size={1: 8, 5: 4}[kind]))


@given(st.lists(fields(), max_size=8), NUMBERS)
def test_a_message_is_read_as_it_was_written(message_fields: list[Field], number: int) -> None:
    data = b"".join(each[3] for each in message_fields)
    last = {number << 3 | kind: value for number, kind, value, _ in message_fields if kind in (0, 2)}
    texts = [value for each, kind, value, _ in message_fields if (each, kind) == (number, 2)]
    assert decode_fields(data) == last
    merged = {number << 3 | 2: b"".join(texts)} if texts else {}
    assert decode_fields(data, number) == {**last, **merged}
    assert list(bytes_fields(data, number)) == texts
    assert first_bytes_field(data, number) == (texts[0] if texts else b"")


@given(st.lists(fields(), min_size=1, max_size=5), st.data())
def test_a_message_that_was_cut_inside_a_field_is_none(message_fields: list[Field], data: st.DataObject) -> None:
    message = b"".join(each[3] for each in message_fields)
    size = data.draw(st.integers(0, len(message) - 1))
    ends = [0, *accumulate(len(each[3]) for each in message_fields)]
    if size in ends:
        complete = message_fields[: ends.index(size)]
        assert decode_fields(message[:size]) == {
            n << 3 | kind: value for n, kind, value, _ in complete if kind in (0, 2)
        }
        return
    for read in (decode_fields, lambda cut: list(bytes_fields(cut, 5)), lambda cut: first_bytes_field(cut, 5)):
        with pytest.raises(ValueError, match=r"^a field reaches beyond its message$|^a number does not end$"):
            read(message[:size])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08", "a number does not end"),
        (b"\x08" + b"\x80" * 10, "a number does not end"),
        (b"\x80" * 11, "a number does not end"),
        (b"\x0a\x02a", "a field reaches beyond its message"),
        (b"\x0a", "a number does not end"),
        (b"\x09" + b"a" * 7, "a field reaches beyond its message"),
        (b"\x0d" + b"a" * 3, "a field reaches beyond its message"),
        (b"\x0c", "a field of kind 4"),
        (b"\x0e", "a field of kind 6"),
        (b"\x0f", "a field of kind 7"),
        (b"\x0b", "a number does not end"),
        (b"\x0b\x0f", "a field of kind 7"),
    ],
)
def test_what_is_no_message_is_refused_with_its_fault(data: bytes, text: str) -> None:
    for read in (decode_fields, lambda cut: list(bytes_fields(cut, 5)), lambda cut: first_bytes_field(cut, 5)):
        with pytest.raises(ValueError, match=f"^{text}$"):
            read(data)


def test_java_takes_32_bits_of_a_tag_or_length_and_any_tenth_byte_for_the_sign() -> None:
    assert decode_fields(varint(2**32 | 8) + b"\x05") == {8: 5}
    assert decode_fields(b"\x0a" + varint(2**32 | 1) + b"a") == {10: b"a"}
    assert list(bytes_fields(varint(2**32 | 10) + varint(2**32 | 1) + b"a", 1)) == [b"a"]
    assert first_bytes_field(varint(2**32 | 10) + varint(2**32 | 1) + b"a", 1) == b"a"
    ten = b"\x81" + b"\x80" * 8
    assert [decode_fields(b"\x08" + ten + end)[8] for end in (b"\x00", b"\x01", b"\x7e")] == [2**63 + 1] * 3
    assert decode_fields(b"\x08" + b"\xff" * 9 + b"\x7f")[8] == protobuf.MAX_UINT64
    assert decode_fields(b"\x08" + b"\x81" + b"\x80" * 7 + b"\x00")[8] == 1


@pytest.mark.parametrize("value", EDGES)
def test_numbers_are_signed_and_enums_have_32_bits(value: int) -> None:
    read = decode_fields(b"\x18" + varint(value))
    assert int_field(read, 3) == int.from_bytes(value.to_bytes(8, "big"), "big", signed=True)
    assert enum_field(read, 3) == int.from_bytes(value.to_bytes(8, "big")[4:], "big", signed=True)
    assert (int_field(read, 2), enum_field(read, 2), bytes_field(read, 3)) == (0, 0, b"")


@given(NUMBERS, VALUES, TEXTS)
def test_fields_are_written_as_briefly_as_they_can_be(number: int, value: int, text: bytes) -> None:
    assert encode_varint(value) == varint(value)
    assert encode_field(number, value) == (varint(number << 3) + varint(value) if value else b"")
    assert encode_bytes_field(number, text) == varint(number << 3 | 2) + varint(len(text)) + text
    assert encode_field(number, text) == (encode_bytes_field(number, text) if text else b"")
    assert bytes_field(decode_fields(encode_bytes_field(number, text)), number) == text
