"""Reads of program accounts as values: by address, by seeds, or by an address that they contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import base58
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_layouts import LAMPORTS, LAYOUT_NAMES, LAYOUTS, read
from chainfolio.adapters.solana.account_records import Lamports
from chainfolio.adapters.solana.forms import Plain
from chainfolio.adapters.solana.layouts import SYSTEM, BadLayout
from chainfolio.plans import Unknown
from chainfolio.reads import ContractRead, Read, ReadLabel


@dataclass(frozen=True, slots=True)
class AccountRead(ContractRead):
    """A read of one account. Its result is the record of its layout, or Unknown.

    The account is read as it is now: nodes keep no past state.

    Attributes:
        program: The program that the account must belong to; empty for mints and token accounts.
        layout: A name of `LAYOUT_NAMES`.
        location: The address of the account alone, or the seeds from which its program derives the address. A text is
            an address.
        pick: The index of a tick in a tick array; empty for other layouts.
    """

    program: str
    layout: str
    location: tuple[str | bytes, ...]
    pick: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.layout in LAYOUT_NAMES, f"no layout is called {self.layout}"

    @property
    def address(self) -> str:
        """The address of the account."""
        if len(self.location) == 1 and isinstance(self.location[0], str):
            return self.location[0]
        return derived(self.program, self.location)

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it: method, address, layout and arguments."""
        return "getMultipleAccounts", self.address, self.layout, self.pick

    def result(self, account: Plain | None, content: bytes) -> Any:
        """Return the record of an account, or Unknown if it does not exist or has another layout.

        Args:
            account: None if the account does not exist.
            content: Its bytes; empty if it does not exist.

        Returns:
            For the layout `lamports`, always a record: 0 lamports if the account does not exist.
        """
        if self.layout == LAMPORTS:
            return Lamports(account.lamports if account else 0)
        if account is None or (account.owner == SYSTEM and not content):  # anybody can send lamports to any address
            return Unknown(f"there is no account {self.address}", "absent")
        try:
            return read(self.layout, content, account.owner, self.program, self.pick)
        except BadLayout as error:
            return Unknown(f"the account {self.address} is no {self.layout.replace('_', ' ')}: {error}", "contract")


@dataclass(frozen=True, slots=True)
class ListRead(Read[Sequence[str] | Unknown]):
    """A search for the accounts of a program with one layout that contain an address.

    Its result is their sorted addresses, or Unknown if no endpoint serves the search.

    Attributes:
        program: The program that owns the accounts.
        layout: A name of `LAYOUTS`.
        offset: The byte offset of the address in the accounts.
        address: The address that they contain.
    """

    program: str
    layout: str
    offset: int
    address: str

    def __post_init__(self) -> None:
        assert self.layout in LAYOUTS, f"no layout is called {self.layout}"

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it: method, program, layout and arguments."""
        return "getProgramAccounts", self.program, self.layout, (self.offset, self.address)

    @property
    def filters(self) -> tuple[int | tuple[int, str], ...]:
        """The filters of the search: a size in bytes, or an offset with the base58 text of the bytes there."""
        layout = LAYOUTS[self.layout]
        kind = (0, base58.b58encode(layout.discriminator).decode()) if layout.discriminator else layout.min_size
        return kind, (self.offset, self.address)


@lru_cache(65_536)
def derived(program: str, seeds: tuple[str | bytes, ...]) -> str:
    """Return the address that a program derives from seeds. A text seed is an address."""
    parts = [bytes(Pubkey.from_string(each)) if isinstance(each, str) else each for each in seeds]
    return str(Pubkey.find_program_address(parts, Pubkey.from_string(program))[0])
