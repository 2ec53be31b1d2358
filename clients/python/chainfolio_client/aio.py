"""How calls are sent, made again and read. `make clients` makes the module `sync` of this one."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Self

import httpx2

from chainfolio_client.calls import Event, I, P, Page, PageLayout, T, decode, reason, text
from chainfolio_client.errors import ChainfolioError, ConnectionFailed, InvalidAnswer, api_error
from chainfolio_client.frames import to_polars
from chainfolio_client.models import IssueDocument
from chainfolio_client.retries import Retry
from chainfolio_client.version import __version__

if TYPE_CHECKING:
    import polars as pl

SILENCE_S = 45.0  # after which a stream of events is cut; a server sends something every 15 seconds
MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0  # between two connections of one stream of events


class AsyncPages(Generic[P, I]):
    """The items of a list over all its pages, which are read as they are needed; `pages()` has whole pages.

    Attributes:
        issues: What the server could not read, as the pages say that the last iteration has read so far.
    """

    def __init__(self, read: Callable[[Any], Awaitable[Page[P, I]]], start: Any, kind: type[I]) -> None:
        self._read, self._start, self._kind = read, start, kind
        self.issues: list[IssueDocument] = []

    async def pages(self) -> AsyncIterator[P]:
        """Yield the pages as they were answered."""
        async for page in self._pages():
            yield page.document

    async def __aiter__(self) -> AsyncIterator[I]:
        """Yield the items."""
        async for page in self._pages():
            for item in page.items:
                yield item

    async def to_polars(self) -> pl.DataFrame:
        """Return all items as a frame; `frames.to_polars` says which columns it has.

        Raises:
            ImportError: Polars is not installed: `pip install 'chainfolio-client[polars]'`.
        """
        return to_polars([item async for item in self], self._kind)

    async def _pages(self) -> AsyncIterator[Page[P, I]]:
        """Yield the pages. InvalidAnswer if the server leads back to the same page."""
        position, self.issues = self._start, []
        while True:
            page = await self._read(position)
            self.issues += getattr(page.document, "issues", None) or []
            yield page
            if page.next is None:
                return
            if page.next == position:
                raise InvalidAnswer(f"the page after {position} is the same page")
            position = page.next


class AsyncDownload:
    """The body of an answer, read in pieces, and its headers: `Content-Type`, `Chainfolio-Completeness` and others."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. ConnectionFailed if it is cut before its end."""
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx2.RequestError as fault:
            raise ConnectionFailed(f"the answer was cut: {reason(fault)}") from None

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write the body into a file, which appears once it is whole. ConnectionFailed if it is cut."""
        whole = Path(path)
        part = whole.with_name(f".{uuid.uuid4().hex}.part")
        try:
            with part.open("xb") as file:
                async for chunk in self.chunks():
                    file.write(chunk)
            part.replace(whole)
        finally:
            part.unlink(missing_ok=True)


class AsyncConnection:
    """A connection to a server with a key.

    Args:
        base_url: The address of the server, without `/v1`.
        key: The API key; None for calls that need none.
        timeout_s: How long the server may be silent. A server answers 503 itself after 60 seconds.
        retry: Limits of retries.
        transport: Sends requests; by default over the network.
        sleep: Waits for some seconds.
        random: Chooses idempotency keys and the jitter of waits.

    Raises:
        ValueError: The key cannot be one, or the address has a user or a password.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout_s: float = 90.0,
        retry: Retry = Retry(),  # noqa: B008
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        if key is not None and not re.fullmatch("[!-~]+", key):  # else the error of the transport would show it
            raise ValueError("an API key has printable characters only, and no spaces")
        if httpx2.URL(base_url).userinfo:  # else errors and `repr` would show it
            raise ValueError("the address of the server has no user and no password; the API key is enough")
        headers = {"User-Agent": f"chainfolio-client/{__version__}"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx2.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_s, transport=transport)
        self._retry, self._sleep, self._random = retry, sleep, random or Random(os.urandom(16))

    def __repr__(self) -> str:
        """Return the class and the server, without the key."""
        return f"{type(self).__name__}({str(self._http.base_url)!r})"

    async def __aenter__(self) -> Self:
        """Return the connection."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; later calls fail."""
        await self._http.aclose()

    async def _call(
        self,
        kind: type[T],
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> T:
        """Return the answer of a call, read as `kind`; `type(None)` for an empty one.

        Raises:
            ApiError: The server refused the call, also after retries.
            ConnectionFailed: There was no answer, also after retries.
            InvalidAnswer: The answer is no document of that kind.
        """
        response = await self._send(method, path, query, headers, body)
        if kind is type(None):
            return kind()
        return decode(f"{method} {path}", response.content, kind)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: Mapping[str, Any] | None = None,
        silence_s: float | None = None,
    ) -> httpx2.Response:
        """Return the answer of a call with its body; with an open body if `silence_s` bounds the waits for its parts.

        A change gets an idempotency key, so that it is made once although it may be sent several times.
        ValueError if a header cannot be sent.
        """
        sent = {name: value for name, value in (headers or {}).items() if value is not None}
        for name, value in sent.items():
            if not re.fullmatch("[ -~]*", value):
                raise ValueError(f"{name} has printable ASCII characters only")
        if method != "GET":
            sent.setdefault("Idempotency-Key", str(uuid.UUID(int=self._random.getrandbits(128), version=4)))
        parameters = {name: text(value) for name, value in (query or {}).items() if value is not None}
        attempt = 0
        while True:
            attempt += 1
            more: dict[str, Any] = {} if body is None else {"json": {n: v for n, v in body.items() if v is not None}}
            if silence_s is not None:
                more["timeout"] = silence_s
            request = self._http.build_request(method, path, params=parameters, headers=sent, **more)
            error = await self._try(request, is_open=silence_s is not None)
            if isinstance(error, httpx2.Response):
                return error
            wait_s = self._retry.wait_s(attempt, error, self._random)
            if wait_s is None:
                raise error
            await self._sleep(wait_s)

    async def _try(self, request: httpx2.Request, *, is_open: bool) -> httpx2.Response | ChainfolioError:
        """Return the answer of one attempt, or the error. ConnectionFailed if the request cannot be sent at all."""
        try:
            response = await self._http.send(request, stream=True)
            if response.is_success and is_open:
                return response
            try:
                content = await response.aread()
            finally:
                await response.aclose()
        except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as fault:
            raise ConnectionFailed(f"{request.method} {request.url.path}: {reason(fault)}") from None
        except httpx2.RequestError as fault:
            return ConnectionFailed(f"{request.method} {request.url.path}: {reason(fault)}")
        return response if response.is_success else api_error(response.status_code, response.headers, content)

    def _paged(
        self,
        kinds: tuple[type[P], type[I]],
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str | None],
        layout: PageLayout,
    ) -> AsyncPages[P, I]:
        """Return the items of a list; `kinds` are those of a page and of an item."""

        async def read(position: Any) -> Page[P, I]:
            here = {**query, layout.parameter: position}
            return layout.page(await self._call(kinds[0], "GET", path, here, headers), here)

        return AsyncPages(read, query[layout.parameter], kinds[1])

    async def _events(
        self, kind: type[T], path: str, query: Mapping[str, Any], last_event_id: str | None
    ) -> AsyncIterator[Event[T]]:
        """Yield the events of a stream; connect again after its last event whenever it ends or is cut."""
        pause_s = MIN_PAUSE_S
        while True:
            headers = {"Last-Event-ID": last_event_id, "Accept": "text/event-stream"}
            response = await self._send("GET", path, query, headers, silence_s=SILENCE_S)
            try:
                async for event in httpx2.EventSource(response):
                    if event.retry is not None:
                        pause_s = min(max(event.retry / 1000, MIN_PAUSE_S), MAX_PAUSE_S)
                    last_event_id = event.id or last_event_id
                    if event.data:
                        yield Event(event.id, event.event, decode(path, event.data.encode(), kind))
            except httpx2.SSEError as fault:
                raise InvalidAnswer(f"{path}: {reason(fault)}") from None
            except httpx2.RequestError:
                pass  # the next connection begins after the last event
            finally:
                await response.aclose()
            await self._sleep(pause_s)

    @asynccontextmanager
    async def _download(
        self,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str | None],
        body: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[AsyncDownload]:
        """Open the body of an answer for the context. A request with a body is a POST."""
        method = "GET" if body is None else "POST"
        response = await self._send(method, path, query, headers, body, silence_s=self._http.timeout.read)
        try:
            yield AsyncDownload(response)
        finally:
            await response.aclose()
