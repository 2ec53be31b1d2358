"""Felts, the one kind of number that Starknet has: read strictly, written in one form, and what is packed into them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from chainfolio.addresses import STARKNET_PRIME
from chainfolio.errors import BadAnswer

U128: Final = 2**128
SHORT: Final = 31  # bytes of a text that one felt holds
MAX_WORDS: Final = 64  # of a text that is read
_is_felt: Final = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII).fullmatch
SURE: Final = 64  # characters of a felt that is below the prime whatever its digits are
_SELECTOR_BITS: Final = 2**250 - 1
_SMALL: Final = {hex(each): each for each in range(1024)}  # counts, versions, upper halves: most felts that are read


def felt(source: str, written: str) -> int:
    """A felt as a node writes it: hexadecimal, below the prime. BadAnswer for anything else."""
    if (small := _SMALL.get(written)) is not None:
        return small
    if not _is_felt(written):
        raise BadAnswer(source, f"{written[:80]!r} is no felt")
    value = int(written, 16)
    if value >= STARKNET_PRIME:
        raise BadAnswer(source, f"{written} is no felt: it is not below the prime")
    return value


def padded(value: int) -> str:
    """A felt in the one form that everything else knows: 0x and 64 digits."""
    return f"0x{value:064x}"


class Padded(dict[str, str]):
    """The one form of felts as nodes write them, each worked out once."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def __missing__(self, written: str) -> str:
        if len(written) <= SURE and _is_felt(written):
            form = "0x" + written[2:].lower().zfill(64)
        else:
            form = padded(felt(self.source, written))
        self[written] = form
        return form


def u256(low: int, high: int) -> int | None:
    """A number of 256 bits from its halves; None where one of them is too large to be one."""
    return low + (high << 128) if low < U128 and high < U128 else None


@cache
def selector(name: str) -> int:
    """The number by which a function or an event of that name is called: Keccak-256, cut to 250 bits."""
    from sha3 import keccak_256

    return int.from_bytes(keccak_256(name.encode()).digest(), "big") & _SELECTOR_BITS


def packed(text: str) -> int:
    """A short text as a felt."""
    data = text.encode("ascii")
    assert len(data) <= SHORT, "a short text has at most 31 bytes"
    return int.from_bytes(data, "big")


def short_text(value: int) -> str:
    """The text in a felt; empty where it is none."""
    data = value.to_bytes(32, "big").lstrip(b"\0")
    return _decoded(data) if len(data) <= SHORT else ""


def text(felts: Sequence[int]) -> str:
    """The text that a contract answered: in one felt; as a ByteArray (whole words, the rest, its length); or as the
    count of felts and as many. Empty where it is none of them."""
    if len(felts) == 1:
        return short_text(felts[0])
    if not felts or len(felts) > MAX_WORDS + 3:
        return ""
    count, words = felts[0], felts[1:]
    if len(words) == count + 2:
        *full, rest, size = words
        if size >= SHORT or any(each >> 8 * SHORT for each in full) or rest >> 8 * size:
            return ""
        return _decoded(b"".join(each.to_bytes(SHORT, "big") for each in full) + rest.to_bytes(size, "big"))
    return "".join(map(short_text, words)) if len(words) == count else ""


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""
