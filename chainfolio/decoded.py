"""What a decoder returned is checked where it enters, for third-party code may return anything; and what it says beside
amounts, as an answer says it.

`is_address`: whether a text is an address of the chain, in the one spelling that it has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from chainfolio.contracts import Issue
from chainfolio.protocols import DecodedPosition, TokenAmount, problem_of_type

IsAddress = Callable[[str], Any]
SIDES = ("supplied", "borrowed", "rewards")
TEXTS = ("name", "vault", "pool", "unknown", "unverified", "remark")


def founds(result: Any, is_address: IsAddress) -> tuple[DecodedPosition, ...] | str:
    """What a decoder returned, as positions; or a text that says what is wrong with it."""
    several = () if result is None else result if isinstance(result, list | tuple) else (result,)
    for each in several:
        if problem := problem_of(each, is_address):
            return f"the decoder returned what is no position: {problem}"
    return tuple(several)


def problem_of(found: Any, is_address: IsAddress) -> str:
    """What is wrong with a position; empty where nothing is."""
    if not isinstance(found, DecodedPosition):
        return f"a {type(found).__name__}, not a DecodedPosition"
    for side in SIDES:
        if problem := problem_of_parts(getattr(found, side), is_address):
            return f"`{side}` {problem}"
    for name in TEXTS:
        if not isinstance(getattr(found, name), str):
            return f"`{name}` is a {type(getattr(found, name)).__name__}, not a text"
    return problem_of_type(found.position_type) or _problem_of_rest(found, is_address)


def problem_of_parts(parts: Any, is_address: IsAddress) -> str:
    """What is wrong with amounts of tokens; empty where nothing is."""
    if isinstance(parts, TokenAmount):
        return "is one TokenAmount, not a tuple of them (is a comma missing?)"
    if not isinstance(parts, list | tuple):
        return f"is a {type(parts).__name__}, not a tuple of TokenAmounts"
    for part in parts:
        if not isinstance(part, TokenAmount):
            return f"has a {type(part).__name__} in it, not a TokenAmount"
        if not isinstance(part.token, str) or not is_address(part.token):
            return f"names {part.token!r}, which is no address as the chain has it"
        if not isinstance(part.raw, int) or isinstance(part.raw, bool) or part.raw < 0:
            return f"has {part.raw!r} units, which is no number of them"
    return ""


def _problem_of_rest(found: DecodedPosition, is_address: IsAddress) -> str:
    if not isinstance(found.unlock_s, int) or found.unlock_s < 0:
        return f"`unlock_s` is {found.unlock_s!r}, not a time in Unix seconds"
    if found.health is not None and not (isinstance(found.health, Decimal) and found.health.is_finite()):
        return f"`health` is {found.health!r}, not a Decimal"
    if not isinstance(found.replaces, list | tuple) or not all(
        isinstance(each, str) and is_address(each) for each in found.replaces
    ):
        return "`replaces` is no tuple of addresses as the chain has them"
    return ""


def notes(found: DecodedPosition, account: str, issue: Callable[[str, bool], Issue]) -> Iterator[Issue]:
    """What a position of an account itself says is not known of it, or not to be relied on; `issue` makes one of a
    reason, and of whether the answer is partial for it."""
    if found.unverified:
        yield issue(uncounted(account, found.unverified), False)
    if found.unknown:
        yield issue(f"not known of {account}: {found.unknown}", not found.unverified and not found.unlisted)
    if found.remark:
        yield issue(remarked(account, found.remark), False)


def uncounted(account: str, why: str) -> str:
    """Why what is claimed is in no sum. Anybody can send such a claim to anybody, so it makes no answer partial."""
    return f"not counted for {account}, since nobody can verify it: {why}"


def remarked(account: str, remark: str) -> str:
    """What a decoder has to say of what it found."""
    return f"of {account}: {remark}"
