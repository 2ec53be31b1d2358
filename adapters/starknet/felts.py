"""Felts, the one kind of number that Starknet has: read strictly, written in one form, and what is packed into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from chainfolio.addresses import STARKNET_PRIME
from chainfolio.errors import BadAnswer

U128: Final = 2**128
SHORT: Final = 31  # bytes of a text that one felt holds
MAX_WORDS: Final = 64  # of a text that is read
_is_felt: Final = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII).fullmatch
# Felts in lower case that are below the prime whatever their last 62 digits are, each before a comma. What was
# matched is not matched in another way (*+): three ways for each would be 3^n for n felts before one that is none.
_are_plain: Final = re.compile(r"(?:0x0?[0-7]?[0-9a-f]{1,62},)*+", re.ASCII).fullmatch
HALF: Final = 34  # characters of a felt that may be half of an amount
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


class Numbers(dict[str, int]):
    """The numbers of felts as nodes write them, each worked out once."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def __missing__(self, written: str) -> int:
        self[written] = number = felt(self.source, written)
        return number


class Padded(dict[str, str]):
    """The one form of felts as nodes write them, and their `numbers`, each worked out once."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.numbers = source, Numbers(source)

    def __missing__(self, written: str) -> str:
        self[written] = form = padded(felt(self.source, written))
        return form

    def learn(self, words: Iterable[str]) -> None:
        """Works out many at once, for a fifth of the time. Where one of them is no felt nothing is learnt: whoever asks
        for it hears of it."""
        new = dict.fromkeys(words)  # in their order: what is made together is read together
        together = ",".join(new) + ","
        if _are_plain(together) and together.count(",") == len(new):
            self.update({each: "0x" + each[2:].rjust(64, "0") for each in new})
            self.numbers.update({each: int(each, 16) for each in new if len(each) <= HALF})


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
