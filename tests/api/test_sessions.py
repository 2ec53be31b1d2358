"""Answers that a test leaves unread: the end of their session closes them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from aiohttp import ClientConnectionError

from tests.api.sessions import client_session


async def test_an_answer_that_nobody_reads_is_closed_with_its_session() -> None:
    ends = asyncio.Event()

    async def send_half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await ends.wait()
        writer.close()

    async with await asyncio.start_server(send_half, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with client_session(f"http://127.0.0.1:{port}") as session:
            answer = await session.get("/")
            connection = answer.connection
            assert connection is not None
            assert not answer.closed
        assert answer.closed
        assert answer.connection is None
        with pytest.raises(ClientConnectionError):
            await answer.read()
        connection_ref = weakref.ref(connection)
        del answer, connection
        gc.collect()  # a warning of an unclosed connection is an error
        assert connection_ref() is None
        ends.set()
