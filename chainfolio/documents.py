"""JSON from outside, read strictly: the fields of its type and no others, each once, no text with a NUL in it."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class ValidationError(ValueError):
    """A document that cannot be meant. `path` leads to the place, where that is known."""

    def __init__(self, message: str, path: list[str]) -> None:
        super().__init__(message)
        self.path = path


def strict(data: bytes, kind: type[T]) -> T:
    """A document of a type, whose Structs forbid unknown fields; ValidationError where it is none."""
    try:
        found = msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError:
        raise ValidationError("it is not UTF-8", []) from None
    except RecursionError:
        raise ValidationError("it is nested too deep", []) from None
    except msgspec.DecodeError as error:  # of which ValidationError, which names the place, is a kind
        message, _, place = str(error).partition(" - at ")
        raise ValidationError(message, _steps(place)) from None
    # msgspec takes the last of two equal names; a proxy that has looked at the first would have seen another document.
    # By now its nesting is that of its type, so that a second reading is safe, and numbers are left alone.
    json.loads(data, object_pairs_hook=_once, parse_int=str, parse_float=str)
    if b"\\u0000" in data and _has_nul(msgspec.json.decode(data)):
        raise ValidationError("a text holds a NUL character", [])
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError(f"the field `{twice}` is given more than once in one object", [])
    return found


def _has_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any("\0" in name or _has_nul(inner) for name, inner in value.items())
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _steps(place: str) -> list[str]:
    """msgspec's `$.entries[0].label` as the list of its parts."""
    return re.findall(r"[^.\[\]$`]+", place)
