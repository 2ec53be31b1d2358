"""Reads with their results, as answers show them. What a read is, is its kind of chain's own; or it is of HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Read(Protocol):
    """A read of a chain, or of an HTTP address."""

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it: the method, the contract or address, the function, the arguments."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A read and what it gave: whoever makes it again at the same block gets the same."""

    read: Read
    result: Any


@dataclass(frozen=True, slots=True)
class AtParent:
    """A read of the state that the block began with: that of its parent, by the parent's hash.

    What one transaction can change, it has not changed there yet. Answered as the read itself; `Unknown` where the
    block has no parent, or the node no longer has the parent's state."""

    read: Any

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """As the read; the block is the one before."""
        shown: tuple[str, str | None, str | None, tuple[Any, ...]] = self.read.shown
        return shown
