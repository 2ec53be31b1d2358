"""Calls of the Python client in the same words with an event loop and without one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import parse_qsl

import httpx2
import msgspec
import pytest

from chainfolio.api.router import Route
from clients.python_source import snake

CERTIFICATES = httpx2.create_ssl_context()  # once: reading those of the machine takes a tenth of a second
KINDS = ("Client", "AsyncClient")


class Recorder(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport over the network that remembers what was sent."""

    def __init__(self) -> None:
        self.sync, self.aio = httpx2.HTTPTransport(verify=CERTIFICATES), httpx2.AsyncHTTPTransport(verify=CERTIFICATES)
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self.sync.handle_request(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return await self.aio.handle_async_request(request)

    def close(self) -> None:
        self.sync.close()

    async def aclose(self) -> None:
        await self.aio.aclose()


class Caller:
    """A client of one kind. Waits are remembered and not waited for."""

    def __init__(self, package: Any, kind: str, url: str, key: str | None, **options: Any) -> None:
        self.recorder, self.waits, self.is_async = Recorder(), list[float](), kind == "AsyncClient"
        options.setdefault("transport", self.recorder)
        self.client = getattr(package, kind)(url, key, sleep=self._asleep if self.is_async else self._sleep, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await (self.client.aclose() if self.is_async else self.run(self.client.close))

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def _asleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """The result of a method; of a list all its items, of a stream its first event, of a file its bytes."""
        method = getattr(self.client, name)
        return await (
            _read_async(method(**arguments)) if self.is_async else self.run(lambda: _read(method(**arguments)))
        )

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return the result of a client's call that may block."""
        return await asyncio.to_thread(work)


def _read(result: Any) -> Any:
    if isinstance(result, Iterator):
        event = next(result)
        result.close()  # type: ignore[attr-defined]
        return event
    if hasattr(result, "pages"):
        return list(result)
    if hasattr(result, "__exit__"):
        with result as download:
            return b"".join(download.chunks())
    return result


async def _read_async(result: Any) -> Any:
    if inspect.isasyncgen(result):
        event = await anext(result)
        await result.aclose()
        return event
    if hasattr(result, "pages"):
        return [item async for item in result]
    if hasattr(result, "__aexit__"):
        async with result as download:
            return b"".join([chunk async for chunk in download.chunks()])
    return await result


@contextmanager
def raises(kind: type[Exception]) -> Iterator[list[Any]]:
    """Expects an error of exactly that kind, and puts it into the list."""
    errors: list[Any] = []
    with pytest.raises(kind) as caught:
        yield errors
    assert caught.type is kind
    errors.append(caught.value)


def arguments_of(route: Route, path: str, query: str, body: bytes | None) -> dict[str, Any]:
    """The arguments of the method of a route for a request that a test over all routes sends."""
    parts = zip(route.path.split("/"), path.split("/"), strict=True)
    arguments: dict[str, Any] = {name[1:-1]: value for name, value in parts if name.startswith("{")}
    arguments |= dict(parse_qsl(query)) | (msgspec.json.decode(body) if body else {})
    return {snake(name): int(each) if str(each).isdecimal() else each for name, each in arguments.items()}
