"""Stores that stop the process they are used in, just before a write of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail

WRITES = {
    Lake: ("append", "replace", "delete_span"),
    Tail: (
        "put",
        "add_ranges",
        "add_history_notes",
        "drop_unexplained",
        "rollback",
        "drop",
        "rewind",
        "forget_batch",
        "open_batch",
        "close_batch",
    ),
}


class Died(BaseException):
    """A death like a kill: no handler catches it, and nothing is cleaned up."""


@dataclass(slots=True)
class Fuse:
    """So many moments pass; the next one is the last."""

    writes_left: int

    def burn(self) -> None:
        """One moment."""
        if self.writes_left == 0:
            raise Died
        self.writes_left -= 1


def mortal(store: Lake | Tail, fuse: Fuse) -> None:
    """Make every write of a store a moment. The disk after it is the disk before the next."""
    for name in WRITES[type(store)]:
        setattr(store, name, _burning(getattr(store, name), fuse))


def _burning(write: Callable[..., Any], fuse: Fuse) -> Callable[..., Any]:
    def write_or_die(*arguments: Any, **named: Any) -> Any:
        fuse.burn()
        return write(*arguments, **named)

    return write_or_die
