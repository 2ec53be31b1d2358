"""Encode and decode RLP: bytes, and lists of items. Strict: a second spelling of an item is refused."""

from __future__ import annotations

from collections.abc import Sequence

Item = bytes | list["Item"]
MAX_NESTED = 8  # nodes of a trie are nested once, and their small children once more


def encode(item: bytes | Sequence[object]) -> bytes:
    """Return the encoding of an item."""
    if isinstance(item, bytes):
        return item if len(item) == 1 and item[0] < 0x80 else _with_header(0x80, item)
    return _with_header(0xC0, b"".join(encode(part) for part in item))  # type: ignore[arg-type]


def number(value: int) -> bytes:
    """Return a number as an item: big-endian without leading zeros, so that zero has no bytes."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def decode(content: bytes) -> Item:
    """Return the one item in some bytes.

    Raises:
        ValueError: They are not exactly one item.
    """
    item, end = _item(content, 0, len(content), 0)
    if end != len(content):
        raise ValueError(f"{len(content) - end} bytes after the end of the item")
    return item


def _with_header(kind: int, body: bytes) -> bytes:
    if len(body) < 56:
        return bytes([kind + len(body)]) + body
    size = number(len(body))
    return bytes([kind + 55 + len(size)]) + size + body


def _item(content: bytes, at: int, limit: int, depth: int) -> tuple[Item, int]:
    """Return the item at a position, and the position behind it.

    Raises ValueError if it is cut off, not in its shortest form, or nested deeper than MAX_NESTED.
    """
    if at >= limit:
        raise ValueError("the item breaks off")
    first = content[at]
    if first < 0x80:
        return content[at : at + 1], at + 1
    kind = 0x80 if first < 0xC0 else 0xC0
    start, size = _body_bounds(content, at, limit, first - kind)
    end = start + size
    if end > limit:
        raise ValueError("the item breaks off")
    if kind == 0x80:
        body = content[start:end]
        if size == 1 and body[0] < 0x80:
            raise ValueError("a small byte that is written in two")
        return body, end
    if depth == MAX_NESTED:
        raise ValueError("nested too deep")
    parts: list[Item] = []
    while start < end:
        part, start = _item(content, start, end, depth + 1)
        parts.append(part)
    return parts, end


def _body_bounds(content: bytes, start_at: int, limit: int, prefix: int) -> tuple[int, int]:
    """Return the start of a string's or list's body, and its size; raise ValueError if malformed."""
    if prefix < 56:
        return start_at + 1, prefix
    start = start_at + 1 + prefix - 55
    size_bytes = content[start_at + 1 : min(start, limit)]
    size = int.from_bytes(size_bytes, "big")
    if len(size_bytes) < prefix - 55 or size_bytes[0] == 0 or size < 56:
        raise ValueError("a size that is not written as it has to be")
    return start, size
