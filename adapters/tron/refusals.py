"""What Tron's nodes mean when they refuse: mostly with status 200, and an error in words.

A node says `{"Error": "class java.lang…Exception : words"}`; TronGrid says which limit was passed, with status 403, 429
or 503, and for how many seconds it answers nobody.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from chainfolio.errors import BadAnswer, NodeBehind, SourceError, Unsupported
from transport.exchange import RateLimited
from transport.messages import shown

_LIMITED: Final = re.compile(
    r"lack of computing resources|rate.?limit|too many requests|requests? per|throttl|frequency limit|query server is "
    r"suspended|\bcredits\b|capacity|quota|calls? per|\brps\b|\bqps\b|limit (?:reached|exceeded)|"
    r"exceeds? .{0,30}limit|exceeded .{0,30}limit|slow down|Server.?busy|rate exceeded|daily usage|"
    r"query frequency|too quickly|reached .{0,40}limit", re.I)  # fmt: skip
_REFUSED: Final = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted)|disabled|unsupported|upgrade|paid plan|free (?:plan|tier)|"
    r"forbidden|method not found|API is (?:closed|unavailable)|this API is closed", re.I)  # fmt: skip
_BEHIND: Final = re.compile(r"block (?:not found|num)|not exist|header not found|NonExistent", re.I)
_SUSPENDED: Final = re.compile(r"suspended for (\d{1,4}) ?s", re.I)


class Said(msgspec.Struct):
    """An answer that is only an error."""

    Error: str | None = None
    error: str | None = None
    StatusCode: int | None = None


def error_in(source: str, body: bytes | memoryview) -> SourceError | None:
    """The typed error that an answer with status 200 is; None where it is none."""
    start = bytes(body[:64]).lstrip().removeprefix(b"{").lstrip().lower()
    if not start.startswith((b'"error"', b'"success":false', b'"success": false')):
        return None
    try:
        said = msgspec.json.decode(body, type=Said)
    except msgspec.DecodeError:
        return None
    words = said.Error or said.error
    return meaning(source, words) if words is not None else None


def meaning(source: str, words: str) -> SourceError:
    """The typed error behind some words."""
    text = shown("".join(char if char.isprintable() else " " for char in words[:400]))
    if limited := limit_in(source, words):
        return limited
    if _REFUSED.search(words):
        return Unsupported(source, text)
    if _BEHIND.search(words):
        return NodeBehind(source, text)
    return BadAnswer(source, f"it refused: {text}")


def limit_in(source: str, words: str) -> RateLimited | None:
    """The error of a limit that was passed; None where the words say something else."""
    if not _LIMITED.search(words):
        return None
    suspended = _SUSPENDED.search(words)
    text = shown("".join(char if char.isprintable() else " " for char in words[:400]))
    return RateLimited(source, f"it limits us: {text}", retry_after_s=int(suspended[1]) if suspended else None)
