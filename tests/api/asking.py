"""A client with every grant at an API that indexes while it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from chainfolio.api.serve import listening
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.settings import Settings
from tests.api.furnished import GRANTS
from tests.api.sessions import client_session


class Ask(Protocol):
    """Request a path below /v1 and return its JSON; fail if the status differs. A `body` is posted."""

    async def __call__(self, path: str, status: int = 200, body: Any = None) -> Any: ...


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncIterator[Ask]:
    """Serve the API of these settings on a free port, and yield a client."""
    state = open_state(settings)
    _, key = state.create_account("somebody", "PRO", 100_000, GRANTS)
    state.close()
    async with (
        listening(await indexing(settings), "127.0.0.1", 0, drain_s=1) as port,
        client_session(headers={"Authorization": f"Bearer {key}"}) as client,
    ):

        async def ask(path: str, status: int = 200, body: Any = None) -> Any:
            method = "GET" if body is None else "POST"
            async with client.request(method, f"http://127.0.0.1:{port}/v1/{path}", json=body) as answer:
                assert answer.status == status, (path, await answer.text())
                return await answer.json()

        yield ask
