"""`Idempotency-Key`: a change that is sent twice is made once and paid once, and gets the same answer."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from chainfolio.api.context import Answer, Context
from chainfolio.api.errors import FieldError, Problem, invalid
from chainfolio.api.schema import content
from chainfolio.storage.state.idempotency import KeyedRequest, StoredResponse

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_VALID_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")


async def read_keyed_request(context: Context) -> KeyedRequest | None:
    """Return the request's key with its account and fingerprint, None without a key.

    Raises a 400 Problem for an invalid or repeated one.
    """
    values = context.http.headers.getall(HEADER, [])
    if not values:
        return None
    if len(values) > 1 or not _VALID_KEY.match(values[0]):
        reason = f"`{HEADER}` is given once, with 1 to 255 printable characters"
        raise invalid("headers", [FieldError(reason, [HEADER])])
    return KeyedRequest(context.principal.account_id, values[0], await _fingerprint(context))


def replay(context: Context, stored: StoredResponse) -> Answer:
    """Return the stored answer, marked as replayed: `changed` if made again and different, else `true`."""
    assert stored.body is not None, "the caller makes a missing body again"
    is_same = stored.digest is None or stored.digest == hashlib.sha256(stored.body).digest()
    context.headers[REPLAYED] = "true" if is_same else "changed"
    return Answer(stored.body, stored.status, stored.content_type)


def key_reused() -> Problem:
    """Return the 422 for a key that was used for another request."""
    return Problem(422, f"this {HEADER} was used for another request", code="IDEMPOTENCY_KEY_REUSED")


async def _fingerprint(context: Context) -> bytes:
    request = context.http
    parts = (request.method, request.raw_path, ",".join(request.headers.getall("X-Delegate-For", [])))
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + await content(context)).digest()
