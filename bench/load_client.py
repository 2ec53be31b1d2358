"""A client that makes all kinds of calls at random and repeats lost ones with the same key."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bench.audit import CHANGE, CLOSED, LEFT, LOST, TORN, Record, request_id
from bench.fleet import address
from bench.wire import ConnectionLost, IncompleteResponse, Line, Response, encode_request

OWN: Final = 16  # addresses in the address book of a client
KEYED: Final = 0.6  # share of changes with an Idempotency-Key
LEAVING: Final = 0.1  # share of calls whose client leaves before the response is complete
BEHIND: Final = 0.6  # the same, while an offset of a response has no cut
AGAIN_S: Final = 30  # at the end: waiting longer would hide changes that fail because of a fault of the server
YEAR: Final = 1200  # credits for a subscription
WEIGHTS: Final = {
    "quick": 380,
    "slow": 50,
    "big": 3,
    "refused": 30,
    "unavailable": 30,
    "broken": 20,
    "hanging": 8,
    "unknown": 40,
    "stranger": 10,
    "poor": 40,
    "virtual 1": 20,
    "virtual 3": 30,
    "read /v1/addressbook": 20,
    "read /v1/bundles": 20,
    "change add": 70,
    "change rename": 110,
    "change remove": 40,
    "change bundle": 50,
    "change bundle name": 20,
    "change bundle away": 29,
    "subscribe": 60,
}


@dataclass(frozen=True)
class SharedKeys:
    """Shared data of the clients: keys and a virtual user by account, and keys of a poor account."""

    owners: Sequence[tuple[Sequence[str], str]]
    poor: Sequence[str]


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        cost: Its price in credits if it succeeds.
        key: Number of its Idempotency-Key; 0 for none.
        change: Number of the subscription that it makes.
        name: The name that it gives to an entry or a bundle.
        leaves: The client does not wait for the response.
    """

    kind: str
    method: str
    path: str
    token: str
    body: bytes = b""
    cost: int = 1
    key: int = 0
    change: int = 0
    name: str = ""
    leaves: bool = False


@dataclass
class LoadClient:
    """One client: one call at a time."""

    number: int
    port: int
    shared: SharedKeys
    record: Record
    chance: random.Random
    bundles: list[str] = field(default_factory=list)
    _retries: list[tuple[float, int, Call]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._line = Line(self.port)
        tokens, self._users = self.shared.owners[self.number // 2]
        self._tokens = tokens[self.number % 2 :: 2]

    async def run_until(self, over: asyncio.Event) -> None:
        """Make calls until the event is set, then retry those without a response."""
        while not over.is_set():
            due = self._retries and self._retries[0][0] <= time.monotonic()
            await self._do(heapq.heappop(self._retries)[2] if due else self._chosen())
        last_s = time.monotonic() + AGAIN_S
        while self._retries:
            due_s, _, call = heapq.heappop(self._retries)
            assert due_s < last_s, f"{call.method} {call.path} was answered with nothing but failures for {AGAIN_S} s"
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            await self._do(call)
        self._line.leave()

    async def _do(self, call: Call) -> None:
        now_s = time.time()
        number = self.record.begin(call.cost, call.key, now_s, 0 if call.method == "GET" else CHANGE)
        if call.change:
            self.record.subscribed[number] = call.change
        if call.name:
            self.record.name_calls.setdefault(call.name, []).append(number)
        headers = {"Authorization": f"Bearer {call.token}", "X-Request-Id": request_id(number)}
        if call.key:
            headers["Idempotency-Key"] = f"key-{call.key}"
        answer = await self._answer(call, encode_request(call.method, call.path, headers, call.body))
        self.record.end(number, answer, time.time())
        self._follow_up(call, answer)
        if isinstance(answer, int):
            return
        if self._line.is_closed or self.chance.random() < (0.5 if call.kind == "big" else 0.02):
            self.record.flags[number] |= CLOSED
            self._line.leave()

    async def _answer(self, call: Call, request: bytes) -> Response | int:
        """Return the response, or LOST or LEFT; sometimes cut the connection after some bytes."""
        patience_s = self.chance.uniform(0.1, 0.3) if call.kind == "hanging" else 60
        tears = self.record.tears
        offset = tears.offset(call.kind) if call.leaves else None
        try:
            if offset is None:
                answer = await self._line.ask(request, patience_s)
            else:
                answer = await self._line.tear(request, offset, patience_s)
        except ConnectionLost:
            return LOST
        except IncompleteResponse as torn:
            if offset is not None and (not torn.status or _expected(call, torn.status)):
                tears.record(call.kind, offset)
            return TORN
        except TimeoutError:
            return LEFT
        if _expected(call, answer.status) and b"idempotency-replayed" not in answer.headers:
            tears.add_response(call.kind, answer.size)
            if offset == answer.size:
                tears.record(call.kind, offset)
        return answer

    def _follow_up(self, call: Call, answer: Response | int) -> None:
        """Schedule retries and store the ids of new bundles."""
        if isinstance(answer, int):
            if call.key:
                self._later(call, 0.1)
        elif call.key and answer.status >= 500:
            self._later(call, 0.5)
        elif answer.status == 200 and call.kind == "change bundle":
            self.bundles.append(json.loads(answer.body)["data"]["id"])
        elif call.key and answer.status < 300 and self.chance.random() < 0.1:
            self._later(call, 0.0)  # the repeated call returns the same response without a charge

    def _later(self, call: Call, wait_s: float) -> None:
        heapq.heappush(self._retries, (time.monotonic() + wait_s, len(self.record), replace(call, leaves=False)))

    # --- choice of calls ---------------------------------------------------------------------------------------------

    def _chosen(self) -> Call:
        """Return a random call; often one of a kind whose response was not yet cut at every byte."""
        if (kind_to_tear := self.record.tears.most_lacking) and self.chance.random() < BEHIND:
            return replace(self._call(kind_to_tear), leaves=True)
        (kind,) = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        return replace(self._call(kind), leaves=self.chance.random() < LEAVING)

    def _call(self, kind: str) -> Call:
        token = self.chance.choice(self._tokens)
        match kind.split(" "):
            case ["unknown"]:
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}&colour=red", token)
            case ["stranger"]:
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}", f"{token[:-1]}_")
            case ["poor"]:
                poor = self.chance.choice(self.shared.poor)
                return Call(kind, "GET", f"/v1/portfolio?addresses={address('quick')}", poor)
            case ["virtual", count]:
                users = self._users.split(",")[: int(count)]
                path = f"/v1/virtual-users/portfolio?addresses={','.join(users)}"
                return Call(kind, "GET", path, token, cost=len(users))
            case ["read", path]:
                return Call(kind, "GET", f"{path}?limit=1", token)
            case ["subscribe"]:
                return self._subscription(token)
            case ["change", *_]:
                return self._change(kind, token)
        return Call(kind, "GET", f"/v1/portfolio?addresses={address(kind, self.chance.randrange(1000))}", token)

    def _change(self, kind: str, token: str) -> Call:
        own_addresses = [address("quick", (self.number + 1) * OWN + each) for each in range(OWN)]
        account, name = self.chance.choice(own_addresses), f"name {self.number:02} {self.chance.randrange(10**9):09}"
        bundle = self.chance.choice(self.bundles) if self.bundles else "none"
        method, path, body = {
            "change add": ("POST", "/v1/addressbook", {"entries": [{"address": account, "label": name}]}),
            "change rename": ("PATCH", f"/v1/addressbook/{account}", {"label": name}),
            "change remove": ("DELETE", f"/v1/addressbook/{account}", None),
            "change bundle": ("POST", "/v1/bundles", {"name": name, "addresses": self.chance.sample(own_addresses, 2)}),
            "change bundle name": ("PATCH", f"/v1/bundles/{bundle}", {"name": name}),
            "change bundle away": ("DELETE", f"/v1/bundles/{bundle}", None),
        }[kind]
        if kind == "change bundle away" and self.bundles:
            self.bundles.remove(bundle)
        content, new_name = (json.dumps(body).encode(), name) if body else (b"", "")
        return Call(kind, method, path, token, content, 1, self._key(), name=new_name)

    def _subscription(self, token: str) -> Call:
        """Return a call that makes a unique subscription, so that the audit can attribute it."""
        self.record.changes += 1
        change = self.record.changes
        content = {"addresses": [{"address": address("quick", change), "description": f"change {change:07}"}]}
        body = json.dumps(content).encode()
        return Call("subscribe", "POST", "/v1/subscribe-snapshot", token, body, YEAR, self._key(), change)

    def _key(self) -> int:
        if self.chance.random() >= KEYED:
            return 0
        self.record.keys += 1
        return self.record.keys


def _expected(call: Call, status: int) -> bool:
    """Return True if the status is the expected one for this kind of call."""
    return status == 400 if call.kind == "refused" else 200 <= status < 300
