"""Felts, the number type of Starknet: parse and format them, and decode the strings in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from sha3 import keccak_256

from chainfolio.addresses import STARKNET_PRIME
from chainfolio.errors import BadAnswer

U128: Final = 2**128
SHORT_STRING_BYTES: Final = 31  # that one felt holds
MAX_STRING_FELTS: Final = 64
_is_felt: Final = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII).fullmatch
# Lower-case felts that are below the prime whatever their last 62 digits are, each before a comma. The possessive *+
# forbids backtracking: with three ways to match each, n felts before an invalid one would take 3^n steps.
_are_plain: Final = re.compile(r"(?:0x0?[0-7]?[0-9a-f]{1,62},)*+", re.ASCII).fullmatch
MAX_HALF_CHARS: Final = 34  # of a felt that may be half of a u256
_SELECTOR_BITS: Final = 2**250 - 1
_SMALL: Final = {hex(each): each for each in range(1024)}  # counts, versions, upper halves: the most frequent felts


def parse_felt(source: str, text: str) -> int:
    """Parse a felt as nodes write it: hexadecimal with `0x`.

    Raises:
        BadAnswer: The text is no hexadecimal number below the prime.
    """
    if (small := _SMALL.get(text)) is not None:
        return small
    if not _is_felt(text):
        raise BadAnswer(source, f"{text[:80]!r} is no felt")
    value = int(text, 16)
    if value >= STARKNET_PRIME:
        raise BadAnswer(source, f"{text} is no felt: it is not below the prime")
    return value


def format_felt(value: int) -> str:
    """Return a felt in the form that all other modules use: 0x and 64 lower-case digits."""
    return f"0x{value:064x}"


class FeltNumbers(dict[str, int]):
    """Numbers of felts by their text from a node, each parsed once. BadAnswer for an invalid text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def __missing__(self, text: str) -> int:
        self[text] = number = parse_felt(self.source, text)
        return number


class FormattedFelts(dict[str, str]):
    """Formatted felts by their text from a node, and their `numbers`, each parsed once.

    Raises BadAnswer for an invalid text.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.numbers = source, FeltNumbers(source)

    def __missing__(self, text: str) -> str:
        self[text] = form = format_felt(parse_felt(self.source, text))
        return form

    def preload(self, texts: Iterable[str]) -> None:
        """Parse many felts in a fifth of the time; none of them if one has an unusual or an invalid form."""
        new = dict.fromkeys(texts)  # ordered, because felts that are stored together are read together
        joined = ",".join(new) + ","
        if _are_plain(joined) and joined.count(",") == len(new):
            self.update({each: "0x" + each[2:].rjust(64, "0") for each in new})
            self.numbers.update({each: int(each, 16) for each in new if len(each) <= MAX_HALF_CHARS})


def u256(low: int, high: int) -> int | None:
    """Return a 256-bit number from its two halves; None if a half has more than 128 bits."""
    return low + (high << 128) if low < U128 and high < U128 else None


@cache
def selector(name: str) -> int:
    """Return the number of a function or an event: the Keccak-256 of its name, cut to 250 bits."""
    return int.from_bytes(keccak_256(name.encode()).digest(), "big") & _SELECTOR_BITS


def encode_short_string(text: str) -> int:
    """Return an ASCII text of at most 31 bytes as a felt."""
    data = text.encode("ascii")
    assert len(data) <= SHORT_STRING_BYTES, "a short text has at most 31 bytes"
    return int.from_bytes(data, "big")


def decode_short_string(value: int) -> str:
    """Return the text in a felt; empty if it has more than 31 bytes or is not UTF-8."""
    data = value.to_bytes(32, "big").lstrip(b"\0")
    return _decode_utf8(data) if len(data) <= SHORT_STRING_BYTES else ""


def decode_string(felts: Sequence[int]) -> str:
    """Return the text in the result of a contract call; empty if the result has none of three layouts.

    These are a short string in one felt, a ByteArray (full words, the pending word and its size), and a number of felts
    followed by these felts.
    """
    if len(felts) == 1:
        return decode_short_string(felts[0])
    if not felts or len(felts) > MAX_STRING_FELTS + 3:
        return ""
    count, content = felts[0], felts[1:]
    if len(content) == count + 2:
        *full, pending, size = content
        if size >= SHORT_STRING_BYTES or any(each >> 8 * SHORT_STRING_BYTES for each in full) or pending >> 8 * size:
            return ""
        data = b"".join(each.to_bytes(SHORT_STRING_BYTES, "big") for each in full)
        return _decode_utf8(data + pending.to_bytes(size, "big"))
    return "".join(map(decode_short_string, content)) if len(content) == count else ""


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""
