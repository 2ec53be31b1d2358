"""Validators, as a chain that has some tells of them now, and the clock that their chain runs by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

GWEI = 10**9  # wei
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,18})\Z")
_HEX = re.compile(r"0x[0-9a-f]+\Z")
KEY, ADDRESS = 98, 42  # characters of a public key, and of an address to which validators withdraw


def named(written: str) -> str | None:
    """The one form of what names validators: an index, a public key, or the address to which they withdraw; None for
    anything else."""
    lower = written.strip().lower()
    is_hex = len(lower) in (KEY, ADDRESS) and _HEX.match(lower)
    return lower if is_hex or _INDEX.match(lower) else None


@dataclass(frozen=True, slots=True)
class ValidatorNow:
    """One validator in the newest state. Amounts are gwei; an epoch that is not known yet is None."""

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
        """To where it withdraws; None for a BLS key (prefix 0)."""
        return address_of(self.credentials)


def address_of(credentials: str) -> str | None:
    """The address in withdrawal credentials of the prefix 1 or 2; None for others."""
    return f"0x{credentials[26:]}" if credentials[2:4] in ("01", "02") else None


@dataclass(frozen=True, slots=True)
class SlotClock:
    """When slots and epochs are."""

    genesis_s: int
    slot_s: int
    slots: int  # of an epoch

    @property
    def epoch_s(self) -> int:
        """How long an epoch takes."""
        return self.slot_s * self.slots

    def epoch(self, slot: int) -> int:
        """The epoch of a slot."""
        return slot // self.slots

    def begins_s(self, epoch: int) -> int:
        """The second in which an epoch begins."""
        return self.genesis_s + epoch * self.epoch_s

    def first_from(self, moment_s: int) -> int:
        """The first epoch that begins at a moment or after it."""
        return max(0, -(-(moment_s - self.genesis_s) // self.epoch_s))

    def last_until(self, moment_s: int) -> int:
        """The last epoch that begins at a moment or before it; -1 where there is none."""
        return max(-1, (moment_s - self.genesis_s) // self.epoch_s)


@runtime_checkable
class HasValidators(Protocol):
    """A chain of validators. It has no accounts. Rewards of an epoch are known `settled_after` epochs later."""

    @property
    def settled_after(self) -> int: ...

    async def slot_clock(self) -> SlotClock:
        """When slots and epochs are."""

    async def validator(self, which: int | str) -> ValidatorNow:
        """One of them now, by its index or its public key; NotFound where there is none."""

    async def validators_of(self, filters: Sequence[str]) -> tuple[int, ...]:
        """The indexes of those that indexes, public keys and withdrawal addresses name now."""
