"""Account layouts: the fields of an account by their byte offsets, behind its discriminator. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from solders.pubkey import Pubkey

from chainfolio.adapters.solana.layouts import BadLayout

KEY_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """The byte layout of one kind of account.

    Attributes:
        record: Takes the values of `fields`, in their order.
        min_size: In bytes.
        fields: The offset of each field, and its type as `field_value` reads it.
        discriminator: The first bytes of every such account; empty if they are not fixed.
        max_size: In bytes; 0 if `min_size` is the only size.
        find_fault: Returns the reason why a record cannot be used; empty if it can.
    """

    record: Callable[..., Any]
    min_size: int
    fields: tuple[tuple[int, str], ...]
    discriminator: bytes = b""
    max_size: int = 0
    find_fault: Callable[[Any], str] = field(default=lambda record: "")

    def read(self, content: bytes) -> Any:
        """Return the record of an account.

        Raises:
            BadLayout: The bytes are those of another kind of account, or the record cannot be used.
        """
        if not self.min_size <= len(content) <= (self.max_size or self.min_size):
            raise BadLayout(f"it has {len(content)} bytes")
        if not content.startswith(self.discriminator):
            raise BadLayout("it is another kind of account")
        record = self.record(*(field_value(content, offset, kind) for offset, kind in self.fields))
        if fault := self.find_fault(record):
            raise BadLayout(fault)
        return record


def field_value(content: bytes, offset: int, kind: str) -> Any:
    """Return one field of an account.

    Args:
        content: All bytes of the account.
        offset: Of the field, in bytes.
        kind: `key` (an address), `raw` (32 bytes), `rest` (all bytes from `offset` on), or a little-endian number such
            as `u64` or `i32`.
    """
    if kind == "rest":
        return content[offset:]
    if kind in ("key", "raw"):
        key = content[offset : offset + KEY_SIZE]
        return address(key) if kind == "key" else key
    size = int(kind[1:]) // 8
    return int.from_bytes(content[offset : offset + size], "little", signed=kind[0] == "i")


def address(key: bytes) -> str:
    """Return an address from its 32 bytes."""
    return str(Pubkey.from_bytes(key))
