"""Where in a token's storage a balance lies: how compilers and libraries lay mappings out, and how words are packed.

A key counts only where it follows from the account by one of these rules, and the word there reads as the balance: else
whoever chooses the key could point at any word that happens to hold the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sha3 import keccak_256

FIRST_SLOTS: Final = 64  # tried where the node does not name the keys that a call reads
MAX_SLOTS: Final = 512  # looked through where it does: no request is spent on them

# OpenZeppelin's ERC20Upgradeable keeps its state at erc7201("openzeppelin.storage.ERC20"), balances first.
OPENZEPPELIN: Final = 0x52C63247E1F47DB19D5CE0460030C497F067CA4CEBF71BA98EEADABE20BACE00
SOLADY: Final = bytes(8) + bytes.fromhex("87a211a2")  # what follows the account in what Solady hashes

# What else a word may hold beside a balance, in its upper bits: nothing; a flag (USDC's block list); another number
# (Aave's user state); more of them.
PACKED: Final = ((256, ""), (255, "low 255 bits"), (128, "low 128 bits"), (112, "low 112 bits"), (96, "low 96 bits"))


@dataclass(frozen=True, slots=True)
class Slot:
    """A storage key of a token, and the rule by which it follows from an account, in words."""

    key: int
    rule: str

    @property
    def hex(self) -> str:
        """The key as nodes want it."""
        return f"0x{self.key:064x}"


@lru_cache(maxsize=256)
def slots(account: str, count: int) -> tuple[Slot, ...]:
    """Where an account's balance may lie, with mappings at the first `count` places of a contract."""
    return tuple(_slots(account, count))


def _slots(account: str, count: int) -> Iterator[Slot]:
    holder = bytes(12) + bytes.fromhex(account[2:])
    yield Slot(_hash(holder + _word(OPENZEPPELIN)), "ERC-7201 openzeppelin.storage.ERC20")
    yield Slot(_hash(holder[12:] + SOLADY), "Solady's slot of balances")
    for place in range(count):
        yield Slot(_hash(holder + _word(place)), f"Solidity mapping at slot {place}")
        yield Slot(_hash(_word(place) + holder), f"Vyper mapping at slot {place}")


def reading(word: int, raw: int) -> str | None:
    """How a word reads as a balance (which of its bits, empty for all of them); None where it does not."""
    return next((bits for size, bits in PACKED if word & ((1 << size) - 1) == raw), None)


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _hash(content: bytes) -> int:
    return int.from_bytes(keccak_256(content).digest(), "big")
