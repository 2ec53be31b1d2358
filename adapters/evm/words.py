"""Encode and decode ABI values of one word, and lists of them: numbers, addresses, bools, bytes32.

Other types, and values that do not fit, are left to eth-abi, whose import takes a quarter of a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from chainfolio.adapters.evm.reads import AbiValue

WORD: Final = 32
ADDRESS: Final = re.compile(r"0x[0-9a-f]{40}\Z")
_NUMBER: Final = re.compile(r"(u?)int([1-9][0-9]{0,2})\Z")


class Kind(NamedTuple):
    """The values that a word may have: integers within bounds.

    `python_type` says how they are represented: as `address` text, `bool`, `bytes`, or int if empty. `is_list`: a list
    of such words.
    """

    min_value: int
    max_value: int
    python_type: str = ""
    is_list: bool = False


ADDRESSES: Final = Kind(0, 2**160 - 1, "address")
BOOLS: Final = Kind(0, 1, "bool")
BYTES: Final = Kind(0, 2**256 - 1, "bytes")
KINDS_BY_NAME: Final = {"address": ADDRESSES, "bool": BOOLS, "bytes32": BYTES}


@lru_cache(maxsize=4096)
def kinds(types: tuple[str, ...]) -> tuple[Kind, ...] | None:
    """Return the kinds of words of some ABI types; None if one is neither a word nor a list of words."""
    by_type = tuple(map(_kind, types))
    supported = tuple(kind for kind in by_type if kind is not None)
    return supported if len(supported) == len(types) else None


def _kind(abi_type: str) -> Kind | None:
    """Return the kind of a type that is one word or a list of words; None for any other type."""
    if abi_type.endswith("[]"):
        item = _kind(abi_type[:-2])
        return None if item is None or item.is_list else item._replace(is_list=True)
    if abi_type in KINDS_BY_NAME:
        return KINDS_BY_NAME[abi_type]
    number = _NUMBER.match(abi_type)
    bits = int(number[2]) if number else 0
    if number is None or bits % 8 or bits > 256:
        return None
    return Kind(0, 2**bits - 1) if number[1] else Kind(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decode_words(types: tuple[str, ...], data: bytes) -> tuple[AbiValue, ...] | None:
    """Decode values; None if a type is not supported, or data is too short or out of a type's range."""
    word_kinds = kinds(types)
    if word_kinds is None:
        return None
    values: list[AbiValue] = []
    for index, kind in enumerate(word_kinds):
        value = (
            _decode_list(kind, data, WORD * index, WORD * len(word_kinds))
            if kind.is_list
            else _decode_word(kind, data, WORD * index)
        )
        if value is None:
            return None
        values.append(value)
    return tuple(values)


def _decode_word(kind: Kind, data: bytes, start: int) -> AbiValue:
    """Decode the word that begins at a byte; None if it is missing or out of range."""
    content = data[start : start + WORD]
    value = int.from_bytes(content, "big", signed=kind.min_value < 0)
    if len(content) < WORD or not kind.min_value <= value <= kind.max_value:
        return None
    if kind.python_type == "address":
        return f"0x{value:040x}"
    return content if kind.python_type == "bytes" else bool(value) if kind.python_type == "bool" else value


def _decode_list(kind: Kind, data: bytes, pointer: int, heads: int) -> tuple[AbiValue, ...] | None:
    """Decode the list to which the word at a byte points, behind the heads; None if it is malformed."""
    start = int.from_bytes(data[pointer : pointer + WORD], "big")
    count = int.from_bytes(data[start : start + WORD], "big")
    first = start + WORD
    if len(data) < pointer + WORD or start < heads or first + WORD * count > len(data):
        return None
    values = tuple(
        _decode_word(kind, data, start_of_item) for start_of_item in range(first, first + WORD * count, WORD)
    )
    return None if None in values else values


def encode_words(types: tuple[str, ...], values: Sequence[AbiValue]) -> bytes | None:
    """Encode values; None if a type is not supported, or if a value is out of its type's range.

    A value of another Python type, such as a bool for a number, counts as out of range.
    """
    word_kinds = kinds(types)
    if word_kinds is None or len(values) != len(word_kinds):
        return None
    head, tail = b"", b""
    for kind, value in zip(word_kinds, values, strict=True):
        if not kind.is_list:
            word = _encode_word(kind, value)
        elif isinstance(value, list | tuple):
            items = [_encode_word(kind, item) for item in value]
            word = None if None in items else (WORD * len(word_kinds) + len(tail)).to_bytes(WORD, "big")
            tail += len(items).to_bytes(WORD, "big") + b"".join(item for item in items if item)
        else:
            word = None
        if word is None:
            return None
        head += word
    return head + tail


def _encode_word(kind: Kind, value: AbiValue) -> bytes | None:
    """Encode a value as a word; None if it is out of range or of another Python type."""
    if kind.python_type == "bytes":
        return value if type(value) is bytes and len(value) == WORD else None
    if kind.python_type == "address":
        number = int(value, 16) if isinstance(value, str) and ADDRESS.match(value) else None
    else:
        number = value if type(value) is (bool if kind.python_type == "bool" else int) else None
    if number is None or not kind.min_value <= number <= kind.max_value:
        return None
    return number.to_bytes(WORD, "big", signed=kind.min_value < 0)
