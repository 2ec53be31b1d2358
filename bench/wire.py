"""An HTTP client that knows exactly what it received: a whole answer, or not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Received:
    """One whole answer; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Lost(Exception):
    """The connection broke before all of the answer was there."""


class Line:
    """One connection, which is made anew where it broke or was left."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes, patience_s: float = 60) -> Received:
        """The whole answer; Lost where it broke off, TimeoutError where we left before it came."""
        reader, writer = await self._connected()
        try:
            async with asyncio.timeout(patience_s):
                writer.write(request)
                return await _answer(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.leave()
            if isinstance(error, TimeoutError):
                raise
            raise Lost from error

    def leave(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._reader is None or self._writer is None:
            try:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:  # nothing was asked yet: nobody listens at the moment
                await asyncio.sleep(0.02)
        return self._reader, self._writer


def written(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    if method in ("POST", "PATCH"):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> Received:
    first, *rows = (await reader.readuntil(b"\r\n\r\n")).rstrip().split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(b":") for row in rows)}
    status = int(first.split(b" ")[1])
    if status == 204:
        return Received(status, headers, b"")
    return Received(status, headers, await reader.readexactly(int(headers[b"content-length"])))
