"""One beacon node: asked politely (a bound of requests at once, retries), understood strictly."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from adapters.beacon.answers import Told, decoded
from adapters.beacon.http import Reply, Transport
from chainfolio.errors import BadAnswer, SourceError, TooMuch, Unavailable, Unsupported
from chainfolio.seams import Seams

T = TypeVar("T")
RETRIES: Final = 4
FIRST_WAIT_S: Final = 0.2
MAX_WAIT_S: Final = 20.0
LARGE: Final = 256 * 1024  # an answer of more bytes is decoded beside the event loop

log = logging.getLogger("chainfolio.node")


def name_of(url: str) -> str:
    """A node's name for people and logs: host and port alone, for a path or query may be a key."""
    parts = urlsplit(url)
    return f"{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"


def identity(url: str) -> str:
    """What learnt facts are stored under: a hash, so that no secret reaches a store."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


class Absent(SourceError):
    """404: the node has nothing of that name. Whoever asked knows whether that is an answer."""


class BeaconNode:
    """The Beacon API at one address."""

    def __init__(self, url: str, transport: Transport, seams: Seams, *, timeout_s: float, at_once: int) -> None:
        self.name = name_of(url)
        self.requests = self.received_bytes = 0
        self.errors: Counter[str] = Counter()
        self.head: int | None = None
        self._url, self._transport, self._seams, self._timeout_s = url.rstrip("/"), transport, seams, timeout_s
        self._room = asyncio.Semaphore(at_once)

    async def get(self, path: str, kind: type[T]) -> T:
        """What a path says. Absent for 404; errors of the node as everywhere."""
        return await self._asked("GET", path, None, kind)

    async def post(self, path: str, body: Any, kind: type[T]) -> T:
        """As `get`, of what is asked with a body."""
        return await self._asked("POST", path, msgspec.json.encode(body), kind)

    async def told(self, path: str, kind: type[T], body: Any = None) -> Told[T]:
        """What a path says about some state. Unavailable where the node itself does not believe it yet."""
        wanted: type[Told[T]] = Told[kind]  # type: ignore[valid-type]
        found = await (self.get(path, wanted) if body is None else self.post(path, body, wanted))
        if found.execution_optimistic:
            raise Unavailable(self.name, "it has not checked that block's payload yet (optimistic)")
        return found

    async def data(self, path: str, kind: type[T], body: Any = None) -> T:
        """The same without how sure the node is."""
        return (await self.told(path, kind, body)).data

    async def _asked(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T:
        wait_s = FIRST_WAIT_S
        for attempt in range(RETRIES + 1):
            try:
                return await self._once(method, path, body, kind)
            except Unavailable as error:
                self._note(error)
                if attempt == RETRIES:
                    raise
                pause_s = max(wait_s * (1 + self._seams.random.random()), error.retry_after_s or 0.0)
                await self._seams.clock.sleep(min(pause_s, MAX_WAIT_S))
                wait_s *= 2
            except Absent:
                raise
            except SourceError as error:
                self._note(error)
                raise
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T:
        async with self._room:
            self.requests += 1
            reply = await self._transport.send(self.name, method, self._url + path, body, self._timeout_s)
            try:
                self.received_bytes += len(reply.body)
                self._check(reply)
                if len(reply.body) > LARGE:
                    return await asyncio.to_thread(decoded, self.name, reply.body, kind)
                return decoded(self.name, reply.body, kind)
            finally:
                reply.give_back()

    def _check(self, reply: Reply) -> None:
        """Raise what a status means."""
        status = reply.status
        if status == 200:
            return
        if status == 404:
            raise Absent(self.name, "it has nothing of that name")
        if status == 429 or (status >= 500 and status != 501):
            is_given = reply.retry_after.isdecimal() and len(reply.retry_after) < 4
            later = float(reply.retry_after) if is_given else None  # float: seconds
            raise Unavailable(self.name, f"HTTP status {status}", retry_after_s=later)
        if status in (405, 501):
            raise Unsupported(self.name, f"HTTP status {status}: it does not serve that part of the Beacon API")
        if status in (413, 414):
            raise TooMuch(self.name, f"HTTP status {status}")
        raise BadAnswer(self.name, f"HTTP status {status}")

    def _note(self, error: SourceError) -> None:
        kind = type(error).__name__
        self.errors[kind] += 1
        if (count := self.errors[kind]) & (count - 1) == 0:
            log.warning("%s (%s, %d so far)", error.message, kind, count)


class Nodes:
    """Several nodes of one chain: the first one that answers is believed, in the order of the settings."""

    def __init__(self, key: str, nodes: Sequence[BeaconNode], transport: Transport) -> None:
        self.key, self.nodes, self._transport = key, tuple(nodes), transport

    @property
    def requests(self) -> int:
        """Requests to all of them so far."""
        return sum(node.requests for node in self.nodes)

    async def data(self, path: str, kind: type[T], body: Any = None) -> T:
        """What a path says, of the first node that says something."""
        return (await self.told(path, kind, body)).data

    async def told(self, path: str, kind: type[T], body: Any = None) -> Told[T]:
        """The same with how sure it is. Absent only where no node that answers has it."""
        failed: SourceError = Unavailable(self.key, "no node is configured", remedy=f"add nodes to [chains.{self.key}]")
        for node in self.nodes:
            try:
                return await node.told(path, kind, body)
            except (Unavailable, Unsupported, Absent) as error:
                failed = failed if isinstance(failed, Absent) else error
        raise failed

    async def close(self) -> None:
        """Let go of all connections."""
        await self._transport.close()
