"""Accounts as bytes, from which reads are answered as a chain answers them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import base58
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead
from chainfolio.adapters.solana.forms import Plain
from chainfolio.adapters.solana.layouts import TOKEN


def token_account(mint: str, owner: str, raw: int, state: int = 1) -> bytes:
    """A token account of SPL Token."""
    keys = bytes(Pubkey.from_string(mint)) + bytes(Pubkey.from_string(owner))
    return keys + struct.pack("<Q", raw) + bytes(36) + bytes([state]) + bytes(56)


def mint(supply: int, decimals: int, issuer: str = "") -> bytes:
    """A mint of SPL Token."""
    authority = struct.pack("<I", 1) + bytes(Pubkey.from_string(issuer)) if issuer else bytes(36)
    return authority + struct.pack("<QBB", supply, decimals, 1) + bytes(36)


@dataclass(slots=True)
class Ledger:
    """Accounts by their addresses: whose they are, and their bytes."""

    accounts: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    lamports: dict[str, int] = field(default_factory=dict)

    def put(self, address: str, owner: str, content: bytes, lamports: int = 1) -> None:
        """Write an account."""
        self.accounts[address], self.lamports[address] = (owner, content), lamports

    def put_vault(self, address: str, mint: str, owner: str, raw: int) -> None:
        """Write a token account."""
        self.put(address, TOKEN, token_account(mint, owner, raw))

    def __call__(self, read: Any) -> Any:
        """Return the content of an account, or the addresses that match the filters of a list."""
        if isinstance(read, ListRead):
            return tuple(
                sorted(
                    address
                    for address, (owner, content) in self.accounts.items()
                    if owner == read.program and all(matches(content, each) for each in read.filters)
                )
            )
        assert isinstance(read, AccountRead)
        account = self.accounts.get(read.address)
        if account is None:
            return read.result(None, b"")
        return read.result(Plain(("", "base64"), account[0], self.lamports.get(read.address, 1)), account[1])


def matches(content: bytes, condition: int | tuple[int, str]) -> bool:
    """Return True if an account matches a filter: an int is a size, a pair an offset and the bytes there."""
    if isinstance(condition, int):
        return len(content) == condition
    part = base58.b58decode(condition[1])
    return content[condition[0] :][: len(part)] == part
