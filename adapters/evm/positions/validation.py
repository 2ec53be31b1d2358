"""What a decoder returned is checked where it enters: third-party code may return anything."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from chainfolio.protocols import DecodedPosition, TokenAmount, problem_of_type

_ADDRESS = re.compile(r"0x[0-9a-f]{40}\Z")
SIDES = ("supplied", "borrowed", "rewards")
TEXTS = ("name", "vault", "pool", "unknown", "unverified", "remark")


def founds(result: Any) -> tuple[DecodedPosition, ...] | str:
    """What a decoder returned, as positions; or a text that says what is wrong with it."""
    several = () if result is None else result if isinstance(result, list | tuple) else (result,)
    for each in several:
        if problem := problem_of(each):
            return f"the decoder returned what is no position: {problem}"
    return tuple(several)


def problem_of(found: Any) -> str:
    """What is wrong with a position; empty where nothing is."""
    if not isinstance(found, DecodedPosition):
        return f"a {type(found).__name__}, not a DecodedPosition"
    for side in SIDES:
        if problem := problem_of_parts(getattr(found, side)):
            return f"`{side}` {problem}"
    for name in TEXTS:
        if not isinstance(getattr(found, name), str):
            return f"`{name}` is a {type(getattr(found, name)).__name__}, not a text"
    return problem_of_type(found.position_type) or _problem_of_rest(found)


def problem_of_parts(parts: Any) -> str:
    """What is wrong with amounts of tokens; empty where nothing is."""
    if isinstance(parts, TokenAmount):
        return "is one TokenAmount, not a tuple of them (is a comma missing?)"
    if not isinstance(parts, list | tuple):
        return f"is a {type(parts).__name__}, not a tuple of TokenAmounts"
    for part in parts:
        if not isinstance(part, TokenAmount):
            return f"has a {type(part).__name__} in it, not a TokenAmount"
        if not isinstance(part.token, str) or not _ADDRESS.match(part.token):
            return f"names {part.token!r}, which is no address in lower case"
        if not isinstance(part.raw, int) or isinstance(part.raw, bool) or part.raw < 0:
            return f"has {part.raw!r} units, which is no number of them"
    return ""


def _problem_of_rest(found: DecodedPosition) -> str:
    if not isinstance(found.unlock_s, int) or found.unlock_s < 0:
        return f"`unlock_s` is {found.unlock_s!r}, not a time in Unix seconds"
    if found.health is not None and not (isinstance(found.health, Decimal) and found.health.is_finite()):
        return f"`health` is {found.health!r}, not a Decimal"
    if not isinstance(found.replaces, list | tuple) or not all(
        isinstance(each, str) and _ADDRESS.match(each) for each in found.replaces
    ):
        return "`replaces` is no tuple of addresses in lower case"
    return ""
