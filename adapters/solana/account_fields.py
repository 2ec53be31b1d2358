"""How the bytes of accounts are read: by a mark that they begin with, their number, and where fields lie. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from solders.pubkey import Pubkey

from adapters.solana.layouts import BadLayout

KEY_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """How the bytes of one kind of account are read: `places` are the fields of `fields`, in their order."""

    fields: Callable[..., Any]
    least: int
    places: tuple[tuple[int, str], ...]
    mark: bytes = b""
    most: int = 0  # bytes; 0: exactly as many as the least
    check: Callable[[Any], str] = field(default=lambda found: "")

    def read(self, content: bytes) -> Any:
        """The fields of an account; BadLayout where it is another kind of account."""
        if not self.least <= len(content) <= (self.most or self.least):
            raise BadLayout(f"it has {len(content)} bytes")
        if not content.startswith(self.mark):
            raise BadLayout("it is another kind of account")
        found = self.fields(*(value(content, at, kind) for at, kind in self.places))
        if fault := self.check(found):
            raise BadLayout(fault)
        return found


def value(content: bytes, at: int, kind: str) -> Any:
    """A field: a `key`, `raw` bytes of that size, the `rest`, or a number such as `u64` or `i32`."""
    if kind == "rest":
        return content[at:]
    if kind in ("key", "raw"):
        found = content[at : at + KEY_SIZE]
        return address(found) if kind == "key" else found
    size = int(kind[1:]) // 8
    return int.from_bytes(content[at : at + size], "little", signed=kind[0] == "i")


def address(content: bytes) -> str:
    """An address from its 32 bytes."""
    return str(Pubkey.from_bytes(content))
