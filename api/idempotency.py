"""`Idempotency-Key`: a change that is asked for twice is made once, answered alike and paid once."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from api.context import Answer, Context
from api.errors import FieldError, Problem, invalid
from api.schema import content
from storage.state.idempotency import Asked, Kept

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_SANE = re.compile(r"[\x21-\x7e]{1,255}\Z")


async def asked_once(context: Context) -> Asked | None:
    """The request as its Idempotency-Key names it, None where it has none; Problem where that cannot be a key."""
    given = context.http.headers.getall(HEADER, [])
    if not given:
        return None
    if len(given) > 1 or not _SANE.match(given[0]):
        words = f"`{HEADER}` is given once, with 1 to 255 printable characters"
        raise invalid("headers", [FieldError(words, [HEADER])])
    return Asked(context.principal.account_id, given[0], await _fingerprint(context))


def replayed(context: Context, found: Kept) -> Answer:
    """The answer that was kept, named as such; `changed` where it was made again and is not the same any more."""
    assert found.body is not None, "made again before"
    same = found.digest is None or found.digest == hashlib.sha256(found.body).digest()
    context.headers[REPLAYED] = "true" if same else "changed"
    return Answer(found.body, found.status, found.content_type)


def reused() -> Problem:
    """The refusal of a key that belongs to another request."""
    return Problem(422, f"this {HEADER} was used for another request", code="IDEMPOTENCY_KEY_REUSED")


async def _fingerprint(context: Context) -> bytes:
    request = context.http
    parts = (request.method, request.raw_path, ",".join(request.headers.getall("X-Delegate-For", [])))
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + await content(context)).digest()
