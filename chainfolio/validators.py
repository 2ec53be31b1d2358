"""Validators as their chain reports them now, and the clock of its slots and epochs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from chainfolio.blocks import Block

GWEI = 10**9  # wei
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,18})\Z")
_HEX = re.compile(r"0x[0-9a-f]+\Z")
KEY, ADDRESS = 98, 42  # characters of a public key, and of an address to which validators withdraw


def normalised_id(text: str) -> str | None:
    """Return the normal form of an index, a public key or a withdrawal address; None for other texts."""
    lower = text.strip().lower()
    is_hex = len(lower) in (KEY, ADDRESS) and _HEX.match(lower)
    return lower if is_hex or _INDEX.match(lower) else None


@dataclass(frozen=True, slots=True)
class ValidatorNow:
    """One validator in the newest state. Amounts are gwei; an epoch is None if not known yet."""

    index: int
    pubkey: str
    status: str
    slashed: bool
    balance: int
    effective: int
    credentials: str
    activated: int | None
    exited: int | None
    withdrawable: int | None

    @property
    def address(self) -> str | None:
        """The withdrawal address; None for a BLS key (prefix 0)."""
        return address_of(self.credentials)


def address_of(credentials: str) -> str | None:
    """Return the address in withdrawal credentials of prefix 1 or 2; None for others."""
    return f"0x{credentials[26:]}" if credentials[2:4] in ("01", "02") else None


@dataclass(frozen=True, slots=True)
class Stake:
    """The balance of an owner's validator after a slot, and its pending deposits (`waiting`), in gwei.

    `status` is empty for a validator that is only known from its deposits.
    """

    owner: str
    pubkey: str
    status: str
    balance: int
    waiting: int


@dataclass(frozen=True, slots=True)
class SlotClock:
    """The times of slots and epochs."""

    genesis_s: int
    slot_s: int
    slots: int  # of an epoch

    @property
    def epoch_s(self) -> int:
        """The length of an epoch in seconds."""
        return self.slot_s * self.slots

    def epoch(self, slot: int) -> int:
        """Return the epoch of a slot."""
        return slot // self.slots

    def begins_s(self, epoch: int) -> int:
        """Return the time at which an epoch begins, in Unix seconds."""
        return self.genesis_s + epoch * self.epoch_s

    def first_from(self, moment_s: int) -> int:
        """Return the first epoch that begins at a time or after it."""
        return max(0, -(-(moment_s - self.genesis_s) // self.epoch_s))

    def last_until(self, moment_s: int) -> int:
        """Return the last epoch that begins at a time or before it; -1 if there is none."""
        return max(-1, (moment_s - self.genesis_s) // self.epoch_s)


class HasValidators(Protocol):
    """The methods behind `Capability.VALIDATORS`. Chains with validators have no accounts."""

    @property
    def settled_after(self) -> int:
        """Number of epochs after which the rewards of an epoch are known."""

    @property
    def execution(self) -> str:
        """Key of the chain to whose accounts validators withdraw; empty if it is not configured."""

    @property
    def shows_stake(self) -> bool:
        """True if portfolios of that chain show the account's stakes."""

    async def slot_clock(self) -> SlotClock:
        """Return the times of slots and epochs."""

    async def validator(self, which: int | str) -> ValidatorNow:
        """Return a validator now, by its index or its public key.

        Raises:
            NotFound: there is none.
        """

    async def validators_of(self, filters: Sequence[str]) -> tuple[int, ...]:
        """Return the indexes of validators that match indexes, public keys or withdrawal addresses now."""

    async def stakes(self, owners: Collection[str], candidates: Collection[str], block: Block) -> Sequence[Stake]:
        """Return the stakes of validators that withdraw to `owners`, at a block of the execution chain.

        `candidates` are indexes and public keys of validators that may be theirs. Deposits are looked up without them.
        """
