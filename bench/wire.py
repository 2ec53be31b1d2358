"""An HTTP client that distinguishes complete from incomplete responses."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response of `size` bytes; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    size: int


class ConnectionLost(Exception):
    """The connection broke before the response was complete."""


class IncompleteResponse(Exception):
    """The client left in the middle of a response of this status; 0 if the status did not arrive."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Line:
    """A connection that reconnects after it broke. With `waits` it retries until a server listens."""

    def __init__(self, port: int, *, waits: bool = True) -> None:
        self.port, self.waits = port, waits
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes, patience_s: float = 60) -> Response:
        """Return the complete response.

        Raises:
            ConnectionLost: There is no connection.
            TimeoutError: The response takes longer than `patience_s`.
        """
        reader, writer = await self._connected()
        try:
            async with asyncio.timeout(patience_s):
                writer.write(request)
                return await _answer(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.leave()
            if isinstance(error, TimeoutError):
                raise
            raise ConnectionLost from error

    async def tear(self, request: bytes, max_bytes: int, patience_s: float = 60) -> Response:
        """Read at most `max_bytes` of the response, then close the connection; return a complete response.

        Raises:
            IncompleteResponse: These bytes are not the complete response.
            ConnectionLost: The connection broke before.
        """
        reader, writer = await self._connected()
        content, complete = b"", None
        try:
            async with asyncio.timeout(patience_s):
                writer.write(request)
                while len(content) < max_bytes and complete is None:
                    piece = await reader.read(max_bytes - len(content))
                    if not piece:
                        raise ConnectionLost
                    content += piece
                    complete = _parse(content)
        except OSError as error:
            raise ConnectionLost from error
        finally:
            if (line := writer.get_extra_info("socket")) is not None:  # else the server has closed it
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            self.leave()
        if complete is None:
            raise IncompleteResponse(int(content[9:12]) if len(content) > 11 else 0)
        return complete

    @property
    def is_closed(self) -> bool:
        """True if no connection is open."""
        return self._writer is None

    @property
    def has_ended(self) -> bool:
        """True if the server has closed the connection."""
        return self._reader is not None and self._reader.at_eof()

    def leave(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._reader is None or self._writer is None:
            try:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError as error:  # no request was sent yet: the server is not listening
                if not self.waits:
                    raise ConnectionLost from error
                await asyncio.sleep(0.02)
        return self._reader, self._writer


def encode_request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """Return a request as bytes of HTTP/1.1; with a JSON body for POST and PATCH."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    if method in ("POST", "PATCH"):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> Response:
    head = await reader.readuntil(b"\r\n\r\n")
    status, headers, length = _read(head)
    body = await reader.readexactly(length)
    return Response(status, headers, body, len(head) + length)


def _parse(content: bytes) -> Response | None:
    """Return the response in the bytes; None if it is not complete."""
    head, end, body = content.partition(b"\r\n\r\n")
    if not end:
        return None
    status, headers, length = _read(head)
    return Response(status, headers, body, len(content)) if len(body) >= length else None


def _read(head: bytes) -> tuple[int, dict[bytes, bytes], int]:
    """Return status, headers (names in lower case) and the length of the body."""
    first, *rows = head.rstrip().split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(b":") for row in rows)}
    return int(first.split(b" ")[1]), headers, int(headers.get(b"content-length", 0))
