"""JSON-RPC 2.0 messages: encode requests, decode responses strictly. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from chainfolio.errors import BadAnswer, Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One JSON-RPC call. `named_params` replace `params` if there are any."""

    method: str
    params: tuple[Any, ...] = ()
    named_params: Mapping[str, object] | None = field(default=None, hash=False)


# A longer error message is not decoded, nor is longer error data, unless it is a string.
MAX_REFUSAL: Final = 16 * 1024
MAX_MESSAGE: Final = 400
NULL: Final = msgspec.Raw(b"null")
EMPTY_TEXT: Final = msgspec.Raw(b'""')


class RpcError(msgspec.Struct, frozen=True):
    """A decoded error object. `message` is at most MAX_MESSAGE characters long."""

    code: int = 0
    message: str = ""
    data: object = None


class _ErrorObject(msgspec.Struct):
    code: int = 0
    message: msgspec.Raw = EMPTY_TEXT
    data: msgspec.Raw = NULL


class _Reply(msgspec.Struct):
    """One response whose members are still encoded, so that its memory is limited by its size in bytes."""

    id: int | str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw = NULL


_reply_decoder = msgspec.json.Decoder(_Reply)
_encoder = msgspec.json.Encoder()


@lru_cache(maxsize=256)
def _batch_decoder(count: int) -> msgspec.json.Decoder[tuple[_Reply, ...]]:
    """Return a decoder of exactly `count` replies, which stops at the first extra one."""
    return msgspec.json.Decoder(tuple[(_Reply,) * count])  # type: ignore[misc]


# Envelopes whose large result is passed on without parsing: `result` is the first or last of three keys.
_HEAD = re.compile(rb'\s*\{(?:"jsonrpc":\s?"2\.0",\s?|"id":\s?(\d+),\s?)*"result":\s?')
_TAIL = re.compile(rb'(?:,\s?"jsonrpc":\s?"2\.0"|,\s?"id":\s?(\d+))*\}\s*\Z')


def encode(requests: Sequence[Request]) -> bytes:
    """Encode the body of a POST request: an object for one request, else a batch with ids from 1.

    `requests` must not be empty.
    """
    bodies = [
        {"jsonrpc": "2.0", "id": number, "method": request.method, "params": request.named_params or request.params}
        for number, request in enumerate(requests, 1)
    ]
    return _encoder.encode(bodies if len(bodies) > 1 else bodies[0])


def plain_result(body: bytes) -> memoryview | None:
    """Return the array `result` of a single response unparsed; None for other results or envelopes."""
    head = _HEAD.match(body, 0, 200)
    tail = _TAIL.search(body, max(0, len(body) - 60)) if head else None
    if not head or not tail or {head[1], tail[1]} != {None, b"1"}:
        return None
    content = memoryview(body)[head.end() : tail.start()]
    if bytes(content[:1]) != b"[" or bytes(content[-60:]).rstrip()[-1:] != b"]":
        return None
    return content


def decode(source: str, body: bytes, count: int) -> list[bytes | RpcError]:
    """Decode the replies to requests with the ids 1 to `count`, in this order.

    If the node refused a whole batch, each item is the same error object.

    Raises:
        Unavailable: The body is cut off.
        BadAnswer: It is malformed, or its ids are not those of the requests.
    """
    try:
        replies = _replies(body, count)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "truncated" in str(error):
            raise Unavailable(source, f"the answer breaks off after {len(body)} bytes") from None
        raise BadAnswer(source, f"not a JSON-RPC answer of {len(body)} bytes: {error}") from None
    answers: list[bytes | RpcError | None] = [None] * count
    if len(replies) == 1 and count > 1 and (refusal := _refusal(source, replies[0])) is not None:
        return [refusal] * count  # the whole batch was refused
    for reply in replies:
        if count == 1 and reply.id is None and (refusal := _refusal(source, reply)) is not None:
            return [refusal]
        if not isinstance(reply.id, int) or not 1 <= reply.id <= count:
            raise BadAnswer(source, "an answer without a request")
        if answers[reply.id - 1] is not None:
            raise BadAnswer(source, f"two answers with id {reply.id}")
        answers[reply.id - 1] = _content(source, reply)
    if None in answers:
        raise BadAnswer(source, f"{sum(a is None for a in answers)} of {count} answers are missing")
    return [answer for answer in answers if answer is not None]


def _replies(body: bytes, count: int) -> Sequence[_Reply]:
    """Decode a body into one reply, or as many as requested; a single one may refuse a whole batch."""
    if body[:64].lstrip()[:1] != b"[":
        return [_reply_decoder.decode(body)]
    try:
        return _batch_decoder(count).decode(body)
    except msgspec.ValidationError:
        if count == 1 or len(body) > count * MAX_REFUSAL:
            raise
        return msgspec.json.decode(body, type=list[_Reply])


def _refusal(source: str, reply: _Reply) -> RpcError | None:
    """Return the error object of a reply; None if it has none.

    A long message is cut or replaced, and long data are left out, except for a string.

    Raises:
        BadAnswer: The error object is malformed.
    """
    error = typed(source, memoryview(reply.error), _ErrorObject | None)  # type: ignore[arg-type]
    if error is None:
        return None
    message, payload = memoryview(error.message), memoryview(error.data)
    text = typed(source, message, str)[:MAX_MESSAGE] if len(message) <= MAX_REFUSAL else "a message without end"
    is_read = len(payload) <= MAX_REFUSAL or bytes(payload[:1]) == b'"'
    return RpcError(error.code, text, typed(source, payload, object) if is_read else None)


def _content(source: str, reply: _Reply) -> bytes | RpcError:
    """Return the result of a reply as JSON, or its error; BadAnswer for neither."""
    if (refusal := _refusal(source, reply)) is not None:
        return refusal
    if isinstance(reply.result, msgspec.UnsetType):
        raise BadAnswer(source, "an answer with neither a result nor an error")
    return bytes(reply.result)


def typed(source: str, content: bytes | memoryview, kind: type[T]) -> T:
    """Decode JSON as a type; BadAnswer if it does not fit."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
