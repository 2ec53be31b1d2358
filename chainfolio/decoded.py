"""Validation of decoders' results (third-party code may return anything), and their texts as issues.

`is_address`: returns a true value for addresses in the chain's canonical spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

from chainfolio.contracts import Issue
from chainfolio.protocols import DecodedPosition, TokenAmount, position_type_problem

IsAddress = Callable[[str], object]
MAX_RAW = 2**256 - 1
SIDES = ("supplied", "borrowed", "rewards")
TEXTS = ("name", "vault", "pool", "unknown", "unverified", "remark")


def as_positions(result: object, is_address: IsAddress) -> tuple[DecodedPosition, ...] | str:
    """Return a decoder's result as positions (none for None), or a text that describes its problem."""
    positions = () if result is None else result if isinstance(result, list | tuple) else (result,)
    for each in positions:
        if problem := problem_of(each, is_address):
            return f"the decoder returned what is no position: {problem}"
    return tuple(positions)


def problem_of(position: object, is_address: IsAddress) -> str:
    """Return the problem of a position; an empty text if it is valid."""
    if not isinstance(position, DecodedPosition):
        return f"a {type(position).__name__}, not a DecodedPosition"
    for side in SIDES:
        if problem := problem_of_parts(getattr(position, side), is_address):
            return f"`{side}` {problem}"
    for name in TEXTS:
        if not isinstance(getattr(position, name), str):
            return f"`{name}` is a {type(getattr(position, name)).__name__}, not a text"
    return position_type_problem(position.position_type) or _problem_of_rest(position, is_address)


def problem_of_parts(parts: object, is_address: IsAddress) -> str:
    """Return the first problem of token amounts; empty if they are a list or tuple of 0 to MAX_RAW units."""
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
        if part.raw > MAX_RAW:
            return f"has {part.raw.bit_length()} bits of units, and no token has more than 256"
    return ""


def _problem_of_rest(position: DecodedPosition, is_address: IsAddress) -> str:
    """Return the problem of a position's optional fields; empty if they are valid."""
    if not isinstance(position.unlock_s, int) or position.unlock_s < 0:
        return f"`unlock_s` is {position.unlock_s!r}, not a time in Unix seconds"
    if position.health is not None and not (isinstance(position.health, Decimal) and position.health.is_finite()):
        return f"`health` is {position.health!r}, not a Decimal"
    for name in ("replaces", "debts"):
        tokens = getattr(position, name)
        if not isinstance(tokens, list | tuple) or not all(
            isinstance(each, str) and is_address(each) for each in tokens
        ):
            return f"`{name}` is no tuple of addresses as the chain has them"
    return ""


def notes(position: DecodedPosition, account: str, issue: Callable[[str, bool], Issue]) -> Iterator[Issue]:
    """Yield issues about a position: unverified, partly unknown, or remarked.

    `issue` makes one from a reason and `makes_partial`.
    """
    if position.unverified:
        yield issue(uncounted(account, position.unverified), False)
    if position.unknown:
        yield issue(f"not known of {account}: {position.unknown}", not position.unverified and not position.is_unlisted)
    if position.remark:
        yield issue(remarked(account, position.remark), False)


def uncounted(account: str, reason: str) -> str:
    """Return the reason why a claim is in no sum.

    It makes no answer partial, because anybody can send such a claim.
    """
    return f"not counted for {account}, since it cannot be verified: {reason}"


def remarked(account: str, remark: str) -> str:
    """Return a decoder's remark about an account."""
    return f"of {account}: {remark}"
