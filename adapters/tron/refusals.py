"""Typed errors for the error messages of Tron nodes.

Most come with status 200, as `{"Error": "class java.lang…Exception : message"}`. TronGrid names the exceeded limit,
with status 403, 429 or 503, and the seconds for which it suspends the client.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from chainfolio.errors import BadAnswer, NodeBehind, SourceError, UnsupportedMethod
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.messages import redacted

_LIMITED: Final = re.compile(
    r"lack of computing resources|rate.?limit|too many requests|requests? per|throttl|frequency limit|query server is "
    r"suspended|\bcredits\b|capacity|quota|calls? per|\brps\b|\bqps\b|limit (?:reached|exceeded)|"
    r"exceeds? .{0,30}limit|exceeded .{0,30}limit|slow down|Server.?busy|rate exceeded|daily usage|"
    r"query frequency|too quickly|reached .{0,40}limit",
    re.I,
)
_REFUSED: Final = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted)|disabled|unsupported|upgrade|paid plan|free (?:plan|tier)|"
    r"forbidden|method not found|API is (?:closed|unavailable)|this API is closed",
    re.I,
)
_BEHIND: Final = re.compile(r"block (?:not found|num)|not exist|header not found|NonExistent", re.I)
_SUSPENDED: Final = re.compile(r"suspended for (\d{1,4}) ?s", re.I)


class ErrorResponse(msgspec.Struct):
    """A response that is only an error."""

    Error: str | None = None
    error: str | None = None
    StatusCode: int | None = None


def error_in(source: str, body: bytes | memoryview) -> SourceError | None:
    """Return the typed error of a body that begins with one; None for any other body.

    Malformed JSON and an error without a message give None too.
    """
    start = bytes(body[:64]).lstrip().removeprefix(b"{").lstrip().lower()
    if not start.startswith((b'"error"', b'"success":false', b'"success": false')):
        return None
    try:
        response = msgspec.json.decode(body, type=ErrorResponse)
    except msgspec.DecodeError:
        return None
    message = response.Error or response.error
    return error_from(source, message) if message is not None else None


def error_from(source: str, message: str) -> SourceError:
    """Return the typed error for an error message."""
    if rate_limit := rate_limit_in(source, message):
        return rate_limit
    if _REFUSED.search(message):
        return UnsupportedMethod(source, _printable(message))
    if _BEHIND.search(message):
        return NodeBehind(source, _printable(message))
    return BadAnswer(source, f"it refused: {_printable(message)}")


def rate_limit_in(source: str, message: str) -> RateLimited | None:
    """Return the error for an exceeded limit, None if the message is about something else."""
    if not _LIMITED.search(message):
        return None
    suspended = _SUSPENDED.search(message)
    retry_after_s = int(suspended[1]) if suspended else None
    return RateLimited(source, f"it limits us: {_printable(message)}", retry_after_s=retry_after_s)


def _printable(message: str) -> str:
    return redacted("".join(char if char.isprintable() else " " for char in message[:400]))
