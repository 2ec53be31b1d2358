"""Values of one word each, as the ABI writes them: numbers, addresses and truth. What is not of these, or does not fit,
is left to eth-abi, whose import takes a quarter of a second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

WORD: Final = 32
ADDRESS: Final = re.compile(r"0x[0-9a-f]{40}\Z")
_NUMBER: Final = re.compile(r"(u?)int([1-9][0-9]{0,2})\Z")


class Kind(NamedTuple):
    """What a word may be: a whole number within bounds, shown as an address, as truth, or as it is."""

    least: int
    most: int
    shown: str = ""


ADDRESSES: Final = Kind(0, 2**160 - 1, "address")
TRUTH: Final = Kind(0, 1, "bool")


@lru_cache(maxsize=4096)
def kinds(types: tuple[str, ...]) -> tuple[Kind, ...] | None:
    """What the words of these types may be; None where one of them is no single word."""
    found = tuple(map(_kind, types))
    known = tuple(kind for kind in found if kind is not None)
    return known if len(known) == len(types) else None


def _kind(written: str) -> Kind | None:
    if written in ("address", "bool"):
        return ADDRESSES if written == "address" else TRUTH
    number = _NUMBER.match(written)
    bits = int(number[2]) if number else 0
    if number is None or bits % 8 or bits > 256:
        return None
    return Kind(0, 2**bits - 1) if number[1] else Kind(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def read(types: tuple[str, ...], data: bytes) -> tuple[Any, ...] | None:
    """The values in some data; None where the types are of more than a word each, or a word is none of its type."""
    of = kinds(types)
    if of is None or len(data) < WORD * len(of):
        return None
    values: list[Any] = []
    for at, kind in enumerate(of):
        value = int.from_bytes(data[WORD * at : WORD * (at + 1)], "big", signed=kind.least < 0)
        if not kind.least <= value <= kind.most:
            return None
        values.append(f"0x{value:040x}" if kind is ADDRESSES else bool(value) if kind is TRUTH else value)
    return tuple(values)


def written(types: tuple[str, ...], values: Sequence[Any]) -> bytes | None:
    """The words of some values; None where the types are of more than a word each, or a value is none of its type."""
    of = kinds(types)
    if of is None or len(values) != len(of):
        return None
    words = []
    for kind, value in zip(of, values, strict=True):
        if kind is ADDRESSES:
            number = int(value, 16) if isinstance(value, str) and ADDRESS.match(value) else None
        else:
            number = value if type(value) is (bool if kind is TRUTH else int) else None
        if number is None or not kind.least <= number <= kind.most:
            return None
        words.append(number.to_bytes(WORD, "big", signed=kind.least < 0))
    return b"".join(words)
