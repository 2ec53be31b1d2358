"""The storage keys at which a token may store a balance, and the ways in which words are packed.

A key counts only if it follows from the account by one of these rules, and its word reads as the balance: otherwise,
the node could choose a key whose word happens to hold the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sha3 import keccak_256

FIRST_SLOTS: Final = 64  # candidates if the node does not name the keys that a call reads
MAX_SLOTS: Final = 512  # candidates if it does: they cost no request

# OpenZeppelin's ERC20Upgradeable stores its state at erc7201("openzeppelin.storage.ERC20"), balances first.
OPENZEPPELIN: Final = 0x52C63247E1F47DB19D5CE0460030C497F067CA4CEBF71BA98EEADABE20BACE00
SOLADY: Final = bytes(8) + bytes.fromhex("87a211a2")  # the suffix that Solady hashes after the account

# The bits of a word that may be the balance. The upper ones may hold a flag (USDC's block list), another number (Aave's
# user state), or several numbers.
BALANCE_BITS: Final = (
    (256, ""),
    (255, "low 255 bits"),
    (128, "low 128 bits"),
    (112, "low 112 bits"),
    (96, "low 96 bits"),
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A storage key of a token, and the rule by which it follows from an account, in words."""

    key: int
    rule: str

    @property
    def hex(self) -> str:
        """The key as nodes expect it."""
        return f"0x{self.key:064x}"


@lru_cache(maxsize=256)
def slots(account: str, count: int) -> tuple[Slot, ...]:
    """Return the keys that may hold an account's balance, with mappings at the first `count` slots."""
    return tuple(_slots(account, count))


def _slots(account: str, count: int) -> Iterator[Slot]:
    """Yield the storage slots in which a token may keep an account's balance, with the layout of each.

    The first `count` numbers of slots are tried for Solidity and Vyper.
    """
    holder = bytes(12) + bytes.fromhex(account[2:])
    yield Slot(_hash(holder + _encode_word(OPENZEPPELIN)), "ERC-7201 openzeppelin.storage.ERC20")
    yield Slot(_hash(holder[12:] + SOLADY), "Solady's slot of balances")
    for index in range(count):
        yield Slot(_hash(holder + _encode_word(index)), f"Solidity mapping at slot {index}")
        yield Slot(_hash(_encode_word(index) + holder), f"Vyper mapping at slot {index}")


def matching_bits(word: int, raw: int) -> str | None:
    """Return the bits of a word that equal a balance, as text, empty for all bits; None if none do."""
    return next((bits for size, bits in BALANCE_BITS if word & ((1 << size) - 1) == raw), None)


def _encode_word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _hash(content: bytes) -> int:
    return int.from_bytes(keccak_256(content).digest(), "big")
