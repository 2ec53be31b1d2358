"""Reads of accounts of programs as values: whose account it is, how its bytes are read, and where it lies, or what it
names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from solders.pubkey import Pubkey

from adapters.solana.account_layouts import KNOWN, LAMPORTS, LAYOUTS, Lamports, read
from adapters.solana.forms import Plain
from adapters.solana.layouts import SYSTEM, BadLayout
from chainfolio.plans import Unknown


@dataclass(frozen=True, slots=True)
class AccountRead:
    """What an account says by its layout, now: no node keeps what it said before. Answered with the fields of the
    layout, or Unknown.

    `at` is its address, or the seeds from which its program derives it: a text is an address, the rest are bytes.
    `pick` says which part is meant, where an account has many.
    """

    program: str
    layout: str
    at: tuple[str | bytes, ...]
    pick: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.layout in KNOWN, f"no layout is called {self.layout}"

    @property
    def address(self) -> str:
        """Where it lies."""
        if len(self.at) == 1 and isinstance(self.at[0], str):
            return self.at[0]
        return derived(self.program, self.at)

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getMultipleAccounts", self.address, self.layout, self.pick

    def result(self, account: Plain | None, content: bytes) -> Any:
        """What the account says."""
        if self.layout == LAMPORTS:
            return Lamports(account.lamports if account else 0)
        if account is None or (account.owner == SYSTEM and not content):  # to any address lamports can be sent
            return Unknown(f"there is no account {self.address}", "absent")
        try:
            return read(self.layout, content, account.owner, self.program, self.pick)
        except BadLayout as error:
            return Unknown(f"the account {self.address} is no {self.layout.replace('_', ' ')}: {error}", "contract")


@dataclass(frozen=True, slots=True)
class ListRead:
    """The addresses of all accounts of a program that are of one layout, and have an address at some byte. Answered
    with them in their order, or Unknown where an endpoint does not look for them."""

    program: str
    layout: str
    at: int
    named: str

    def __post_init__(self) -> None:
        assert self.layout in LAYOUTS, f"no layout is called {self.layout}"

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getProgramAccounts", self.program, self.layout, (self.at, self.named)

    @property
    def filters(self) -> tuple[int | tuple[int, str], ...]:
        """A size in bytes, or what lies at a byte, in base58: by the mark of the layout, or else its size."""
        import base58

        layout = LAYOUTS[self.layout]
        kind = (0, base58.b58encode(layout.mark).decode()) if layout.mark else layout.least
        return kind, (self.at, self.named)


@lru_cache(65_536)
def derived(program: str, seeds: tuple[str | bytes, ...]) -> str:
    """The address that a program derives from seeds."""
    parts = [bytes(Pubkey.from_string(each)) if isinstance(each, str) else each for each in seeds]
    return str(Pubkey.find_program_address(parts, Pubkey.from_string(program))[0])
