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
        """What an account says, or which accounts a list has."""
        if isinstance(read, ListRead):
            return tuple(
                sorted(
                    address
                    for address, (owner, content) in self.accounts.items()
                    if owner == read.program and all(meant(content, each) for each in read.filters)
                )
            )
        assert isinstance(read, AccountRead)
        found = self.accounts.get(read.address)
        if found is None:
            return read.result(None, b"")
        return read.result(Plain(("", "base64"), found[0], self.lamports.get(read.address, 1)), found[1])


def meant(content: bytes, wanted: int | tuple[int, str]) -> bool:
    """Whether a list means an account: by its size, or by what lies at a byte."""
    if isinstance(wanted, int):
        return len(content) == wanted
    part = base58.b58decode(wanted[1])
    return content[wanted[0] :][: len(part)] == part
