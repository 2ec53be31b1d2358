"""Types of the pipeline: the context of a request, its answer, and the steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from chainfolio.api.engine import Engine, LakeQueries
from chainfolio.api.event_streams import EventStream, EventStreams
from chainfolio.api.export_slots import ExportSlots
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
class WaitSlots:
    """Slots of one key for requests that wait for fresh data.

    Attributes:
        free: Given to requests in the order in which they arrived.
        requests: Number of requests that have a slot or wait for one.
    """

    free: asyncio.Semaphore
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that the requests of one process share.

    Attributes:
        secret: Signs cursors; equal in all processes of a store.
        signature: Headers that every answer of this process has.
        waiting: Slots for requests that wait for fresh data, by key id.
        running: Number of running requests by account id.
        queries: Cache of parsed queries by type and query string.
        exports: Slots of exports.
        sql: Slots of queries in SQL.
        lake: Runs queries over the lake; None if this process has none.
        streams: Open streams of events.
        stopping: Set once the process was told to stop.
        setup: A `first_run.Setup`, which adds chains; None if this process cannot. Its module needs this one.
    """

    engine: Engine
    state: Keys
    settings: Settings
    environment: Environment
    traffic: Traffic = field(default_factory=Traffic)
    secret: bytes = bytes(32)
    signature: Mapping[str, str] = field(default_factory=dict)
    waiting: dict[str, WaitSlots] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    queries: dict[tuple[type, str], msgspec.Struct] = field(default_factory=dict)
    exports: ExportSlots = field(default_factory=ExportSlots)
    sql: ExportSlots = field(default_factory=ExportSlots)
    lake: LakeQueries | None = None
    streams: EventStreams = field(default_factory=EventStreams)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    setup: object | None = None


class Answer(msgspec.Struct, frozen=True):
    """A complete answer. A `file` or the parts of a `stream` are sent instead of `body`, and it is closed.

    It costs credits once it is sent, or as soon as it begins if `is_paid_first`.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    file: BinaryIO | None = None
    stream: EventStream | None = None
    is_paid_first: bool = False


@dataclass(slots=True)
class Context:
    """One request in the pipeline; the steps fill it in.

    Attributes:
        keyed_request: Of a change with an Idempotency-Key: the key and the request's fingerprint; else None.
        cost: Credits that a change pays in its transaction.
        is_committed: True once the transaction of a change is committed.
        unanswerable: Units of the cost that this server cannot answer; they are free.
        arguments: Arguments of the route's handler by name.
    """

    http: Request
    route: Route
    parts: Parts
    keyed_request: KeyedRequest | None = None
    cost: int = 0
    is_committed: bool = False
    unanswerable: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """The caller; only available after authentication."""
        assert self.http.principal is not None, "authenticated before"
        return self.http.principal

    @property
    def headers(self) -> dict[str, str]:
        """Headers that the answer gets in addition to its own, even if it is an error."""
        return self.http.extras

    @property
    def request_id(self) -> str:
        """Id of the request in the log. The caller may have chosen it, so it must not be used as a key."""
        return self.http.id

    @property
    def units(self) -> int:
        """Factor by which the route's cost is multiplied."""
        return self.route.units(self.arguments) - self.unanswerable

    @property
    def engine(self) -> Engine:
        """The engine of the process."""
        return self.parts.engine


Proceed = Callable[[Context], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the pipeline: it raises to refuse, or awaits `proceed` for the next steps' answer.

    Attributes:
        name: For people.
        run: The step.
        refuses: Statuses that the step may add, with descriptions for OpenAPI.
        headers: Headers that the step adds to every answer, with descriptions for OpenAPI.
    """

    name: str
    run: Callable[[Context, Proceed], Awaitable[Answer]]
    refuses: Mapping[int, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(value: object, status: int = 200) -> Answer:
    """Return an answer with the value as JSON; equal values give equal bytes."""
    return Answer(ENCODER.encode(value), status)
