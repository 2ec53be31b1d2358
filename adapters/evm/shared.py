"""Share one endpoint among tasks: their requests of one turn of the event loop are one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.http_endpoint import ErrorCounters
from chainfolio.transport.wire import Request


class StateEndpoint(Protocol):
    """The methods of an endpoint that reads of state use."""

    name: str
    capabilities: dict[str, int]
    errors: ErrorCounters

    @property
    def max_body(self) -> int:
        """The largest request body in bytes."""

    def learn(self, name: str, value: int) -> None:
        """Remember the value of one of its capabilities."""

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """Return an answer or a typed refusal for each request."""


class SharedEndpoint:
    """An endpoint shared by tasks that were started together: each of their rounds is one batch."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name, self.capabilities, self.errors = endpoint.name, endpoint.capabilities, endpoint.errors
        self._endpoint = endpoint
        self._waiting: list[tuple[Sequence[Request], int, asyncio.Future[list[Answer]]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def max_body(self) -> int:
        """The largest request body in bytes."""
        return self._endpoint.max_body

    def learn(self, name: str, value: int) -> None:
        """Remember the value of a capability of the endpoint."""
        self._endpoint.learn(name, value)

    async def ask(self, requests: Sequence[Request], *, height: int = 0) -> list[Answer]:
        """Return an answer or a typed refusal for each request, in order.

        They are sent with the other requests of this turn.

        Args:
            requests: The requests of this caller.
            height: The block that they are about, for errors. The batch carries the lowest of all callers.

        Raises:
            SourceError: The batch failed. All tasks of this turn get the error.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:  # the first request of this turn: later ones join it
            loop.call_soon(self._send)
        answers: asyncio.Future[list[Answer]] = loop.create_future()
        self._waiting.append((requests, height, answers))
        return await answers

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        task = asyncio.create_task(self._exchange(batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _exchange(self, batch: list[tuple[Sequence[Request], int, asyncio.Future[list[Answer]]]]) -> None:
        """Send the requests of a batch together; give each task its answers, or all of them the error."""
        try:
            all_requests = [request for requests, _, _ in batch for request in requests]
            answer_iterator = iter(await self._endpoint.ask(all_requests, height=min(height for _, height, _ in batch)))
        except BaseException as error:  # of any kind: a waiting task must not wait for ever
            for _, _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for requests, _, future in batch:
            results = [next(answer_iterator) for _ in requests]
            if not future.done():
                future.set_result(results)
