"""A client that asks for everything there is, in any order, and once more by the same key where an answer got lost."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.audit import CHANGE, CLOSED, LEFT, LOST, TORN, Record, request_id
from bench.fleet import address
from bench.wire import Line, Lost, Received, Torn, written

OWN: Final = 16  # addresses that a client has for its address book
KEYED: Final = 0.6  # of the changes that carry an Idempotency-Key
LEAVING: Final = {"quick": 0.15, "read": 0.3, "subscribe": 0.7, "rename": 0.3}  # how many are left in their answer
YEAR: Final = 1200  # credits for a subscription
WEIGHTS: Final = {
    "quick": 380, "slow": 50, "big": 3, "refused": 30, "unavailable": 30, "broken": 20, "hanging": 8, "unknown": 40,
    "stranger": 10, "poor": 40, "virtual": 50, "read": 40, "add": 70, "rename": 110, "remove": 40, "bundle": 50,
    "rename bundle": 20, "drop bundle": 29, "subscribe": 60,
}  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """What the clients have: of each account keys and virtual users, and the keys of one that has almost nothing."""

    owners: Sequence[tuple[Sequence[str], str]]
    poor: Sequence[str]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `cost` is what it costs if it goes well; `key` is the number of its Idempotency-Key, 0 for none;
    `change` that of the subscription that it makes.
    """

    kind: str
    method: str
    path: str
    token: str
    body: bytes = b""
    cost: int = 1
    key: int = 0
    change: int = 0


@dataclass
class LoadClient:
    """One client: one call at a time."""

    number: int
    port: int
    shared: Shared
    record: Record
    chance: random.Random
    bundles: list[str] = field(default_factory=list)
    _again: list[tuple[float, int, Call]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._line = Line(self.port)
        tokens, self._users = self.shared.owners[self.number // 2]
        self._tokens = tokens[self.number % 2 :: 2]

    async def until(self, over: asyncio.Event) -> None:
        """Call and call, and at the end ask again for all that got lost."""
        while not over.is_set():
            due = self._again and self._again[0][0] <= time.monotonic()
            await self._do(heapq.heappop(self._again)[2] if due else self._chosen())
        while self._again:
            due_s, _, call = heapq.heappop(self._again)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            await self._do(call)
        self._line.leave()

    async def _do(self, call: Call) -> None:
        now_s = time.time()
        number = self.record.begin(call.cost, call.key, now_s, 0 if call.method == "GET" else CHANGE)
        if call.change:
            self.record.subscribed[number] = call.change
        headers = {"Authorization": f"Bearer {call.token}", "X-Request-Id": request_id(number)}
        if call.key:
            headers["Idempotency-Key"] = f"key-{call.key}"
        answer = await self._answer(call, written(call.method, call.path, headers, call.body))
        self.record.end(number, answer, time.time())
        self._learn(call, answer)
        if isinstance(answer, int):
            return
        if self._line.left or self.chance.random() < (0.5 if call.kind == "big" else 0.02):
            self.record.flags[number] |= CLOSED
            self._line.leave()

    async def _answer(self, call: Call, request: bytes) -> Received | int:
        """What came back; now and then we leave after some bytes of it."""
        patience_s = self.chance.uniform(0.1, 0.3) if call.kind == "hanging" else 60
        leaving = self.chance.random() < LEAVING.get(call.kind, 0.0)
        try:
            if leaving:
                return await self._line.tear(request, self.record.offset(call.kind), patience_s)
            answer = await self._line.ask(request, patience_s)
        except Lost:
            return LOST
        except Torn:
            return TORN
        except TimeoutError:
            return LEFT
        if call.kind in LEAVING:
            self.record.longest[call.kind] = max(self.record.longest.get(call.kind, 0), answer.size)
        return answer

    def _learn(self, call: Call, answer: Received | int) -> None:
        """What to ask again, and which bundles there are."""
        if isinstance(answer, int):
            if call.key:
                self._later(call, 0.1)
        elif call.key and answer.status >= 500:
            self._later(call, 0.5)
        elif answer.status == 200 and call.kind == "bundle":
            self.bundles.append(json.loads(answer.body)["data"]["id"])
        elif call.key and answer.status < 300 and self.chance.random() < 0.1:
            self._later(call, 0.0)  # to be told the same once more, for nothing

    def _later(self, call: Call, wait_s: float) -> None:
        heapq.heappush(self._again, (time.monotonic() + wait_s, len(self.record), call))

    # --- what there is to ask ----------------------------------------------------------------------------------------

    def _chosen(self) -> Call:
        (kind,) = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        token = self.chance.choice(self._tokens)
        match kind:
            case "unknown":
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}&colour=red", token)
            case "stranger":
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}", f"{token[:-1]}_")
            case "poor":
                poor = self.chance.choice(self.shared.poor)
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}", poor)
            case "virtual":
                users = self._users.split(",")[: self.chance.randint(1, 4)]
                path = f"/v1/virtual-users/portfolio?addresses={','.join(users)}"
                return Call(kind, "GET", path, token, cost=len(users))
            case "read":
                return Call(kind, "GET", self.chance.choice(("/v1/addressbook", "/v1/bundles")), token)
            case "subscribe":
                return self._subscription(token)
            case "add" | "rename" | "remove" | "bundle" | "rename bundle" | "drop bundle":
                return self._change(kind, token)
        return Call(kind, "GET", f"/v1/portfolio?addresses={address(kind, self.chance.randrange(1000))}", token)

    def _change(self, kind: str, token: str) -> Call:
        own = [address("quick", (self.number + 1) * OWN + each) for each in range(OWN)]
        one, word = self.chance.choice(own), f"name {self.number} {self.chance.randrange(10**9)}"
        bundle = self.chance.choice(self.bundles) if self.bundles else "none"
        method, path, body = {
            "add": ("POST", "/v1/addressbook", {"entries": [{"address": one, "label": word}]}),
            "rename": ("PATCH", f"/v1/addressbook/{one}", {"label": word}),
            "remove": ("DELETE", f"/v1/addressbook/{one}", None),
            "bundle": ("POST", "/v1/bundles", {"name": word, "addresses": self.chance.sample(own, 2)}),
            "rename bundle": ("PATCH", f"/v1/bundles/{bundle}", {"name": word}),
            "drop bundle": ("DELETE", f"/v1/bundles/{bundle}", None),
        }[kind]
        if kind == "drop bundle" and self.bundles:
            self.bundles.remove(bundle)
        return Call(kind, method, path, token, json.dumps(body).encode() if body else b"", 1, self._key())

    def _subscription(self, token: str) -> Call:
        """To what nobody else subscribes to, so that it can be told afterwards whether this call has made it."""
        self.record.changes += 1
        change = self.record.changes
        wanted = {"addresses": [{"address": address("quick", change), "description": f"change {change}"}]}
        body = json.dumps(wanted).encode()
        return Call("subscribe", "POST", "/v1/subscribe-snapshot", token, body, YEAR, self._key(), change)

    def _key(self) -> int:
        if self.chance.random() >= KEYED:
            return 0
        self.record.keys += 1
        return self.record.keys
