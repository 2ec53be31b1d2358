"""The step that knows who is calling: one `Authorization: Bearer <key>` header, or 401."""

from __future__ import annotations

import re
from typing import Final

from chainfolio.api.context import Answer, Context, Proceed, Step
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Principal

# RFC 6750 over RFC 9110: the scheme in any case, spaces (no tab), one token68. A comma is no part of it, so header
# lines that something on the way has joined are refused like two headers are.
_BEARER = re.compile(r"bearer +([A-Za-z0-9\-._~+/]{1,512}=*)\Z", re.IGNORECASE | re.ASCII)
CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
HOW: Final = "send your API key as the header `Authorization: Bearer <key>`"


async def authenticate(context: Context, proceed: Proceed) -> Answer:
    """Put the caller's account and key on the context."""
    context.http.principal = await caller(context)
    return await proceed(context)


async def caller(context: Context) -> Principal:
    """Whose key the request has; 401 where it has none that opens anything."""
    headers = context.http.headers.getall("Authorization", [])
    if len(headers) != 1:
        raise unauthorized(f"one API key is needed: {HOW}" if headers else f"an API key is needed: {HOW}")
    match = _BEARER.match(headers[0])
    if not match:
        raise unauthorized(f"the Authorization header cannot be read: {HOW}")
    principal = await context.parts.state.caller(match[1])
    if principal is None:
        raise unauthorized("this API key is not valid")
    return principal


def unauthorized(message: str) -> Problem:
    """A 401 with its challenge."""
    return Problem(401, message, code="UNAUTHORIZED", headers=dict(CHALLENGE))


AUTHENTICATE = Step(
    "authenticate",
    authenticate,
    refuses={401: "The API key is missing, malformed or not valid.", 503: "The store cannot answer at the moment."},
)
