"""Cursors: where a list goes on, sealed, so that only whom it was given to can use it, for the same question."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
SEAL_BYTES: Final = 16
MAX_CHARS: Final = 512


class Forged(ValueError):
    """This is no cursor that was given out for this question to this account."""


def seal(secret: bytes, question: tuple[str, ...], position: Any) -> str:
    """A place in the answer to a question (who asks belongs to it) as text for a URL."""
    data = msgspec.msgpack.encode(position)
    return urlsafe_b64encode(_mark(secret, question, data) + data).decode().rstrip("=")


def unseal(secret: bytes, question: tuple[str, ...], cursor: str, kind: type[T]) -> T:
    """The place in a cursor; Forged where one character, the account or the question is another than it was."""
    try:
        sealed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:  # not base64, or no ASCII
        raise Forged from None
    mark, data = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
    # Base64 has several texts for the same bytes, of which one was given out.
    is_whole = hmac.compare_digest(mark, _mark(secret, question, data))
    if not is_whole or urlsafe_b64encode(sealed).decode().rstrip("=") != cursor:
        raise Forged
    return msgspec.msgpack.decode(data, type=kind)


def _mark(secret: bytes, question: tuple[str, ...], data: bytes) -> bytes:
    packed = msgspec.msgpack.encode(question)
    return hmac.digest(secret, msgspec.msgpack.encode([packed, data]), hashlib.sha256)[:SEAL_BYTES]
