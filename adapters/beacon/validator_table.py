"""Validators of one state as columns: a million objects would not fit into memory."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from chainfolio.adapters.beacon.responses import BalanceRow, KeyedRow, RegistryRow
from chainfolio.errors import BadAnswer

Array: TypeAlias = NDArray[Any]
Column: TypeAlias = Array | tuple[Array, Array] | None  # pair: values and their validity; None: all unknown
Table = TypeVar("Table", bound="BalanceTable")
NEVER: Final = 2**62  # an epoch that is not scheduled
NUMBER_COLUMNS: Final = (
    "effective_balance",
    "activation_eligibility_epoch",
    "activation_epoch",
    "exit_epoch",
    "withdrawable_epoch",
)


@dataclass(frozen=True, slots=True)
class BalanceTable:
    """Balances of validators in gwei, by ascending index."""

    index: Array
    balance: Array

    def __len__(self) -> int:
        return len(self.index)

    def locate(self, indexes: Array) -> tuple[Array, Array]:
        """Return the row of each index, and whether it is present. The row of an absent index means nothing."""
        if not len(self.index):
            return np.zeros(len(indexes), np.int64), np.zeros(len(indexes), np.bool_)
        rows = np.minimum(np.searchsorted(self.index, indexes), len(self.index) - 1)
        return rows, self.index[rows] == indexes

    def column(self, name: str, indexes: Array, missing: int = 0) -> Array:
        """Return a column for some indexes, in their order; `missing` for absent ones."""
        if not len(self.index):
            return np.full(len(indexes), missing, np.int64)
        values: Array = getattr(self, name)
        if np.array_equal(indexes, self.index):  # two states of a network: saves the search for a million rows
            return values
        rows, is_present = self.locate(indexes)
        return np.where(is_present, values[rows], missing)


@dataclass(frozen=True, slots=True)
class ValidatorTable(BalanceTable):
    """Validators with their fields. `pubkey` has 48 bytes, `credentials` 32."""

    effective_balance: Array
    slashed: Array
    activation_eligibility_epoch: Array
    activation_epoch: Array
    exit_epoch: Array
    withdrawable_epoch: Array
    pubkey: Array
    credentials: Array

    def select(self, indexes: Array) -> ValidatorTable:
        """Return the rows of ascending indexes, without absent ones."""
        rows, is_present = self.locate(indexes)
        return ValidatorTable(*(getattr(self, each.name)[rows[is_present]] for each in fields(ValidatorTable)))

    def changed_rows(self, before: ValidatorTable) -> Array:
        """Return the rows of validators that are new, or whose fields other than the balance changed."""
        rows, is_present = before.locate(self.index)
        differs: Array = ~is_present
        if len(before):
            for name in (*NUMBER_COLUMNS, "slashed", "credentials"):
                differs |= getattr(self, name) != getattr(before, name)[rows]
        return np.flatnonzero(differs)


def validator_table(
    source: str, rows: Sequence[KeyedRow] | Sequence[RegistryRow], pubkeys: Array | None = None
) -> ValidatorTable:
    """Return rows of a response as a table by ascending index. Epochs beyond NEVER become NEVER.

    Args:
        source: The node, for errors.
        rows: In any order.
        pubkeys: Their public keys by ascending index, which is not the order of `rows`, if the rows have none.

    Raises:
        BadAnswer: A validator is there twice, or has a malformed key or credentials.
    """
    inner = [each.validator for each in rows]
    index = _number_column(rows, "index")
    is_sorted = bool((index[1:] > index[:-1]).all())
    order = slice(None) if is_sorted else np.argsort(index, kind="stable")
    index = index[order]
    if (index[1:] == index[:-1]).any():
        raise BadAnswer(source, "a validator twice in one answer")
    numbers = {
        name: np.minimum(_number_column(inner, name, np.uint64), NEVER).astype(np.int64)[order]
        for name in NUMBER_COLUMNS
    }
    return ValidatorTable(
        index,
        _number_column(rows, "balance")[order],
        slashed=_number_column(inner, "slashed", np.bool_)[order],
        pubkey=_bytes_column(source, inner, "pubkey", 48)[order] if pubkeys is None else pubkeys,
        credentials=_bytes_column(source, inner, "withdrawal_credentials", 32)[order],
        **numbers,
    )


def balance_table(rows: Sequence[BalanceRow]) -> BalanceTable:
    """Return balances of a response as a table, in the order of the response."""
    return BalanceTable(_number_column(rows, "index"), _number_column(rows, "balance"))


def _number_column(rows: Sequence[object], name: str, dtype: type[np.generic] = np.int64) -> Array:
    return np.fromiter(map(attrgetter(name), rows), dtype, len(rows))


def _bytes_column(source: str, rows: Sequence[object], name: str, size: int) -> Array:
    """Return a column of hex texts as bytes of one size; raise BadAnswer if one is malformed."""
    try:
        text = "".join(map(attrgetter(name), rows)).encode("ascii")
        digits = np.frombuffer(text, np.uint8).reshape(len(rows), 2 + 2 * size)
        if not (digits[:, :2] == np.frombuffer(b"0x", np.uint8)).all():
            raise ValueError
        return np.frombuffer(unhexlify(digits[:, 2:].tobytes()), f"V{size}")
    except ValueError:  # also raised by binascii, and by encode for letters beyond ASCII
        raise BadAnswer(source, f"an answer of the wrong shape: a {name} that is no hex") from None


def share_columns(new: ValidatorTable, old: ValidatorTable) -> ValidatorTable:
    """Return `new` with the columns of `old` that are equal: most columns stay the same for many epochs."""
    shared = {
        each.name: getattr(old, each.name)
        for each in fields(ValidatorTable)
        if len(old) == len(new) and np.array_equal(getattr(old, each.name), getattr(new, each.name))
    }
    return replace(new, **shared)


def concatenate(parts: Sequence[Table]) -> Table:
    """Return consecutive parts of one state as one table."""
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(kind)))
