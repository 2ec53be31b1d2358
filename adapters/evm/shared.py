"""One endpoint for many who ask at once: what they ask in one turn of the event loop goes out as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from transport.endpoint import Answer, Endpoint
from transport.http_endpoint import ErrorCounters
from transport.wire import Request


class Asked(Protocol):
    """What reads of state need of an endpoint."""

    name: str
    capabilities: dict[str, int]
    errors: ErrorCounters

    @property
    def max_body(self) -> int:
        """How many bytes it is sent in one body at most."""

    def learn(self, name: str, value: int) -> None:
        """Remember a fact about it."""

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """An answer or a typed refusal for each request."""


class Shared:
    """An endpoint, shared by tasks that were started together: they go on together, so each round is one batch."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name, self.capabilities, self.errors = endpoint.name, endpoint.capabilities, endpoint.errors
        self._endpoint = endpoint
        self._waiting: list[tuple[Sequence[Request], int, asyncio.Future[list[Answer]]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def max_body(self) -> int:
        """As the endpoint's."""
        return self._endpoint.max_body

    def learn(self, name: str, value: int) -> None:
        """Remember a fact about the endpoint."""
        self._endpoint.learn(name, value)

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """As the endpoint's, with whatever the others ask in this turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:  # the first of a turn: those that run after it have asked by then
            loop.call_soon(self._send)
        mine: asyncio.Future[list[Answer]] = loop.create_future()
        self._waiting.append((requests, height, mine))
        return await mine

    def _send(self) -> None:
        together, self._waiting = self._waiting, []
        task = asyncio.create_task(self._exchange(together))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _exchange(self, together: list[tuple[Sequence[Request], int, asyncio.Future[list[Answer]]]]) -> None:
        try:
            every = [request for requests, _, _ in together for request in requests]
            answers = iter(await self._endpoint.ask(every, height=min(height for _, height, _ in together)))
        except BaseException as error:  # whatever it is, those who wait must not wait for ever
            for _, _, mine in together:
                if not mine.done():
                    mine.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for requests, _, mine in together:
            given = [next(answers) for _ in requests]
            if not mine.done():
                mine.set_result(given)
