"""Decode and encode protocol buffers: the fields of a message by their numbers, and fields as bytes.

Signed bytes may hold more than a sender's tool would write: duplicate fields, fields of another wire type, groups,
numbers that are longer than necessary. They are decoded as the nodes decode them, in Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)  # wire types
SIZES: Final = {FIXED64: 8, FIXED32: 4}
MAX_UINT64: Final = 2**64 - 1
_MAX_UINT32: Final = 2**32 - 1  # Java ignores the higher bits of tags and lengths
_INT64_SIGN: Final = 1 << 63
_INT32_SIGN: Final = 1 << 31
MAX_VARINT_BITS: Final = 70  # ten bytes
Fields = dict[int, "int | bytes"]  # by tag: field number and wire type


def decode_fields(data: bytes, merged: int = 0) -> Fields:
    """Return the varints (as unsigned 64 bits) and the bytes fields of a message by their tags.

    Fields of fixed size and groups are skipped. The last of several equal fields counts.

    Args:
        data: The message.
        merged: Number of a field that is a message: all its parts are joined, as protocol buffers merge them.

    Raises:
        ValueError: The bytes are no message.
    """
    fields: Fields = {}
    at, end, merged_tag = 0, len(data), merged << 3 | BYTES
    parts: list[bytes] = []
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _read_uint32(data, at - 1)
        wire_type = tag & 7
        if wire_type == VARINT:
            fields[tag], at = _read_varint(data, at)
            continue
        if wire_type == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _read_uint32(data, at - 1)
            fields[tag] = data[at : at + size]
            if tag == merged_tag:
                parts.append(fields[tag])  # type: ignore[arg-type]
            at += size
        else:
            at = _skip_field(data, at, wire_type)
    if at > end:
        raise ValueError("a field reaches beyond its message")
    if len(parts) > 1:
        fields[merged_tag] = b"".join(parts)
    return fields


def first_bytes_field(data: bytes, number: int) -> bytes:
    """Return the first bytes field with a number, empty if there is none. The rest is not decoded.

    Raises:
        ValueError: The bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _read_uint32(data, at - 1)
        wire_type = tag & 7
        if wire_type == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _read_uint32(data, at - 1)
            if tag >> 3 == number and at + size <= end:
                return data[at : at + size]
            at += size
        else:
            at = _skip_field(data, at, wire_type)
    if at > end:
        raise ValueError("a field reaches beyond its message")
    return b""


def bytes_fields(data: bytes, number: int) -> Iterator[bytes]:
    """Yield every bytes field with a number. Joined, they are the message of a field that is not repeated.

    Raises:
        ValueError: The bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_uint32(data, at)
        if tag & 7 != BYTES:
            at = _skip_field(data, at, tag & 7)
            continue
        size, at = _read_uint32(data, at)
        if tag >> 3 == number:
            yield data[at : at + size]
        at += size
    if at > end:
        raise ValueError("a field reaches beyond its message")


def _skip_field(data: bytes, at: int, wire_type: int) -> int:
    """Return where a field ends; for a group, with all nested groups. Raises ValueError if malformed."""
    depth = 0
    while True:
        if wire_type == VARINT:
            _, at = _read_varint(data, at)
        elif wire_type == BYTES:
            size, at = _read_uint32(data, at)
            at += size
        elif wire_type in SIZES:
            at += SIZES[wire_type]
        elif wire_type in (START_GROUP, END_GROUP) and (wire_type == START_GROUP or depth):
            depth += 1 if wire_type == START_GROUP else -1
        else:
            raise ValueError(f"a field of kind {wire_type}")
        if not depth:
            return at
        tag, at = _read_uint32(data, at)
        wire_type = tag & 7


def _read_uint32(data: bytes, at: int) -> tuple[int, int]:
    """Return a tag or a length, and where it ends."""
    value, at = _read_varint(data, at)
    return value & _MAX_UINT32, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to ten bytes, and its end. Java takes any tenth byte for the sign.

    Raises ValueError if the number does not end.
    """
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            value &= MAX_UINT64
            return value if shift < MAX_VARINT_BITS else value | _INT64_SIGN, at + shift // 7
    raise ValueError("a number does not end")


def enum_field(fields: Fields, number: int) -> int:
    """Return an enum field, 0 if it is absent. Nodes read its lower 32 bits only."""
    value = int_field(fields, number) & _MAX_UINT32
    return value - 2 * _INT32_SIGN if value >= _INT32_SIGN else value


def int_field(fields: Fields, number: int) -> int:
    """Return a field that is a signed number of 64 bits; 0 if it is absent."""
    value = fields.get(number << 3 | VARINT, 0)
    assert isinstance(value, int), "by its wire type"
    return value - 2 * _INT64_SIGN if value >= _INT64_SIGN else value


def bytes_field(fields: Fields, number: int) -> bytes:
    """Return a bytes field; empty if it is absent."""
    value = fields.get(number << 3 | BYTES, b"")
    assert isinstance(value, bytes), "by its wire type"
    return value


def encode_field(number: int, value: int | bytes) -> bytes:
    """Return a field; nothing if it has the default value, zero or empty."""
    if not value:
        return b""
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_bytes_field(number, value)


def encode_bytes_field(number: int, value: bytes) -> bytes:
    """Return a bytes field, also if it is empty, as elements of repeated fields are."""
    return _encode_head(number, len(value)) + value


@lru_cache(4_096)
def _encode_head(number: int, size: int) -> bytes:
    return encode_varint(number << 3 | BYTES) + encode_varint(size)


def encode_varint(value: int) -> bytes:
    """Return a number that is not negative, in as few bytes as possible."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
