"""HTTP/1.1 text: write heads of requests, parse heads of responses. No I/O.

A response whose length is ambiguous is refused: its rest could be read as the response to another request.
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
_UNQUOTED: Final = "/%:@!$&'()*+,;=~?"
_PLAIN_TARGET: Final = re.compile(r"/[\w\-./%:@!$&'()*+,;=~?]*\Z", re.ASCII)
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\x00\r\n]*)?")
_FIELD: Final = re.compile(rb"([\w!#$%&'*+\-.^`|~]+):[ \t]*([^\x00\r\n]*)", re.ASCII)
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\x00\r\n]*)?")
_PARSED: Final = frozenset(
    (b"connection", b"content-encoding", b"content-length", b"retry-after", b"transfer-encoding")
)
_DEFAULT_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip",
    "user-agent": "chainfolio",
}


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response.

    Attributes:
        length: Bytes of the body as sent; None if it ends with a chunk or with the connection.
        is_kept: The connection can be used for another request.
        extra: The additional headers that `parse_head` was told to read, by lower-case name.
    """

    status: int
    length: int | None
    is_chunked: bool
    is_kept: bool
    encoding: str | None
    retry_after: str | None
    extra: Mapping[bytes, str] = field(default_factory=dict)


def parse_head(content: bytes, extra: frozenset[bytes] = frozenset()) -> Head:
    """Parse the head of a response, without its final blank line; responses 204 and 304 have length 0.

    Args:
        content: The status line and the headers.
        extra: Lower-case names of additional headers to read if present.

    Raises:
        ValueError: It is malformed, or ambiguous about the length of the body.
    """
    first, *lines = content.split(b"\r\n")
    if (status_line := _STATUS.fullmatch(first)) is None:
        raise ValueError("an answer that is no HTTP")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        if (parts := _FIELD.fullmatch(line)) is None:
            raise ValueError("a header that is none")
        if (name := parts[1].lower()) in _PARSED or name in extra:
            value = parts[2].rstrip(b" \t")
            fields[name] = fields[name] + b"," + value if name in fields else value
    status, is_new = int(status_line[2]), status_line[1] == b"1"
    length, is_chunked = _length(fields), _is_chunked(fields)
    if status in (204, 304):
        length, is_chunked = 0, False
    options = {each.strip() for each in fields.get(b"connection", b"").lower().split(b",")}
    is_kept = b"close" not in options and (is_new or b"keep-alive" in options)
    is_kept = is_kept and (is_new if is_chunked else length is not None)  # HTTP/1.0 has no chunks: proxies may differ
    encoding, retry_after = _text(fields, b"content-encoding"), _text(fields, b"retry-after")
    if length == 0:
        encoding = None
    extra_fields = {name: fields[name].decode("latin-1") for name in extra if name in fields}
    return Head(status, length, is_chunked, is_kept, encoding, retry_after, extra_fields)


def _text(fields: Mapping[bytes, bytes], name: bytes) -> str | None:
    return fields[name].decode("latin-1") if name in fields else None


def _length(fields: Mapping[bytes, bytes]) -> int | None:
    """Return the length of a body, None if the head has none; ValueError if it is ambiguous."""
    digits = fields.get(b"content-length")
    if digits is None:
        return None
    if not digits.isdigit() or len(digits) > 15 or b"transfer-encoding" in fields:
        raise ValueError("a length that is none, or one beside chunks")
    return int(digits)


def _is_chunked(fields: Mapping[bytes, bytes]) -> bool:
    """Return True for a chunked body; ValueError for another coding."""
    coding = fields.get(b"transfer-encoding")
    if coding is not None and coding.lower() != b"chunked":
        raise ValueError("a coding that was not asked for")
    return coding is not None


def chunk_size(line: bytes) -> int:
    """Return the size of the chunk that a line announces, 0 for the end; ValueError if malformed."""
    if (match := _CHUNK.fullmatch(line)) is None:
        raise ValueError("a chunk without a size")
    return int(match[1], 16)


def check_trailer(line: bytes) -> None:
    """Raise ValueError unless the line, which follows the last chunk, is a header."""
    if not _FIELD.fullmatch(line):
        raise ValueError("a header that is none")


@dataclass(frozen=True, slots=True)
class Address:
    """A server, and the part after the target that all requests to it share."""

    host: str
    port: int
    headers: bytes


def parse_address(base: str, headers: Mapping[str, str]) -> Address:
    """Return the address of a URL without its path; ValueError for an invalid URL or header.

    `headers` are sent with every request, in addition to the default ones.
    """
    parts = urlsplit(base)
    host, port = parts.hostname or "", parts.port or 80
    name = f"[{host}]" if ":" in host else host.encode("idna").decode() if not host.isascii() else host
    fields = {"host": name if port == 80 else f"{name}:{port}", **_DEFAULT_HEADERS, **headers}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        fields["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    lines = [f"{key}: {value}".encode("latin-1") for key, value in fields.items()]
    if not all(map(_FIELD.fullmatch, lines)):
        raise ValueError("a header that is none")
    return Address(host, port, b" HTTP/1.1\r\n" + b"\r\n".join(lines))


def encode_request(address: Address, target: str, body: bytes | None) -> bytes:
    """Encode a POST request, or GET if the body is None.

    Unsafe characters of the target are quoted, and its fragment is dropped.
    """
    if not _PLAIN_TARGET.match(target):
        path, mark, query = target.partition("#")[0].partition("?")
        target = quote(path or "/", _UNQUOTED) + mark + quote(query, _UNQUOTED)
    if body is None:
        return b"GET " + target.encode() + address.headers + END
    return b"POST %b%b\r\ncontent-length: %d\r\n\r\n%b" % (target.encode(), address.headers, len(body), body)
