"""What passes along the pipeline: the context of one request, the answer to it, and the steps between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chainfolio.api.engine import Engine
from chainfolio.api.keys import Keys, Principal
from chainfolio.api.metrics import Traffic
from chainfolio.api.request import Request
from chainfolio.api.router import Route
from chainfolio.environment import Environment
from chainfolio.settings import Settings
from chainfolio.storage.state.idempotency import KeyedRequest

JSON = "application/json"
ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(slots=True)
class Places:
    """The places of one key for requests that wait for fresh data. `requests` counts those that have one and those that
    stand in line for one, who get it in the order in which they came."""

    free: asyncio.Semaphore
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What every request works with. `secret` signs what clients carry back; all processes of a store have the same.

    `signature` are headers that every answer of this process has.
    """

    engine: Engine
    state: Keys
    settings: Settings
    environment: Environment
    traffic: Traffic = field(default_factory=Traffic)
    secret: bytes = bytes(32)
    signature: Mapping[str, str] = field(default_factory=dict)
    waiting: dict[str, Places] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    queries: dict[tuple[type, str], msgspec.Struct] = field(default_factory=dict)


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, ready to be sent."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = {}


@dataclass(slots=True)
class Context:
    """One request on its way, which the steps fill in.

    `unanswerable` counts the units of its cost that this server cannot answer: they cost nothing.
    Of a change: `asked` is there where it carries an Idempotency-Key, `cost` is due in the transaction that makes it,
    and `made` says that this transaction is done.
    """

    http: Request
    route: Route
    parts: Parts
    asked: KeyedRequest | None = None
    cost: int = 0
    made: bool = False
    unanswerable: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """Who asks; known after authentication."""
        assert self.http.principal is not None, "authenticated before"
        return self.http.principal

    @property
    def headers(self) -> dict[str, str]:
        """What is on the answer whatever it becomes."""
        return self.http.extras

    @property
    def request_id(self) -> str:
        """May be the caller's own word for the request: good for finding it in the log, never a key of anything."""
        return self.http.id

    @property
    def units(self) -> int:
        """How many times the route's cost this request costs."""
        return self.route.units(self.arguments) - self.unanswerable

    @property
    def engine(self) -> Engine:
        """The engine that answers."""
        return self.parts.engine


Proceed = Callable[[Context], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the pipeline: it refuses by raising, or awaits `proceed` for what the steps after it answer.

    `refuses` tells the interface description which statuses it may add, `headers` which headers every answer has.
    """

    name: str
    run: Callable[[Context, Proceed], Awaitable[Answer]]
    refuses: Mapping[int, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(value: object, status: int = 200) -> Answer:
    """A value as JSON: equal values are equal bytes."""
    return Answer(ENCODER.encode(value), status)
