"""Reads with their results, as answers show them: of a kind of chain, or HTTP requests."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)
# How answers name a read: method, contract or address, function, arguments.
ReadLabel: TypeAlias = tuple[str, str | None, str | None, tuple[object, ...]]


class Read(Generic[Value_co]):
    """A read of a chain, or of an HTTP address, whose result is a `Value_co`.

    Each read is a frozen dataclass that derives from this class and names the type of its result: reads with equal
    fields are equal, and are sent once. The class has no metaclass, because checks of reads by type are frequent.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def label(self) -> ReadLabel:
        """The name of the read in answers."""


# A read of a contract or a program's account. Its result follows from the function or layout that it names, as text.
ContractRead: TypeAlias = Read[Any]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A read and its result: the same read at the same block gives the same result."""

    read: Read[object]
    result: object


@dataclass(frozen=True, slots=True)
class AtParent(Read[Value_co]):
    """A read of the state at the parent block, by the parent's hash.

    No transaction of the block has changed that state. The result is that of the read itself; `Unknown` if the block
    has no parent, or the node no longer has the parent's state.
    """

    read: Read[Value_co]

    @property
    def label(self) -> ReadLabel:
        """The name of the inner read."""
        return self.read.label
