"""Translate msgspec's validation errors into messages for users of the API."""

from __future__ import annotations

import difflib
import re
from typing import Final

import msgspec

_KINDS: Final = {
    "object": "an object",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "null": "null",
}
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_ITEMS: Final = {"str": "character", "array": "item", "object": "field"}
_WRONG_TYPE: Final = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`\Z")
_BOUND: Final = re.compile(r"Expected `([a-z]+)` (>=|<=|>|<) ([0-9.e+-]+)\Z")
_LENGTH: Final = re.compile(r"Expected `([a-z]+)` of length (>=|<=) ([0-9]+)\Z")
_PATTERN: Final = re.compile(r"Expected `str` matching regex '(.*)'\Z")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`\Z", re.DOTALL)
_MAX_LIKE: Final = 24  # to find a name that is like a long one takes long


def value_message(message: str) -> str:
    """Return the message for msgspec's error about one value; an unknown one with a small first letter."""
    if match := _WRONG_TYPE.match(message):
        kinds = " or ".join(_KINDS.get(kind, kind) for kind in match[1].split(" | "))
        return f"expected {kinds}, got {'a boolean' if match[2] == 'bool' else _KINDS.get(match[2], match[2])}"
    if match := _BOUND.match(message):
        return f"expected {_KINDS.get(match[1], match[1])} of {_BOUNDS[match[2]]} {match[3]}"
    if match := _LENGTH.match(message):
        items = _ITEMS[match[1]] + ("" if match[3] == "1" else "s")
        return f"expected {_KINDS.get(match[1], match[1])} of {_BOUNDS[match[2]]} {match[3]} {items}"
    if match := _PATTERN.match(message):
        return f"expected a string of the form {match[1]}"
    return message[:1].lower() + message[1:]


def body_message(message: str, path: list[str], kind: type[msgspec.Struct]) -> tuple[str, list[str]]:
    """Return the message for msgspec's error about a body, and the path of the wrong field.

    Args:
        message: msgspec's text, without its path.
        path: Field names and list indexes from the root of the body.
        kind: Type of the body, which is used to suggest field names.
    """
    if match := _FIELD.match(message):
        path = [*path, match[2][:70]]
        if match[1] == "missing required":
            return f"`{_field_path(path)}` is required", path
        like = _names(kind, path[:-1]) if len(match[2]) <= _MAX_LIKE else []
        matches = difflib.get_close_matches(match[2], like, 1)
        parent = f" in `{_field_path(path[:-1])}`" if path[:-1] else ""
        hint = f"; did you mean `{matches[0]}`?" if matches else ""
        return f"unknown field {path[-1]!a}{parent}{hint}", path
    if message == "Input data was truncated":
        message = "its JSON ends too early"
    prefix = f"`{_field_path(path)}` is malformed" if path else "the body is malformed"
    return f"{prefix}: {value_message(message.replace('JSON is malformed', 'it is no JSON', 1))}", path


def _field_path(path: list[str]) -> str:
    """Join a path as in `entries[0].label`."""
    return "".join(f"[{step}]" if step.isdigit() or step == "..." else f".{step}" for step in path).lstrip(".")


def _names(kind: object, path: list[str]) -> list[str]:
    """Return the field names of the object at `path` in a `kind`; empty if there is no such object."""
    info = msgspec.inspect.type_info(kind)
    for step in path:
        if isinstance(info, msgspec.inspect.Metadata):
            info = info.type
        if isinstance(info, msgspec.inspect.ListType):
            info = info.item_type
        elif isinstance(info, msgspec.inspect.StructType):
            fields = {field.encode_name: field.type for field in info.fields}
            if step not in fields:
                return []
            info = fields[step]
    if isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    return [field.encode_name for field in info.fields] if isinstance(info, msgspec.inspect.StructType) else []
