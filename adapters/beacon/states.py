"""The registry of validators in one state, column by column: a million of them fit where as many objects would not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from adapters.beacon.answers import FAR_FUTURE, ValidatorState
from chainfolio.errors import BadAnswer

NEVER: Final = 2**62  # an epoch that is not known yet
NUMBERS: Final = ("effective_balance", "activation_eligibility_epoch", "activation_epoch", "exit_epoch",
                  "withdrawable_epoch")  # fmt: skip


@dataclass(frozen=True, slots=True)
class States:
    """Validators by rising index. `pubkey` has 48 bytes, `credentials` 32."""

    index: Any
    balance: Any
    effective_balance: Any
    slashed: Any
    activation_eligibility_epoch: Any
    activation_epoch: Any
    exit_epoch: Any
    withdrawable_epoch: Any
    pubkey: Any
    credentials: Any

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
        at, is_there = self.places(indexes)
        return np.where(is_there, getattr(self, name)[at], missing)

    def changed(self, before: States) -> Any:
        """The places of validators that are new, or of which something but the balance is different."""
        at, is_there = before.places(self.index)
        differs = ~is_there
        if len(before):
            for name in (*NUMBERS, "slashed", "credentials"):
                differs |= getattr(self, name) != getattr(before, name)[at]
        return np.flatnonzero(differs)


def columns(source: str, found: Sequence[ValidatorState]) -> States:
    """A part of the registry as columns; BadAnswer where a validator comes twice."""
    count = len(found)
    order = np.argsort(np.fromiter((each.index for each in found), np.int64, count), kind="stable")
    index = np.fromiter((each.index for each in found), np.int64, count)[order]
    if (index[1:] == index[:-1]).any():
        raise BadAnswer(source, "a validator twice in one answer")
    numbers = {
        name: np.fromiter((_epoch(getattr(each.validator, name)) for each in found), np.int64, count)[order]
        for name in NUMBERS
    }
    keys = np.frombuffer(bytes.fromhex("".join(each.validator.pubkey[2:] for each in found)), "V48")
    credentials = bytes.fromhex("".join(each.validator.withdrawal_credentials[2:] for each in found))
    return States(
        index,
        np.fromiter((each.balance for each in found), np.int64, count)[order],
        slashed=np.fromiter((each.validator.slashed for each in found), np.bool_, count)[order],
        pubkey=keys[order],
        credentials=np.frombuffer(credentials, "V32")[order],
        **numbers,
    )


def joined(parts: Sequence[States]) -> States:
    """Parts of one registry, in order, as one."""
    return States(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(States)))


def _epoch(value: int) -> int:
    return NEVER if value == FAR_FUTURE else value
