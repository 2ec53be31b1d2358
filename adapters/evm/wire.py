"""JSON-RPC on the wire: requests out, answers in, both typed and strict. No I/O here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from chainfolio.errors import BadAnswer, Unavailable

T = TypeVar("T")
_QUANTITY = re.compile(r"0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})\Z")
_DATA = re.compile(r"0x(?:[0-9a-fA-F]{2})*\Z")


@dataclass(frozen=True, slots=True)
class Request:
    """One JSON-RPC call."""

    method: str
    params: tuple[Any, ...] = ()


class RpcError(msgspec.Struct, frozen=True):
    """What a node says when it refuses."""

    code: int = 0
    message: str = ""
    data: Any = None


class _Reply(msgspec.Struct):
    id: int | str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: RpcError | None = None


_one = msgspec.json.Decoder(_Reply)
_many = msgspec.json.Decoder(list[_Reply])
_encoder = msgspec.json.Encoder()

# The shapes in which one big answer is handed over without being looked through: `result` first or last of three keys.
_HEAD = re.compile(rb'\s*\{(?:"jsonrpc":\s?"2\.0",\s?|"id":\s?(\d+),\s?)*"result":\s?')
_TAIL = re.compile(rb'(?:,\s?"jsonrpc":\s?"2\.0"|,\s?"id":\s?(\d+))*\}\s*\Z')


def encode(requests: Sequence[Request]) -> bytes:
    """The body of a POST: a single object for one request, else a batch; ids are 1, 2, 3…"""
    bodies = [
        {"jsonrpc": "2.0", "id": number, "method": request.method, "params": request.params}
        for number, request in enumerate(requests, 1)
    ]
    return _encoder.encode(bodies if len(bodies) > 1 else bodies[0])


def whole(body: bytes) -> memoryview | None:
    """The `result` of a single answer without parsing it, where the envelope is a plain one; else None."""
    head = _HEAD.match(body, 0, 200)
    tail = _TAIL.search(body, max(0, len(body) - 60)) if head else None
    if not head or not tail or {head[1], tail[1]} != {None, b"1"}:
        return None
    content = memoryview(body)[head.end() : tail.start()]
    if bytes(content[:1]) != b"[" or bytes(content[-60:]).rstrip()[-1:] != b"]":
        return None
    return content


def decode(source: str, body: bytes, count: int) -> list[bytes | RpcError]:
    """One answer per request, in their order. Where a batch was refused as a whole, all get that one refusal."""
    try:
        replies = _many.decode(body) if body.lstrip()[:1] == b"[" else [_one.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "truncated" in str(error):
            raise Unavailable(source, f"the answer breaks off after {len(body)} bytes") from None
        raise BadAnswer(source, f"not a JSON-RPC answer: {_glimpse(body)} ({error})") from None
    answers: list[bytes | RpcError | None] = [None] * count
    if len(replies) == 1 and count > 1 and replies[0].error is not None:
        return [replies[0].error] * count  # the whole batch was refused
    for reply in replies:
        if count == 1 and len(replies) == 1 and reply.id is None and reply.error is not None:
            return [reply.error]
        if not isinstance(reply.id, int) or not 1 <= reply.id <= count:
            raise BadAnswer(source, f"an answer to a question nobody asked (id {reply.id!r})")
        if answers[reply.id - 1] is not None:
            raise BadAnswer(source, f"two answers with id {reply.id}")
        answers[reply.id - 1] = _content(source, reply)
    if None in answers:
        raise BadAnswer(source, f"{sum(a is None for a in answers)} of {count} answers are missing")
    return [answer for answer in answers if answer is not None]


def _content(source: str, reply: _Reply) -> bytes | RpcError:
    if reply.error is not None:
        return reply.error
    if isinstance(reply.result, msgspec.UnsetType):
        raise BadAnswer(source, "an answer with neither a result nor an error")
    return bytes(reply.result)


def _glimpse(body: bytes) -> str:
    return repr(body[:60].decode("utf-8", "replace"))


def typed(source: str, content: bytes, kind: type[T]) -> T:
    """A result as a typed value; BadAnswer where it does not fit."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None


def quantity(source: str, text: str, *, bits: int = 256) -> int:
    """A hex quantity, strictly: no sign, no blanks, no leading zeros, at most `bits` wide."""
    if not _QUANTITY.match(text):
        raise BadAnswer(source, f"not a quantity: {text[:70]!r}")
    value = int(text, 16)
    if value.bit_length() > bits:
        raise BadAnswer(source, f"a quantity wider than {bits} bits: {text}")
    return value


def data(source: str, text: str) -> bytes:
    """Hex data, strictly."""
    if not _DATA.match(text):
        raise BadAnswer(source, f"not hex data: {text[:70]!r}")
    return bytes.fromhex(text[2:])
