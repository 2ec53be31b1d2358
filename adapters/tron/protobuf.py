"""Protocol buffers, as far as Tron's need it: the fields of a message by their numbers, and fields as bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST: Final = 2**64 - 1
_SIGN: Final = 1 << 63
Fields = dict[int, "int | bytes"]


def fields(data: bytes) -> Fields:
    """The fields of a message: numbers as unsigned 64 bits, everything else as bytes. Of one that is there several
    times the last counts. ValueError where it is no message."""
    found: Fields = {}
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _long(data, at - 1)
        kind = tag & 7
        if kind == VARINT:
            value, at = _long(data, at)
            found[tag >> 3] = value
            continue
        if kind == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _long(data, at - 1)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + size > end:
            raise ValueError("a field reaches beyond its message")
        found[tag >> 3] = data[at : at + size]
        at += size
    return found


def first(data: bytes, key: int) -> bytes:
    """The first field with a number that is bytes; empty where there is none. What comes behind it is not looked at.
    ValueError where it is no message."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _long(data, at - 1)
        kind = tag & 7
        if kind == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _long(data, at - 1)
            if tag >> 3 == key and at + size <= end:
                return data[at : at + size]
            at += size
        elif kind == VARINT:
            _, at = _long(data, at)
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
    if at > end:
        raise ValueError("a field reaches beyond its message")
    return b""


def repeated(data: bytes, key: int) -> list[bytes]:
    """Every one of a field that is there several times. ValueError where it is no message."""
    found, rest = [], data
    while rest:
        tag, behind = _long(rest, 0)
        size, at = _long(rest, behind) if tag & 7 == BYTES else (0, behind)
        if tag & 7 == VARINT:
            _, at = _long(rest, behind)
        elif tag & 7 != BYTES or at + size > len(rest):
            raise ValueError("a field that cannot be there several times")
        if tag >> 3 == key:
            found.append(rest[at : at + size])
        rest = rest[at + size :]
    return found


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where it ends."""
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & MOST, at + shift // 7
    raise ValueError("a number does not end")


def number(message: Fields, key: int) -> int:
    """A field that is a number of 64 bits with a sign; 0 where it is not there. ValueError where it is none."""
    value = message.get(key, 0)
    if isinstance(value, bytes):
        raise ValueError(f"field {key} is no number")
    return value - 2 * _SIGN if value >= _SIGN else value


def data(message: Fields, key: int) -> bytes:
    """A field that is bytes; empty where it is not there. ValueError where it is none."""
    value = message.get(key, b"")
    if isinstance(value, int):
        raise ValueError(f"field {key} is a number")
    return value


def written(key: int, value: int | bytes) -> bytes:
    """A field; nothing where it has the value that an absent one has."""
    if not value:
        return b""
    if isinstance(value, int):
        return varint(key << 3) + varint(value)
    return there(key, value)


def there(key: int, value: bytes) -> bytes:
    """A field that is bytes, also where it is empty: one of several is there all the same."""
    return _begin(key, len(value)) + value


@lru_cache(4_096)
def _begin(key: int, size: int) -> bytes:
    return varint(key << 3 | BYTES) + varint(size)


def varint(value: int) -> bytes:
    """A number that is not negative, in as many bytes as it takes."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
