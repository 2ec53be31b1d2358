"""HTTP/1.1 as it is written: the head of a request, the head of an answer. No I/O.

An answer that could end in two places is refused: its rest would pass for the answer to another question.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

MAX_HEAD: Final = 1 << 16
END: Final = b"\r\n\r\n"
_AS_IT_IS: Final = "/%:@!$&'()*+,;=~?"
_PLAIN_TARGET: Final = re.compile(r"/[\w\-./%:@!$&'()*+,;=~?]*\Z", re.ASCII)
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\x00\r\n]*)?")
_FIELD: Final = re.compile(rb"([\w!#$%&'*+\-.^`|~]+):[ \t]*([^\x00\r\n]*)", re.ASCII)
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\x00\r\n]*)?")
_READ: Final = frozenset((b"connection", b"content-encoding", b"content-length", b"retry-after", b"transfer-encoding"))
_SENT: Final = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip",
    "user-agent": "chainfolio",
}


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer. `length` are the bytes of its body as they are sent: None where it ends with a chunk or
    with the connection, which `is_kept` for another question."""

    status: int
    length: int | None
    is_chunked: bool
    is_kept: bool
    encoding: str | None
    retry_after: str | None
    more: Mapping[bytes, str] = field(default_factory=dict)


def head_of(written: bytes, more: frozenset[bytes] = frozenset()) -> Head:
    """A head without the blank line behind it, with some `more` headers, where they are there; ValueError where it is
    none, or says two things of its body."""
    first, *lines = written.split(b"\r\n")
    if (found := _STATUS.fullmatch(first)) is None:
        raise ValueError("an answer that is no HTTP")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        if (parts := _FIELD.fullmatch(line)) is None:
            raise ValueError("a header that is none")
        if (name := parts[1].lower()) in _READ or name in more:
            value = parts[2].rstrip(b" \t")
            fields[name] = fields[name] + b"," + value if name in fields else value
    status, length, is_chunked, is_new = int(found[2]), _length(fields), _is_chunked(fields), found[1] == b"1"
    if status in (204, 304):
        length, is_chunked = 0, False
    words = {each.strip() for each in fields.get(b"connection", b"").lower().split(b",")}
    is_kept = b"close" not in words and (is_new or b"keep-alive" in words)
    is_kept = is_kept and (is_new if is_chunked else length is not None)  # HTTP/1.0 has no chunks: who read it so?
    encoding, retry_after = _text(fields, b"content-encoding"), _text(fields, b"retry-after")
    if length == 0:
        encoding = None
    told = {name: fields[name].decode("latin-1") for name in more if name in fields}
    return Head(status, length, is_chunked, is_kept, encoding, retry_after, told)


def _text(fields: Mapping[bytes, bytes], name: bytes) -> str | None:
    return fields[name].decode("latin-1") if name in fields else None


def _length(fields: Mapping[bytes, bytes]) -> int | None:
    written = fields.get(b"content-length")
    if written is None:
        return None
    if not written.isdigit() or len(written) > 15 or b"transfer-encoding" in fields:
        raise ValueError("a length that is none, or one beside chunks")
    return int(written)


def _is_chunked(fields: Mapping[bytes, bytes]) -> bool:
    coding = fields.get(b"transfer-encoding")
    if coding is not None and coding.lower() != b"chunked":
        raise ValueError("a coding that was not asked for")
    return coding is not None


def chunk_size(line: bytes) -> int:
    """The bytes of the chunk that a line announces, 0 of the end; ValueError where it announces none."""
    if (found := _CHUNK.fullmatch(line)) is None:
        raise ValueError("a chunk without a size")
    return int(found[1], 16)


def trailer(line: bytes) -> None:
    """Pass over a header behind the last chunk; ValueError where it is none."""
    if not _FIELD.fullmatch(line):
        raise ValueError("a header that is none")


@dataclass(frozen=True, slots=True)
class Address:
    """Where some URLs are, and what of a request is the same for all of them: what follows its target."""

    host: str
    port: int
    headers: bytes


def address_of(base: str, more: Mapping[str, str]) -> Address:
    """The address of a URL without its path, and the headers of requests there with some `more`; ValueError where it
    is none, or where a header would not stay one."""
    parts = urlsplit(base)
    host, port = parts.hostname or "", parts.port or 80
    name = f"[{host}]" if ":" in host else host.encode("idna").decode() if not host.isascii() else host
    fields = {"host": name if port == 80 else f"{name}:{port}", **_SENT, **more}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        fields["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    lines = [f"{key}: {value}".encode("latin-1") for key, value in fields.items()]
    if not all(map(_FIELD.fullmatch, lines)):
        raise ValueError("a header that is none")
    return Address(host, port, b" HTTP/1.1\r\n" + b"\r\n".join(lines))


def request(address: Address, target: str, body: bytes | None) -> bytes:
    """A request of what a target names, with a body that is posted."""
    if not _PLAIN_TARGET.match(target):
        path, mark, query = target.partition("#")[0].partition("?")
        target = quote(path or "/", _AS_IT_IS) + mark + quote(query, _AS_IT_IS)
    if body is None:
        return b"GET " + target.encode() + address.headers + END
    return b"POST %b%b\r\ncontent-length: %d\r\n\r\n%b" % (target.encode(), address.headers, len(body), body)
