"""Exact numbers: a decimal of an answer is a `Decimal`, or None if the server does not know it (`N/A`)."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Number = Decimal | None
else:

    class _NumberType(type):
        def __instancecheck__(cls, value: object) -> bool:
            return value is None or isinstance(value, Decimal)

    class Number(metaclass=_NumberType):
        """The type that tells `read_number` to msgspec, which knows no union of a number and a text."""


def read_number(kind: Any, value: Any) -> Decimal | None:
    """Return the decimal that a text spells, None for `N/A` or null; a hook of msgspec.

    Raises:
        ValueError: The text is no finite decimal.
        NotImplementedError: `kind` is another type than `Number`.
    """
    if kind is not Number:
        raise NotImplementedError(f"no field has the type {kind}")
    if value is None or value == "N/A":
        return None
    try:
        number = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite():
        raise ValueError("expected a decimal as text, or `N/A`")
    return number
