"""HTTP without TLS, as nodes near by speak it: by the standard library, in threads.

Loading a client that can do everything takes a tenth of a second, and it copies an answer of megabytes several times on
the one thread that all others wait for. Here a body is read where it lies, in a thread that holds up nobody.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import chain
from urllib.parse import SplitResult, quote, unquote, urlsplit

from chainfolio.errors import Unavailable
from chainfolio.memory import ByteBudget, Lease
from transport.exchange import CONNECT_S, PIECE, Body, Posted, retry_after, room_for, unreachable

_AS_IT_IS = "/%:@!$&'()*+,;=~?"


class PlainTransport:
    """At most so many exchanges at once, each on a connection that is kept for the next one."""

    def __init__(
        self, budget: ByteBudget, *, connections: int, max_body: int, headers: Mapping[str, str] | None = None
    ) -> None:
        self.budget, self.headers = budget, headers or {}
        self._max_body = max_body
        self._threads = ThreadPoolExecutor(connections, "http")
        self._idle: dict[str, list[HTTPConnection]] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    async def exchange(self, source: str, url: str, body: bytes | None, timeout_s: float) -> Posted:
        """Post a body, or get what is asked by the address alone; no retry, no redirect."""
        try:
            exchange = _Exchange(self, source, urlsplit(url), timeout_s)
        except ValueError as error:  # a port that is none
            raise unreachable(source, error) from None
        try:
            async with asyncio.timeout(timeout_s):
                posted = await asyncio.get_running_loop().run_in_executor(self._threads, exchange.run, body)
                exchange.is_answered = True
                return posted
        except TimeoutError:
            raise Unavailable(source, f"no answer within {timeout_s:g} s") from None
        except (HTTPException, OSError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None
        finally:
            exchange.end()

    async def close(self) -> None:
        """Let go of all connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            kept, self._idle = self._idle, {}
        for connection in chain.from_iterable(kept.values()):
            connection.close()

    def take(self, host: str) -> HTTPConnection | None:
        """A connection that is still open, if there is one."""
        while True:
            with self._lock:
                kept = self._idle.get(host)
                connection = kept.pop() if kept else None
            if connection is None or _is_open(connection):
                return connection
            connection.close()

    def keep(self, host: str, connection: HTTPConnection) -> None:
        """Keep a connection for the next exchange, unless there is none: an exchange may outlive its transport."""
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(host, []).append(connection)
                return
        connection.close()

    def body(self, source: str, answer: HTTPResponse, question: bytes | None, lease: Lease) -> bytes:
        """The whole body, unpacked; TooMuch as soon as it is known to outgrow its bound."""
        body = Body(source, room_for(question, self._max_body), lease, answer.getheader("content-encoding"))
        body.announced(answer.length)
        while piece := answer.read(PIECE):
            for wait in body.take(piece):
                wait.result()
        if answer.length:
            raise ValueError("the body is shorter than announced")
        return body.whole()


class _Exchange:
    """One question and its answer, in a thread. `end` may come from another: what is not over by then is broken off."""

    def __init__(self, owner: PlainTransport, source: str, url: SplitResult, timeout_s: float) -> None:
        self._owner, self._source, self._url, self._timeout_s = owner, source, url, timeout_s
        self._host = f"{url.hostname}:{url.port or 80}"
        self._connection: HTTPConnection | None = None
        self._lease = owner.budget.lease()
        self._is_over = False
        self.is_answered = False

    def run(self, body: bytes | None) -> Posted:
        """Ask and read."""
        connection = self._connection = self._owner.take(self._host) or self._connected()
        is_kept = False
        try:
            if self._is_over:
                raise ConnectionAbortedError
            connection.sock.settimeout(self._timeout_s)
            headers = {**_headers(self._url), **self._owner.headers}
            connection.request("GET" if body is None else "POST", _target(self._url), body, headers)
            answer = connection.getresponse()
            content = self._owner.body(self._source, answer, body, self._lease)
            is_kept = not answer.will_close and answer.isclosed()
            return Posted(answer.status, retry_after(answer.getheader("retry-after")), content, self._lease)
        finally:
            self._connection = None
            if is_kept and not self._is_over:
                self._owner.keep(self._host, connection)
            else:
                connection.close()

    def _connected(self) -> HTTPConnection:
        made = HTTPConnection(self._url.hostname or "", self._url.port or 80, timeout=min(CONNECT_S, self._timeout_s))
        try:
            made.connect()
        except TimeoutError:
            raise
        except OSError as error:
            raise unreachable(self._source, error) from None
        return made

    def end(self) -> None:
        """Break off what is still going on, and hold nothing of what nobody has got."""
        self._is_over = True
        if not self.is_answered:
            self._lease.give_back()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def _is_open(connection: HTTPConnection) -> bool:
    """Whether the other side has neither closed a connection nor sent what nobody asked for."""
    with suppress(OSError):
        connection.sock.setblocking(False)
        try:
            connection.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
    return False


def _target(url: SplitResult) -> str:
    return quote(url.path or "/", _AS_IT_IS) + (f"?{quote(url.query, _AS_IT_IS)}" if url.query else "")


def _headers(url: SplitResult) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "gzip",
        "user-agent": "chainfolio",
    }
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return headers
