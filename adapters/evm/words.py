"""Values of one word each, and lists of them, as the ABI writes them: numbers, addresses, truth and 32 bytes. What is
not of these, or does not fit, is left to eth-abi, whose import takes a quarter of a second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

WORD: Final = 32
ADDRESS: Final = re.compile(r"0x[0-9a-f]{40}\Z")
_NUMBER: Final = re.compile(r"(u?)int([1-9][0-9]{0,2})\Z")


class Kind(NamedTuple):
    """What a word may be: a whole number within bounds, shown as an address, as truth, as bytes, or as it is; `many`: a
    list of such words."""

    least: int
    most: int
    shown: str = ""
    many: bool = False


ADDRESSES: Final = Kind(0, 2**160 - 1, "address")
TRUTH: Final = Kind(0, 1, "bool")
BYTES: Final = Kind(0, 2**256 - 1, "bytes")
NAMED: Final = {"address": ADDRESSES, "bool": TRUTH, "bytes32": BYTES}


@lru_cache(maxsize=4096)
def kinds(types: tuple[str, ...]) -> tuple[Kind, ...] | None:
    """What the words of these types may be; None where one of them is neither a single word nor a list of such."""
    found = tuple(map(_kind, types))
    known = tuple(kind for kind in found if kind is not None)
    return known if len(known) == len(types) else None


def _kind(written: str) -> Kind | None:
    if written.endswith("[]"):
        one = _kind(written[:-2])
        return None if one is None or one.many else one._replace(many=True)
    if written in NAMED:
        return NAMED[written]
    number = _NUMBER.match(written)
    bits = int(number[2]) if number else 0
    if number is None or bits % 8 or bits > 256:
        return None
    return Kind(0, 2**bits - 1) if number[1] else Kind(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def read(types: tuple[str, ...], data: bytes) -> tuple[Any, ...] | None:
    """The values in some data; None where the types are of others, or a word is none of its type."""
    of = kinds(types)
    if of is None:
        return None
    values: list[Any] = []
    for at, kind in enumerate(of):
        value = _listed(kind, data, WORD * at, WORD * len(of)) if kind.many else _value(kind, data, WORD * at)
        if value is None:
            return None
        values.append(value)
    return tuple(values)


def _value(kind: Kind, data: bytes, at: int) -> Any:
    """The value of the word that begins at a byte; None where there is none."""
    word = data[at : at + WORD]
    value = int.from_bytes(word, "big", signed=kind.least < 0)
    if len(word) < WORD or not kind.least <= value <= kind.most:
        return None
    if kind.shown == "address":
        return f"0x{value:040x}"
    return word if kind.shown == "bytes" else bool(value) if kind.shown == "bool" else value


def _listed(kind: Kind, data: bytes, at: int, heads: int) -> tuple[Any, ...] | None:
    """The list to which the word at a byte points, behind the heads: how many there are, and then they."""
    start = int.from_bytes(data[at : at + WORD], "big")
    count = int.from_bytes(data[start : start + WORD], "big")
    first = start + WORD
    if len(data) < at + WORD or start < heads or first + WORD * count > len(data):
        return None
    values = tuple(_value(kind, data, each) for each in range(first, first + WORD * count, WORD))
    return None if None in values else values


def written(types: tuple[str, ...], values: Sequence[Any]) -> bytes | None:
    """The words of some values; None where the types are of others, or a value is none of its type."""
    of = kinds(types)
    if of is None or len(values) != len(of):
        return None
    head, tail = b"", b""
    for kind, value in zip(of, values, strict=True):
        if not kind.many:
            word = _word(kind, value)
        elif isinstance(value, list | tuple):
            words = [_word(kind, each) for each in value]
            word = None if None in words else (WORD * len(of) + len(tail)).to_bytes(WORD, "big")
            tail += len(words).to_bytes(WORD, "big") + b"".join(each for each in words if each)
        else:
            word = None
        if word is None:
            return None
        head += word
    return head + tail


def _word(kind: Kind, value: Any) -> bytes | None:
    """The word of a value; None where it is none of its type."""
    if kind.shown == "bytes":
        return value if type(value) is bytes and len(value) == WORD else None
    if kind.shown == "address":
        number = int(value, 16) if isinstance(value, str) and ADDRESS.match(value) else None
    else:
        number = value if type(value) is (bool if kind.shown == "bool" else int) else None
    if number is None or not kind.least <= number <= kind.most:
        return None
    return number.to_bytes(WORD, "big", signed=kind.least < 0)
