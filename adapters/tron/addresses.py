"""Addresses as nodes write them, in the one form that everything else knows: base58 with a checksum, `T…`."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from base58 import b58decode_check
from solders.pubkey import Pubkey

from chainfolio.addresses import TRON
from chainfolio.errors import BadAnswer

PREFIX: Final = 0x41
SIZE: Final = 20
LEADING: Final = bytes(7)  # written as so many characters; a key that begins with them is what solders writes, and fast
_is_hex: Final = re.compile(r"(?:41|0x)?[0-9a-fA-F]{40}", re.ASCII).fullmatch


@lru_cache(65_536)
def shown(last: bytes) -> str:
    """The address with these 20 bytes."""
    assert len(last) == SIZE, "an address has 20 bytes behind its prefix"
    packed = b"\x41" + last
    return str(Pubkey(LEADING + packed + sha256(sha256(packed).digest()).digest()[:4]))[len(LEADING) :]


@lru_cache(65_536)
def raw(address: str) -> bytes:
    """The 20 bytes behind an address's prefix."""
    return bytes(b58decode_check(address)[1:])


def of_bytes(data: bytes) -> str:
    """An address from its 21 bytes; ValueError where they are none."""
    if len(data) != SIZE + 1 or data[0] != PREFIX:
        raise ValueError(f"{data.hex()[:60]} is no address")
    return shown(data[1:])


@lru_cache(65_536)
def of_hex(source: str, written: str) -> str:
    """An address as nodes write it: 41 and 40 digits, or 40 digits alone as events have them. BadAnswer for anything
    else; a base58 one is checked."""
    if _is_hex(written):
        return shown(bytes.fromhex(written[-2 * SIZE :]))
    if written[:1] == "T" and TRON.canonical(written) == written:
        return written
    raise BadAnswer(source, f"{written[:60]!r} is no address")


def in_hex(address: str) -> str:
    """An address as nodes are asked for it."""
    return f"{PREFIX:x}{raw(address).hex()}"


ZERO: Final = shown(bytes(SIZE))  # what has no address moves from here and to here: stakes, rewards, exchanges
