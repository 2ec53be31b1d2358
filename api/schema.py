"""The schema step: reads path, query and body into the handler's Structs, or answers 400."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from chainfolio.api.complaints import body_message
from chainfolio.api.context import Answer, Context, Proceed, Step
from chainfolio.api.errors import FieldError, Problem, invalid
from chainfolio.api.fields import fields_of, read
from chainfolio.documents import ValidationError, strict

MAX_QUERIES: Final = 4096
_JSON_TYPE = re.compile(r'application/json(?:\s*;\s*charset="?utf-8"?)?\s*\Z', re.IGNORECASE)


class _Path:
    """Parameters of the path as a multi-value mapping."""

    def __init__(self, match: Mapping[str, str]) -> None:
        self.match = match

    def getall(self, key: str, default: list[str]) -> list[str]:
        return [self.match[key]] if key in self.match else default


async def check(context: Context, proceed: Proceed) -> Answer:
    """Fill in the handler's arguments and return the answer of the next steps."""
    await fill(context)
    return await proceed(context)


async def fill(context: Context) -> None:
    """Fill in the handler's arguments; raise a 400 Problem if they are invalid.

    A route without a query argument accepts no query parameters. Errors of the body are 400, 408, 413 or 415.
    """
    kinds = context.route.arguments
    settings = context.parts.settings
    request = context.http
    if "path" in kinds:
        context.arguments["path"] = _sound("path", read(kinds["path"], _Path(request.match), (), settings))
    query = _query(context, kinds.get("query", NoParameters))
    if "query" in kinds:
        context.arguments["query"] = query
    if "body" in kinds:
        context.arguments["body"] = await _body(context, kinds["body"])


def _query(context: Context, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the query's Struct, from a cache by query string, because clients repeat queries.

    Raises a 400 Problem with all errors; they are not cached.
    """
    parsed_queries, text = context.parts.queries, (kind, context.http.rel_url.raw_query_string)
    query = parsed_queries.get(text)
    if query is None:
        values = context.http.query
        query = _sound("query", read(kind, values, values.keys(), context.parts.settings))
        if len(parsed_queries) >= MAX_QUERIES:
            parsed_queries.clear()
        parsed_queries[text] = query
    return query


def has_unknown(context: Context) -> bool:
    """Return True if the query has an unknown parameter; finding a similar name for it is costly."""
    kind = context.route.arguments.get("query", NoParameters)
    return not fields_of(kind).keys() >= context.http.query.keys()


class NoParameters(msgspec.Struct, frozen=True):
    """No parameters."""


def _sound(segment: str, result: msgspec.Struct | list[FieldError]) -> msgspec.Struct:
    if isinstance(result, list):
        raise invalid(segment, result)
    return result


async def _body(context: Context, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the Struct of the JSON body; a 415 Problem for another type, 400 if it is invalid."""
    if not _JSON_TYPE.match(context.http.headers.get("Content-Type", "")):
        raise Problem(415, "the body is JSON: send Content-Type: application/json")
    try:
        return strict(await content(context), kind)
    except ValidationError as error:
        raise invalid("body", [FieldError(*body_message(str(error), error.path, kind))]) from None


async def content(context: Context) -> bytes:
    """Return the bytes of the body.

    Raises:
        Problem: 400 if the body is not encoded as its headers say, 408 if it takes too long to arrive.
    """
    limit_s = context.parts.settings.limits.body_s
    try:
        async with asyncio.timeout(limit_s):
            return await context.http.read()
    except TimeoutError:
        raise Problem(408, f"the body took longer than {limit_s} s to arrive") from None
    except web.RequestPayloadError:
        raise invalid("body", [FieldError("the body cannot be read: it is not encoded as its head says", [])]) from None


SCHEMA = Step("schema", check, refuses={400: "A parameter is unknown, missing, repeated or malformed."})
