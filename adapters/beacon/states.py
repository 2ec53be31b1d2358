"""The registry of validators in one state, column by column: a million of them fit where as many objects would not."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from chainfolio.adapters.beacon.answers import BalanceRow, KeyedRow, RegistryRow
from chainfolio.errors import BadAnswer

H = TypeVar("H", bound="Held")
NEVER: Final = 2**62  # an epoch that is not known yet
NUMBERS: Final = (
    "effective_balance",
    "activation_eligibility_epoch",
    "activation_epoch",
    "exit_epoch",
    "withdrawable_epoch",
)


@dataclass(frozen=True, slots=True)
class Held:
    """What validators have, by rising index."""

    index: Any
    balance: Any

    def __len__(self) -> int:
        return len(self.index)

    def places(self, indexes: Any) -> tuple[Any, Any]:
        """Where some indexes are, and whether they are there at all."""
        if not len(self.index):
            return np.zeros(len(indexes), np.int64), np.zeros(len(indexes), np.bool_)
        at = np.minimum(np.searchsorted(self.index, indexes), len(self.index) - 1)
        return at, self.index[at] == indexes

    def of(self, name: str, indexes: Any, missing: int = 0) -> Any:
        """A column for some indexes, in their order."""
        if not len(self.index):
            return np.full(len(indexes), missing, np.int64)
        if np.array_equal(indexes, self.index):  # as of two states of a network: no million places to look for
            return getattr(self, name)
        at, is_there = self.places(indexes)
        return np.where(is_there, getattr(self, name)[at], missing)


@dataclass(frozen=True, slots=True)
class States(Held):
    """All that the registry says of them. `pubkey` has 48 bytes, `credentials` 32."""

    effective_balance: Any
    slashed: Any
    activation_eligibility_epoch: Any
    activation_epoch: Any
    exit_epoch: Any
    withdrawable_epoch: Any
    pubkey: Any
    credentials: Any

    def only(self, indexes: Any) -> States:
        """Those of some indexes, which rise, that are there."""
        at, is_there = self.places(indexes)
        return States(*(getattr(self, each.name)[at[is_there]] for each in fields(States)))

    def changed(self, before: States) -> Any:
        """The places of validators that are new, or of which something but the balance is different."""
        at, is_there = before.places(self.index)
        differs = ~is_there
        if len(before):
            for name in (*NUMBERS, "slashed", "credentials"):
                differs |= getattr(self, name) != getattr(before, name)[at]
        return np.flatnonzero(differs)


def columns(source: str, found: Sequence[KeyedRow] | Sequence[RegistryRow], pubkeys: Any = None) -> States:
    """A part of the registry as columns, with the public keys that are known of it; BadAnswer where a validator comes
    twice."""
    inner = [each.validator for each in found]
    index = _numbers(found, "index")
    in_order = bool((index[1:] > index[:-1]).all())
    order = slice(None) if in_order else np.argsort(index, kind="stable")
    index = index[order]
    if (index[1:] == index[:-1]).any():
        raise BadAnswer(source, "a validator twice in one answer")
    numbers = {name: np.minimum(_numbers(inner, name, np.uint64), NEVER).astype(np.int64)[order] for name in NUMBERS}
    return States(
        index,
        _numbers(found, "balance")[order],
        slashed=_numbers(inner, "slashed", np.bool_)[order],
        pubkey=_bytes(source, inner, "pubkey", 48)[order] if pubkeys is None else pubkeys,
        credentials=_bytes(source, inner, "withdrawal_credentials", 32)[order],
        **numbers,
    )


def held(found: Sequence[BalanceRow]) -> Held:
    """A part of the balances, in the order in which they came."""
    return Held(_numbers(found, "index"), _numbers(found, "balance"))


def _numbers(found: Sequence[Any], name: str, kind: Any = np.int64) -> Any:
    return np.fromiter(map(attrgetter(name), found), kind, len(found))


def _bytes(source: str, found: Sequence[Any], name: str, size: int) -> Any:
    """A column of hex texts, all of one length, as bytes."""
    try:
        written = "".join(map(attrgetter(name), found)).encode("ascii")
        digits = np.frombuffer(written, np.uint8).reshape(len(found), 2 + 2 * size)
        if not (digits[:, :2] == np.frombuffer(b"0x", np.uint8)).all():
            raise ValueError
        return np.frombuffer(unhexlify(digits[:, 2:].tobytes()), f"V{size}")
    except ValueError:  # binascii's and that of letters beyond ASCII are some
        raise BadAnswer(source, f"an answer of the wrong shape: a {name} that is no hex") from None


def shared(new: States, old: States) -> States:
    """A state whose columns are those of another one where both are equal: most columns stay for many epochs."""
    same = {
        each.name: getattr(old, each.name)
        for each in fields(States)
        if len(old) == len(new) and np.array_equal(getattr(old, each.name), getattr(new, each.name))
    }
    return replace(new, **same)


def joined(parts: Sequence[H]) -> H:
    """Parts of one state, in order, as one."""
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(kind)))
