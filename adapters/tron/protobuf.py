"""Protocol buffers, as far as Tron's need it: the fields of a message by their numbers, and fields as bytes.

What was signed may hold more than its sender's tool would write: fields twice, in another way than they have, groups,
numbers that are longer than they need to be. All is read as the nodes read it, in Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

VARINT, FIXED64, BYTES, BEGIN, END, FIXED32 = range(6)
SIZES: Final = {FIXED64: 8, FIXED32: 4}
MOST: Final = 2**64 - 1
_SHORT: Final = 2**32 - 1  # of the number and the kind of a field, and of a size, no more bits are looked at
_SIGN: Final = 1 << 63
_WORD_SIGN: Final = 1 << 31
LONGEST: Final = 70  # bits of a number in ten bytes
Fields = dict[int, "int | bytes"]  # by number and kind


def fields(data: bytes, message: int = 0) -> Fields:
    """The fields of a message: numbers as unsigned 64 bits, everything else as bytes. Of one that is there several
    times the last counts; of a `message` in it, by its number, all parts make one. ValueError where it is no
    message."""
    found: Fields = {}
    at, end, joined = 0, len(data), message << 3 | BYTES
    parts: list[bytes] = []
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _short(data, at - 1)
        kind = tag & 7
        if kind == VARINT:
            found[tag], at = _long(data, at)
            continue
        if kind == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _short(data, at - 1)
            found[tag] = data[at : at + size]
            if tag == joined:
                parts.append(found[tag])  # type: ignore[arg-type]
            at += size
        else:
            at = _past(data, at, kind)
    if at > end:
        raise ValueError("a field reaches beyond its message")
    if len(parts) > 1:
        found[joined] = b"".join(parts)
    return found


def first(data: bytes, key: int) -> bytes:
    """The first field with a number that is bytes; empty where there is none. What comes behind it is not looked at.
    ValueError where it is no message."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _short(data, at - 1)
        kind = tag & 7
        if kind == BYTES:
            size = data[at] if at < end else 128
            at += 1
            if size > 127:
                size, at = _short(data, at - 1)
            if tag >> 3 == key and at + size <= end:
                return data[at : at + size]
            at += size
        else:
            at = _past(data, at, kind)
    if at > end:
        raise ValueError("a field reaches beyond its message")
    return b""


def repeated(data: bytes, key: int) -> Iterator[bytes]:
    """Every one of a field that is there several times; of a message that may be there once, all together are that
    one. ValueError where it is no message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _short(data, at)
        if tag & 7 != BYTES:
            at = _past(data, at, tag & 7)
            continue
        size, at = _short(data, at)
        if tag >> 3 == key:
            yield data[at : at + size]
        at += size
    if at > end:
        raise ValueError("a field reaches beyond its message")


def _past(data: bytes, at: int, kind: int) -> int:
    """Where a field ends that is not looked at: all of a group, and of the groups in it."""
    depth = 0
    while True:
        if kind == VARINT:
            _, at = _long(data, at)
        elif kind == BYTES:
            size, at = _short(data, at)
            at += size
        elif kind in SIZES:
            at += SIZES[kind]
        elif kind in (BEGIN, END) and (kind == BEGIN or depth):
            depth += 1 if kind == BEGIN else -1
        else:
            raise ValueError(f"a field of kind {kind}")
        if not depth:
            return at
        tag, at = _short(data, at)
        kind = tag & 7


def _short(data: bytes, at: int) -> tuple[int, int]:
    """The number and the kind of a field, or a size, and where it ends."""
    value, at = _long(data, at)
    return value & _SHORT, at


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where it ends. Java takes the tenth for a sign, whatever it is."""
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & MOST if shift < LONGEST else value & MOST | _SIGN, at + shift // 7
    raise ValueError("a number does not end")


def word(message: Fields, key: int) -> int:
    """A field that is one word of several, as the 32 bits that a node looks at; 0 where it is not there."""
    value = number(message, key) & _SHORT
    return value - 2 * _WORD_SIGN if value >= _WORD_SIGN else value


def number(message: Fields, key: int) -> int:
    """A field that is a number of 64 bits with a sign; 0 where it is not there."""
    value = message.get(key << 3 | VARINT, 0)
    assert isinstance(value, int), "by its kind"
    return value - 2 * _SIGN if value >= _SIGN else value


def data(message: Fields, key: int) -> bytes:
    """A field that is bytes; empty where it is not there."""
    value = message.get(key << 3 | BYTES, b"")
    assert isinstance(value, bytes), "by its kind"
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
