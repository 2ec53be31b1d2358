"""Accounts as bytes, from which reads are answered as a chain answers them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from solders.pubkey import Pubkey

from adapters.solana.account_reads import AccountRead
from adapters.solana.forms import Plain
from adapters.solana.layouts import TOKEN


def token_account(mint: str, owner: str, raw: int, state: int = 1) -> bytes:
    """A token account of SPL Token."""
    keys = bytes(Pubkey.from_string(mint)) + bytes(Pubkey.from_string(owner))
    return keys + struct.pack("<Q", raw) + bytes(36) + bytes([state]) + bytes(56)


def mint(supply: int, decimals: int) -> bytes:
    """A mint of SPL Token."""
    return bytes(36) + struct.pack("<QBB", supply, decimals, 1) + bytes(36)


@dataclass(slots=True)
class Ledger:
    """Accounts by their addresses: whose they are, and their bytes."""

    accounts: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def put(self, address: str, owner: str, content: bytes) -> None:
        """Write an account."""
        self.accounts[address] = (owner, content)

    def put_vault(self, address: str, mint: str, owner: str, raw: int) -> None:
        """Write a token account."""
        self.put(address, TOKEN, token_account(mint, owner, raw))

    def __call__(self, read: Any) -> Any:
        """What an account says."""
        assert isinstance(read, AccountRead)
        found = self.accounts.get(read.address)
        return read.result(None, b"") if found is None else read.result(Plain(("", "base64"), found[0], 1), found[1])
