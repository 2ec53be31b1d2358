"""Addresses: base58 with a checksum (`T…`), as all other modules use them, and the hex forms of nodes."""

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
# Base58 writes a leading zero byte as one character. With seven of them, an address is as long as a Solana key, which
# solders encodes much faster than the base58 package.
PADDING: Final = bytes(7)
_is_hex: Final = re.compile(r"(?:41|0x)?[0-9a-fA-F]{40}", re.ASCII).fullmatch


@lru_cache(65_536)
def encode_address(account: bytes) -> str:
    """Return the base58 address of 20 bytes, given without the prefix."""
    assert len(account) == SIZE, "an address has 20 bytes behind its prefix"
    packed = b"\x41" + account
    return str(Pubkey(PADDING + packed + sha256(sha256(packed).digest()).digest()[:4]))[len(PADDING) :]


@lru_cache(65_536)
def decode_address(address: str) -> bytes:
    """Return the 20 bytes behind the prefix of a base58 address; ValueError for a wrong checksum."""
    return bytes(b58decode_check(address)[1:])


def encode_prefixed(data: bytes) -> str:
    """Return the base58 address of 21 bytes, given with the prefix.

    Raises:
        ValueError: The bytes are no address.
    """
    if len(data) != SIZE + 1 or data[0] != PREFIX:
        raise ValueError(f"{data.hex()[:60]} is no address")
    return encode_address(data[1:])


@lru_cache(65_536)
def parse_address(source: str, text: str) -> str:
    """Return the base58 address of one that a node wrote.

    Args:
        source: The node, for errors.
        text: `41` and 40 digits, 40 digits alone (as in events), or base58.

    Raises:
        BadAnswer: The text is none of these, or its checksum is wrong.
    """
    if _is_hex(text):
        return encode_address(bytes.fromhex(text[-2 * SIZE :]))
    if text[:1] == "T" and TRON.canonical(text) == text:
        return text
    raise BadAnswer(source, f"{text[:60]!r} is no address")


def hex_address(address: str) -> str:
    """Return an address as requests to nodes write it: `41` and 40 digits."""
    return f"{PREFIX:x}{decode_address(address).hex()}"


ZERO: Final = encode_address(bytes(SIZE))  # stands for the chain: stakes go to it, rewards come from it
