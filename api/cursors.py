"""Cursors: signed positions in a list, valid for the same account and the same query only."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
SEAL_BYTES: Final = 16
MAX_CHARS: Final = 512


class InvalidCursor(ValueError):
    """The text is not a cursor that this server made for this query and account."""


def seal(secret: bytes, question: tuple[str, ...], position: object) -> str:
    """Return a position in a list as URL-safe text, signed for `question`, which must include the account."""
    data = msgspec.msgpack.encode(position)
    return urlsafe_b64encode(_mark(secret, question, data) + data).decode().rstrip("=")


def unseal(secret: bytes, question: tuple[str, ...], cursor: str, kind: type[T]) -> T:
    """Return the position in a cursor, as a `kind`.

    Raises:
        InvalidCursor: The cursor was changed, or made for another question or account.
    """
    try:
        sealed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:  # not base64, or not ASCII
        raise InvalidCursor from None
    mark, data = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
    # Several base64 texts decode to the same bytes; only the one that `seal` returned is accepted.
    is_whole = hmac.compare_digest(mark, _mark(secret, question, data))
    if not is_whole or urlsafe_b64encode(sealed).decode().rstrip("=") != cursor:
        raise InvalidCursor
    return msgspec.msgpack.decode(data, type=kind)


def _mark(secret: bytes, question: tuple[str, ...], data: bytes) -> bytes:
    packed = msgspec.msgpack.encode(question)
    return hmac.digest(secret, msgspec.msgpack.encode([packed, data]), hashlib.sha256)[:SEAL_BYTES]
