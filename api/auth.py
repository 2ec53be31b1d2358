"""Authenticate a request by an `Authorization: Bearer <key>` header or the dashboard's session."""

from __future__ import annotations

import re
from typing import Final

from chainfolio.api.context import Answer, Context, Proceed, Step
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Principal
from chainfolio.api.request import Request

# RFC 6750 and RFC 9110: the scheme in any case, spaces (no tab), one token68. It has no comma, so header lines that a
# proxy joined are refused like two headers.
_BEARER = re.compile(r"bearer +([A-Za-z0-9\-._~+/]{1,512}=*)\Z", re.IGNORECASE | re.ASCII)
COOKIE: Final = "chainfolio_session"
HEADER: Final = "X-Chainfolio-Dashboard"
_SESSION = re.compile(rf"(?:^|; ?){COOKIE}=([A-Za-z0-9_]{{1,128}})(?:;|\Z)", re.ASCII)
SESSION_ENDED: Final = "the session has ended: log in again"
CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
KEY_HINT: Final = "send your API key as the header `Authorization: Bearer <key>`"


async def authenticate(context: Context, proceed: Proceed) -> Answer:
    """Store the caller's account and key on the request; raise a 401 Problem without a valid key."""
    context.http.principal = await caller(context)
    return await proceed(context)


async def caller(context: Context) -> Principal:
    """Return the account and key of the request's API key, or of its session if it has no such header.

    Raises a 401 Problem without a valid one, or for two of them.
    """
    headers = context.http.headers.getall("Authorization", [])
    if not headers and (token := session_of(context.http)):
        return await _principal(context, token, SESSION_ENDED)
    if len(headers) != 1:
        raise unauthorized(f"one API key is needed: {KEY_HINT}" if headers else f"an API key is needed: {KEY_HINT}")
    match = _BEARER.match(headers[0])
    if not match:
        raise unauthorized(f"the Authorization header cannot be read: {KEY_HINT}")
    return await _principal(context, match[1], "this API key is not valid")


async def _principal(context: Context, token: str, refusal: str) -> Principal:
    principal = await context.parts.state.caller(token)
    if principal is None:
        raise unauthorized(refusal)
    return principal


def session_of(request: Request) -> str | None:
    """Return the key in the session cookie of a request from our own page, else None.

    A browser adds the cookie by itself, so a request only counts with the header that no other site may send.
    """
    if HEADER not in request.headers or request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return None
    match = _SESSION.search(request.headers.get("Cookie", ""))
    return match[1] if match else None


def unauthorized(message: str) -> Problem:
    """Return a 401 Problem with its `WWW-Authenticate` challenge."""
    return Problem(401, message, code="UNAUTHORIZED", headers=dict(CHALLENGE))


AUTHENTICATE = Step(
    "authenticate",
    authenticate,
    refuses={401: "The API key is missing, malformed or not valid.", 503: "The store does not answer at the moment."},
)
