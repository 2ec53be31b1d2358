"""Requests byte for byte, as no client library would send them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True)
class WireResponse:
    """One answer, as it came; the names of its headers are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def exchange(port: int, data_sent: bytes, wait_s: float = 5) -> bytes:
    """Send bytes on a new connection and return all bytes until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data_sent)
        return await asyncio.wait_for(reader.read(), wait_s)
    except ConnectionResetError:  # it was refused before all of it was read
        return b""
    finally:
        writer.close()


def parse_responses(data: bytes) -> list[WireResponse]:
    """Parse the answers in the bytes of a connection; each has a length, or chunks."""
    responses = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
        if headers.get("transfer-encoding") == "chunked":
            body, data = unchunked(data)
        else:
            length = int(headers.get("content-length", 0))
            body, data = data[:length], data[length:]
        responses.append(WireResponse(int(status.split()[1]), headers, body))
    return responses


def unchunked(data: bytes) -> tuple[bytes, bytes]:
    """A body that came in chunks, and what follows it."""
    body = b""
    while True:
        length, _, data = data.partition(b"\r\n")
        size = int(length, 16)
        body, data = body + data[:size], data[size + 2 :]
        if not size:
            return body, data


async def raw(port: int, path: str, lines: list[str], method: str = "GET", body: bytes | None = None) -> WireResponse:
    """One request with these lines in its head, and its answer."""
    content = body or b""
    kind = ["Content-Type: application/json", f"Content-Length: {len(content)}"] if body else []
    head = [f"{method} {path} HTTP/1.1", "Host: here", "Connection: close", *kind, *lines, "", ""]
    (answer,) = parse_responses(await exchange(port, "\r\n".join(head).encode() + content))
    return answer
