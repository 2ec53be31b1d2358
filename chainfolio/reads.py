"""Reads with their results, as answers show them: of a kind of chain, or HTTP requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Read(Protocol):
    """A read of a chain, or of an HTTP address."""

    @property
    def label(self) -> tuple[str, str | None, str | None, tuple[object, ...]]:
        """The name of the read in answers: method, contract or address, function, arguments."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A read and its result: the same read at the same block gives the same result."""

    read: Read
    result: object


@dataclass(frozen=True, slots=True)
class AtParent:
    """A read of the state at the parent block, by the parent's hash.

    No transaction of the block has changed that state. The result is that of the read itself; `Unknown` if the block
    has no parent, or the node no longer has the parent's state.
    """

    read: Any

    @property
    def label(self) -> tuple[str, str | None, str | None, tuple[object, ...]]:
        """The name of the inner read."""
        name: tuple[str, str | None, str | None, tuple[object, ...]] = self.read.label
        return name
