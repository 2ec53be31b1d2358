"""A server that answers what a test wrote down, byte by byte, and cuts connections."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

HANG = b"\0"  # no answer, and the connection stays open


@dataclass
class Scripted:
    """The address, and the requests that came, with their bodies."""

    url: str = ""
    requests: list[str] = field(default_factory=list)

    def headers(self, name: str) -> list[str]:
        """The values of a header, by request; empty where it was not sent."""
        matches = [re.search(rf"^{name}: (.*)$", request, re.M | re.I) for request in self.requests]
        return [match[1].strip() if match else "" for match in matches]


def answer(status: int, body: bytes | str = b"", *, length: int | None = None, **headers: str) -> bytes:
    """An answer. `length` above that of the body: the connection is cut before its end."""
    content = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(content) if length is None else length}",
        "Connection: close",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def scripted(answers: Sequence[bytes]) -> AsyncIterator[Scripted]:
    """Give the answers in their order, the last one again and again; an empty one closes the connection."""
    server, pending, ended = Scripted(), list(answers), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # a connection that is opened and not used
            await answered(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"^content-length: (\d+)", head, re.M | re.I)
        body = await reader.readexactly(int(length[1])) if length else b""
        server.requests.append(head + body.decode())
        content = pending.pop(0) if len(pending) > 1 else pending[0]
        writer.write(content.removesuffix(HANG))
        if content.endswith(HANG):
            await ended.wait()
        await writer.drain()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        try:
            yield server
        finally:
            ended.set()
