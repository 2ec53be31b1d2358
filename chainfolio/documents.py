"""Strict reading of external JSON: only the fields of its type, each once, and no text with a NUL."""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec

T = TypeVar("T")


class ValidationError(ValueError):
    """A document is invalid. `path` leads to the invalid value, if known."""

    def __init__(self, message: str, path: list[str]) -> None:
        super().__init__(message)
        self.path = path


def strict(data: bytes, kind: type[T]) -> T:
    """Decode a JSON document of a type, whose Structs forbid unknown fields.

    Raises:
        ValidationError: The document is invalid, names a field twice, or has a NUL character in a text.
    """
    try:
        document = msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError:
        raise ValidationError("it is not UTF-8", []) from None
    except RecursionError:
        raise ValidationError("it is nested too deep", []) from None
    except msgspec.DecodeError as error:  # or its subclass ValidationError, which names the place
        message, _, path = str(error).partition(" - at ")
        raise ValidationError(message, _steps(path)) from None
    # msgspec takes the last of two equal names; a proxy that has looked at the first would have seen another document.
    # By now its nesting is that of its type, so that a second reading is safe, and numbers are left alone.
    json.loads(data, object_pairs_hook=_unique_fields, parse_int=str, parse_float=str)
    if b"\\u0000" in data and _has_nul(msgspec.json.decode(data)):
        raise ValidationError("a text holds a NUL character", [])
    return document


def _unique_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON; ValidationError if it has a name twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValidationError(f"the field `{duplicate}` is given more than once in one object", [])
    return fields


def _has_nul(value: object) -> bool:
    """Return True if a name or text in a document has a NUL character, at any depth."""
    if isinstance(value, dict):
        return any("\0" in name or _has_nul(inner) for name, inner in value.items())
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _steps(path: str) -> list[str]:
    """Split a path of msgspec such as `$.entries[0].label` into its parts."""
    return re.findall(r"[^.\[\]$`]+", path)
