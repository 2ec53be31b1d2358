"""What calls with and without an event loop share: parameters, pages and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from chainfolio_client.decimals import read_number
from chainfolio_client.errors import InvalidAnswer

P = TypeVar("P")
T = TypeVar("T")
I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741


@dataclass(frozen=True)
class Event(Generic[T]):
    """An event of a stream."""

    id: str
    event: str
    data: T


@dataclass(frozen=True)
class Page(Generic[P, I]):
    """A page, its items, and the position of the next page; None after the last one."""

    document: P
    items: Sequence[I]
    next: Any


@dataclass(frozen=True)
class PageLayout:
    """Where a list has its position and its items.

    Attributes:
        parameter: The parameter of the position: `offset`, `page` or `cursor`.
        items: The field of the items in a page.
    """

    parameter: str
    items: str

    def page(self, document: Any, query: Mapping[str, Any]) -> Page[Any, Any]:
        """Return a page by its document and the query that it answers."""
        items, position = getattr(document, self.items), query[self.parameter]
        if self.parameter == "cursor":
            return Page(document, items, document.cursor)
        if self.parameter == "page":
            return Page(document, items, position + 1 if document.pagination.has_more else None)
        end = position + len(items)
        total = getattr(document, "total_rows", None)
        is_last = len(items) < query["limit"] if total is None else end >= total
        return Page(document, items, None if is_last or not items else end)


def decode(call: str, content: bytes, kind: type[T]) -> T:
    """Return the document of an answer. InvalidAnswer if it is none of that kind."""
    try:
        return msgspec.json.decode(content, type=kind, dec_hook=read_number)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidAnswer(f"{call}: {error}") from None


def text(value: Any) -> str:
    """Return a parameter as the API writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return ",".join(map(text, value)) if isinstance(value, Sequence) else str(value)


def segment(value: object) -> str:
    """Return a value as one segment of a path. ValueError for one that would make it the path of another call."""
    written = text(value)
    if written in ("", ".", ".."):
        raise ValueError(f"no part of a path can be {written!r}")
    return quote(written, safe="")


def as_list(values: Sequence[Any]) -> list[Any]:
    """Return the values of a body; a text counts as one value."""
    return [values] if isinstance(values, str) else [msgspec.to_builtins(value) for value in values]


def reason(fault: httpx2.RequestError) -> str:
    """Return what went wrong on a connection."""
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
