"""Parse the strings of a path or query strictly into a Struct, and report all errors at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar, get_args

import msgspec

from chainfolio.api.complaints import value_message
from chainfolio.api.errors import FieldError
from chainfolio.settings import Settings

MAX_FIELD_ERRORS: Final = 20  # a URL has room for thousands of unknown parameters
MAX_HINTS: Final = 3  # finding a similar name takes as long as many requests
MAX_LIKE: Final = 24
BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]{0,77})\Z", re.ASCII)


JsonObject: TypeAlias = dict[str, Any]  # a JSON schema or document
Struct = TypeVar("Struct", bound=msgspec.Struct)


class InvalidParameter(ValueError):
    """The text is not valid for a parameter; the message continues after the parameter's name."""


class Multi(Protocol):
    """A mapping with several values per key."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """Return all values of a key, or `default`."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Custom parser in an `Annotated` type.

    Attributes:
        read: Parses all values of the parameter, or raises InvalidParameter.
        schema: Returns the parameter's JSON schema for the settings.
    """

    read: Callable[[list[str], Settings], object]
    schema: Callable[[Settings], JsonObject]


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of a Struct: `name` in the request, `attribute` in Python."""

    name: str
    attribute: str
    type: Any  # possibly Annotated
    required: bool
    default: object
    reader: Reader | None

    def read(self, values: list[str], settings: Settings) -> object:
        """Return the parsed value of a parameter that was given, once or several times.

        Raises:
            InvalidParameter: The text is not valid, or the parameter is repeated and cannot be.
        """
        if self.reader:
            return self.reader.read(values, settings)
        if len(values) > 1:
            raise InvalidParameter("is given more than once")
        try:
            return msgspec.convert(_scalar(self.type, values[0]), self.type)
        except msgspec.ValidationError as error:
            raise InvalidParameter(f"cannot be {quoted(values[0])}: {_plain(str(error), self.type)}") from None


@cache
def fields_of(kind: type[msgspec.Struct]) -> Mapping[str, Field]:
    """Return the parameters of a Struct by their names in the request."""
    return {
        field.encode_name: Field(
            field.encode_name,
            field.name,
            field.type,
            field.required,
            field.default,
            next((extra for extra in get_args(field.type)[1:] if isinstance(extra, Reader)), None),
        )
        for field in msgspec.structs.fields(kind)
    }


def read(
    kind: type[Struct], texts_by_name: Multi, names: Iterable[str], settings: Settings
) -> Struct | list[FieldError]:
    """Return the parsed Struct, or the list of all errors, at most `MAX_FIELD_ERRORS`.

    Errors of unknown names come first. `names` are the parameters in the request, which may be unknown to the Struct;
    absent ones have their defaults.
    """
    fields = fields_of(kind)
    unknown = islice((name for name in dict.fromkeys(names) if name not in fields), MAX_FIELD_ERRORS)
    field_errors = [_unknown(name, fields if at < MAX_HINTS else ()) for at, name in enumerate(unknown)]
    values: dict[str, object] = {}
    for field in fields.values():
        texts = texts_by_name.getall(field.name, [])
        if not texts:
            if field.required:
                field_errors.append(FieldError(f"`{field.name}` is required", [field.name]))
            continue
        try:
            values[field.attribute] = field.read(texts, settings)
        except InvalidParameter as refused:
            field_errors.append(FieldError(f"`{field.name}` {refused}", [field.name]))
    return field_errors[:MAX_FIELD_ERRORS] if field_errors else kind(**values)


def quoted(text: str) -> str:
    """Return a client's text quoted, in ASCII and at most 70 characters long, for a message."""
    return ascii(text if len(text) <= 70 else text[:67] + "...")


def one_of(options: Iterable[str]) -> str:
    """Return the part of a message that lists the valid values."""
    return f"it is one of {', '.join(sorted(options))}"


def _unknown(name: str, like: Collection[str]) -> FieldError:
    matches = difflib.get_close_matches(name, like, 1) if len(name) <= MAX_LIKE else []
    hint = f"; did you mean `{matches[0]}`?" if matches else ""
    return FieldError(f"unknown parameter {quoted(name)}{hint}", [name[:70]])


def _scalar(kind: object, text: str) -> object:
    """Convert text to a bool or int if the type asks for it and the text is canonical: `5`, not `05`.

    `True` and `TRUE` are accepted like `true`. Other text is returned unchanged.
    """
    base = _base(msgspec.inspect.type_info(kind))
    if isinstance(base, msgspec.inspect.BoolType):
        return BOOLEANS.get(text, text)
    if isinstance(base, msgspec.inspect.IntType):
        return int(text) if _INTEGER.match(text) else text
    return text


def _base(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Return a type without its metadata, and without None if it may be None."""
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if not isinstance(info, msgspec.inspect.UnionType):
        return info
    others = [each for each in info.types if not isinstance(each, msgspec.inspect.NoneType)]
    return _base(others[0]) if len(others) == 1 else info


def _plain(message: str, kind: object) -> str:
    """Return the reason for a refused parameter, without its name, by msgspec's error message.

    Args:
        message: Msgspec's error message. An unknown one is returned with a small first letter.
        kind: The type of the parameter, for the values of a `Literal`.
    """
    if message.startswith("Invalid enum value"):
        base = _base(msgspec.inspect.type_info(kind))
        if isinstance(base, msgspec.inspect.LiteralType):
            return "it is one of " + ", ".join(str(value) for value in base.values)
    reasons = {
        "Expected `bool`, got `str`": "it is `true` or `false`",
        "Expected `int`, got `str`": "it is a whole number",
    }
    return reasons.get(message) or value_message(message)
