"""A transport that replays a node's replies from memory, and damages some according to a plan."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw

from bench.damage import BATCHES, BYTES, KINDS, SAME, STATUSES, Reply, damaged, paths_of, pattern
from chainfolio.errors import ResponseTooLarge, Unavailable
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport

EXCHANGES = ("status", "broken line", "too much", "of another question", "of an earlier question", "late refusal")
TRIES = 20  # of kinds of damage, until one applies

Where = tuple[int, tuple[Any, ...]]  # the number of a reply in its batch, and a path in its result


class Exchange:
    """The methods of one request, and the replies of the node."""

    def __init__(self, methods: list[str], replies: list[Reply], is_batch: bool) -> None:
        self.methods, self.replies, self.is_batch = methods, replies, is_batch
        self.body = msgspec.json.encode(replies if is_batch else replies[0])

    @cached_property
    def values(self) -> list[Any]:
        """The decoded results; SAME for errors."""
        return [msgspec.json.decode(reply["result"]) if "result" in reply else SAME for reply in self.replies]

    @cached_property
    def fields(self) -> dict[str, list[Where]]:
        """Positions by field name, and empty entries for damage to batches, bytes and the exchange."""
        positions: dict[str, list[Where]] = {
            f"{prefix} {self.methods[0]}": [] for prefix in ("batch:", "bytes:", "exchange:")
        }
        for number, (method, value) in enumerate(zip(self.methods, self.values, strict=True)):
            for at in paths_of(value) if value is not SAME else ():
                positions.setdefault(pattern(method, at), []).append((number, at))
        return positions


@dataclass(slots=True)
class Plan:
    """Fields to damage, in one exchange (`is_single`) or in all; then equal requests get equal replies.

    `damages` lists the kinds of damage and their fields.
    """

    targets: frozenset[str]
    is_single: bool
    damages: list[tuple[str, str]] = field(default_factory=list)
    responses: dict[bytes, HttpResponse | Exception] = field(default_factory=dict)


@dataclass(slots=True)
class Replay:
    """A node whose replies are cached, and damaged by `plan`; None leaves them undamaged."""

    url: str
    chance: random.Random = field(default_factory=random.Random)
    plan: Plan | None = None
    fields: set[str] = field(default_factory=set)  # all fields of replies since it was last cleared
    exchanges: dict[bytes, Exchange] = field(default_factory=dict)  # all exchanges since it was last cleared
    _real: HttpTransport = field(default_factory=HttpTransport)
    _exchange_cache: dict[bytes, Exchange] = field(default_factory=dict)
    _decoded: dict[bytes, Reply] = field(default_factory=dict)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Return the response to a request, damaged by the plan; equal requests are sent to the node once."""
        exchange = self._exchange_cache.get(body)
        if exchange is None:
            exchange = self._exchange_cache[body] = await self._exchange_for(body)
        self.exchanges[body] = exchange
        if self.plan is None:
            self.fields.update(exchange.fields)
            return HttpResponse(200, None, exchange.body)
        response = self._response(self.plan, body, exchange)
        if isinstance(response, Exception):
            raise response
        return response

    async def close(self) -> None:
        """Close the connections to the node."""
        await self._real.close()

    async def _exchange_for(self, body: bytes) -> Exchange:
        asks = msgspec.json.decode(body)
        batch = asks if isinstance(asks, list) else [asks]
        replies = [{"jsonrpc": "2.0", "id": ask["id"], **(await self._reply(ask))} for ask in batch]
        return Exchange([ask["method"] for ask in batch], replies, isinstance(asks, list))

    async def _reply(self, ask: dict[str, Any]) -> Reply:
        key = msgspec.json.encode([ask["method"], ask["params"]])
        if key not in self._decoded:
            posted = await self._real.post("node", self.url, msgspec.json.encode({**ask, "id": 1}), 30)
            reply = msgspec.json.decode(posted.body, type=dict[str, Raw])
            self._decoded[key] = {name: reply[name] for name in ("result", "error") if name in reply}
        return self._decoded[key]

    # --- damage ------------------------------------------------------------------------------------------------------

    def _response(self, plan: Plan, body: bytes, exchange: Exchange) -> HttpResponse | Exception:
        honest = HttpResponse(200, None, exchange.body)
        if plan.is_single and plan.damages:
            return honest
        if body not in plan.responses:
            plan.responses[body] = honest
            for target in sorted(plan.targets & exchange.fields.keys()):
                kind, response = self._damaged(target, exchange)
                if response is not None:
                    plan.responses[body] = response
                    plan.damages.append((target, kind))
                    break
        return plan.responses[body]

    def _damaged(self, target: str, exchange: Exchange) -> tuple[str, HttpResponse | Exception | None]:
        """Return the kind of the damage and the damaged response; None if no damage was possible."""
        group, _, method = target.partition(": ")
        for _ in range(TRIES):
            if group == "exchange":
                kind = self.chance.choice(EXCHANGES)
                return kind, self._exchanged(kind, method, exchange)
            if group == "bytes":
                kind = self.chance.choice(list(BYTES))
                return kind, HttpResponse(200, None, BYTES[kind](self.chance, exchange.body))
            if group == "batch":
                kind = self.chance.choice(list(BATCHES))
                changed = BATCHES[kind](self.chance, exchange.replies)
                if changed is not SAME and not exchange.is_batch and isinstance(changed, list) and len(changed) == 1:
                    changed = changed[0]
            else:
                kind, changed = self._field(target, exchange)
            if changed is not SAME:
                return kind, HttpResponse(200, None, msgspec.json.encode(changed))
        return "", None

    def _field(self, target: str, exchange: Exchange) -> tuple[str, Any]:
        number, at = self.chance.choice(exchange.fields[target])
        kind = self.chance.choice(KINDS)
        exchange_number, position = self.chance.choice(exchange.fields[target])
        elsewhere = exchange.values[exchange_number]
        for step in position:
            elsewhere = elsewhere[step]
        value = damaged(self.chance, kind, exchange.values[number], at, elsewhere)
        if value is SAME:
            return kind, SAME
        replies = list(exchange.replies)
        replies[number] = {**replies[number], "result": value}
        return kind, replies if exchange.is_batch else replies[0]

    def _exchanged(self, kind: str, method: str, exchange: Exchange) -> HttpResponse | Exception:
        if kind == "broken line":
            return Unavailable("node", "the connection broke (on purpose)")
        if kind == "too much":
            return ResponseTooLarge("node", "an answer of more than 96 MiB (on purpose)", dense=True)
        if kind == "status":
            return HttpResponse(self.chance.choice(STATUSES), self.chance.choice((None, 0.0, 3.0)), exchange.body)
        if kind == "late refusal":
            return HttpResponse(429, self.chance.choice((None, 300.0)), b"")
        if kind == "of an earlier question":
            candidates = [each for each in self.exchanges.values() if each.methods == exchange.methods]
        else:
            candidates = list(self.exchanges.values())
        return HttpResponse(200, None, self.chance.choice(candidates).body)
