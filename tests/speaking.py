"""Servers that speak byte for byte as a test likes. When one ends, no client is left on its connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What a server says on one connection; it hangs up afterwards."""
TURNS = 10
"""Turns of the loop after which a connection that was taken is spoken on, and one that was broken off is closed."""


@asynccontextmanager
async def speaking(speak: Speak, ends_s: float = 0) -> AsyncIterator[str]:
    """Serve these bytes to every client, and yield the address, without a slash at its end.

    At its end each connection has `ends_s` seconds to end by itself, and is broken off then; with none, at once.
    Raises what `speak` raised, other than that somebody hung up, and TimeoutError for who is on a line after `ends_s`.
    """
    lines, writers = set[asyncio.Task[None]](), set[asyncio.StreamWriter]()

    async def speak_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await speak(reader, writer)
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(asyncio.ensure_future(speak_once(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for each in server.sockets:  # a server that closes while a connection is being taken would lose that one
            asyncio.get_running_loop().remove_reader(each.fileno())
        await _turns()
        server.close()
        await _ended(lines, ends_s)
        for writer in writers:
            writer.transport.abort()
        await _turns()


async def _ended(lines: set[asyncio.Task[None]], ends_s: float) -> None:
    late = (await asyncio.wait(lines, timeout=ends_s))[1] if lines else lines
    for line in late:
        line.cancel()
    for error in await asyncio.gather(*lines, return_exceptions=True):
        if isinstance(error, Exception):
            raise error
    if late and ends_s:
        raise TimeoutError(f"{len(late)} connections are still open")


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
