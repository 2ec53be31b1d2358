"""Sessions of HTTP that close the answers whose bodies a test did not read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

from aiohttp import ClientResponse, ClientSession, TraceConfig, TraceRequestEndParams


@asynccontextmanager
async def client_session(
    base_url: str | None = None, *, headers: Mapping[str, str] | None = None, auto_decompress: bool = True
) -> AsyncIterator[ClientSession]:
    """A session of aiohttp; its end closes its answers, too.

    An answer that is neither read nor closed keeps its connection until a garbage collection, which warns of it in
    whichever test runs then: and a warning is an error.
    """
    answers: list[ClientResponse] = []

    async def add(_session: ClientSession, _context: SimpleNamespace, request: TraceRequestEndParams) -> None:
        answers.append(request.response)

    trace = TraceConfig()
    trace.on_request_end.append(add)
    session = ClientSession(base_url, headers=headers, auto_decompress=auto_decompress, trace_configs=[trace])
    async with session:
        try:
            yield session
        finally:
            for answer in answers:
                answer.close()
