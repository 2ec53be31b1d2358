"""Clients of several servers, with a load balancer that reads `/readyz`, and a record of their calls."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import sqlalchemy as sa

from bench.audit import reservations
from bench.wire import ConnectionLost, Line, encode_request
from chainfolio.storage.state import ledger
from chainfolio.storage.state.database import Database, Statement

CHECK_S: Final = 0.1  # between two checks of a server
CHECK_LIMIT_S: Final = 2.0
PAUSE_S: Final = 0.1  # of a client between two calls, and before it repeats a change
REPEAT_S: Final = 60.0  # for a change without an answer
LOST: Final = 0  # in place of a status: no complete response arrived
WEIGHTS: Final = {"portfolio": 4, "fresh": 4, "wallet": 1, "status": 2, "sync": 1, "name": 2}
_NAMES = Statement(sa.text("SELECT label FROM addressbook"))
_HELD = Statement(sa.text("SELECT sum(held) FROM balances"))


class Balancer:
    """The ports of some servers; `ready` are those that answered the last check with 200."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports, self.ready = tuple(ports), set[int]()
        self._turn = 0

    async def watch(self) -> None:
        """Check all servers every `CHECK_S`, until cancelled."""
        while True:
            await asyncio.gather(*map(self._check, self.ports))
            await asyncio.sleep(CHECK_S)

    async def until_ready(self, ports: Sequence[int], limit_s: float = 90) -> None:
        """Wait until servers are ready.

        Raises:
            TimeoutError: One is not within `limit_s`.
        """
        async with asyncio.timeout(limit_s):
            while not self.ready.issuperset(ports):  # noqa: ASYNC110 - the checks of `watch`
                await asyncio.sleep(CHECK_S / 2)

    async def choose(self) -> int:
        """Return the port of the next server that is ready; wait while none is."""
        while not self.ready:  # noqa: ASYNC110 - the checks of `watch`
            await asyncio.sleep(CHECK_S)
        self._turn += 1
        ready = sorted(self.ready)
        return ready[self._turn % len(ready)]

    async def _check(self, port: int) -> None:
        line = Line(port, waits=False)
        try:
            answer = await line.ask(encode_request("GET", "/readyz", {"Connection": "close"}), CHECK_LIMIT_S)
            is_ready = answer.status == 200
        except (ConnectionLost, TimeoutError):
            is_ready = False
        finally:
            line.leave()
        (self.ready.add if is_ready else self.ready.discard)(port)


@dataclass(slots=True)
class Call:
    """One request.

    Attributes:
        name: The name that a change gives; empty for reads.
        status: LOST until the complete response arrived.
    """

    kind: str
    cost: int
    name: str = ""
    status: int = LOST
    took_s: float = 0.0

    @property
    def is_answered(self) -> bool:
        """True if a complete 2xx response arrived."""
        return 200 <= self.status < 300


@dataclass(slots=True)
class Record:
    """The calls and streams of all clients; the number of a call is its index."""

    calls: list[Call] = field(default_factory=list)
    events: int = 0
    streams: int = 0  # streams that ended completely
    broken_streams: int = 0

    @property
    def failed(self) -> Counter[str]:
        """Calls without a complete 2xx response, by kind and status."""
        return Counter(f"{call.kind} {call.status or 'lost'}" for call in self.calls if not call.is_answered)


@dataclass
class Client:
    """A client that sends one request after the other, each on a connection that it has to that server."""

    balancer: Balancer
    key: str
    addresses: Sequence[str]
    record: Record
    chance: random.Random
    _lines: dict[int, Line] = field(default_factory=dict)

    async def run_until(self, over: asyncio.Event) -> None:
        """Make calls until the event is set; repeat changes without a response with their Idempotency-Key."""
        while not over.is_set():
            (kind,) = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await self._call(kind)
            await asyncio.sleep(self.chance.uniform(0, 2 * PAUSE_S))
        for line in self._lines.values():
            line.leave()

    async def _call(self, kind: str) -> None:
        if kind != "name":
            await self._attempt(kind, f"{self.chance.getrandbits(64):x}")
            return
        name, end_s = f"{self.chance.getrandbits(64):x}", time.monotonic() + REPEAT_S
        while not (await self._attempt(kind, name)).is_answered and time.monotonic() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)  # before the request is repeated

    async def _attempt(self, kind: str, name: str) -> Call:
        """Send one request to the next server and record its answer; `name` is unique to a change."""
        method, path, content = self._request(kind, name)
        call = Call(kind, 0 if kind == "status" else 1, name if kind == "name" else "")
        headers = {"Authorization": f"Bearer {self.key}", "X-Request-Id": f"call-{len(self.record.calls)}"}
        if kind == "name":
            headers["Idempotency-Key"] = name
        self.record.calls.append(call)
        body = json.dumps(content).encode() if content else b""
        port, began_s = await self.balancer.choose(), time.monotonic()
        line = self._lines.setdefault(port, Line(port, waits=False))
        if line.has_ended:  # as balancers do, it takes no connection that the server has closed
            line.leave()
        try:
            answer = await line.ask(encode_request(method, path, headers, body))
        except (ConnectionLost, TimeoutError):
            line.leave()
            return call
        finally:
            call.took_s = time.monotonic() - began_s
        call.status = answer.status
        if answer.headers.get(b"connection", b"").lower() == b"close":
            line.leave()
        return call

    def _request(self, kind: str, name: str) -> tuple[str, str, object]:
        """Return method, path and content of a request of this kind."""
        address = self.chance.choice(self.addresses)
        match kind:
            case "name":
                entry = {"address": f"0x{name:0>40}", "label": name}
                return "POST", "/v1/addressbook", {"entries": [entry]}
            case "sync":
                return "POST", "/v1/sync-transactions", {"addresses": [address]}
            case "fresh":
                return "GET", f"/v1/portfolio?addresses={address}&waitForSync=true", None
        return "GET", f"/v1/{kind}?addresses={address}", None


async def follow_events(balancer: Balancer, key: str, addresses: Sequence[str], record: Record) -> None:
    """Read `/v1/events` until cancelled. If a stream ends, resume after the last event on another server."""
    last_id = ""
    async with aiohttp.ClientSession() as session:
        while True:
            url = f"http://127.0.0.1:{await balancer.choose()}/v1/events?addresses={','.join(addresses)}"
            headers = {"Authorization": f"Bearer {key}", "Last-Event-ID": last_id}
            try:
                async with session.get(url, headers=headers) as answer:
                    answer.raise_for_status()
                    async for line in answer.content:
                        if line.startswith(b"id: "):
                            last_id = line[4:].decode().strip()
                            record.events += 1
                record.streams += 1
            except aiohttp.ClientError:
                record.broken_streams += 1
                await asyncio.sleep(PAUSE_S)


@dataclass(slots=True)
class Charges:
    """The ledger compared with the calls; each number is of calls, or of names for changes."""

    paid: int = 0
    unpaid: int = 0  # answered, and not charged
    unanswered: int = 0  # reads that were charged, and not answered
    twice: int = 0
    wrong_amounts: int = 0
    unmade: int = 0  # names that were charged and do not exist
    free: int = 0  # names that exist and were not charged
    held: int = 0  # credits that are still reserved
    unsound: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """Wrong charges of all kinds; an answer that was not charged is none."""
        counts = (self.unanswered, self.twice, self.wrong_amounts, self.unmade, self.free, self.held)
        return sum(counts) + len(self.unsound)


async def charges(database: Database, record: Record, limit_s: float = 30) -> Charges:
    """Compare the ledger with the calls, after at most `limit_s` in which running reservations end."""
    end_s, credits = time.monotonic() + limit_s, 0
    while (credits := await asyncio.to_thread(_held, database)) and time.monotonic() < end_s:  # noqa: ASYNC110 - SQL
        await asyncio.sleep(0.1)
    result = Charges(held=credits)
    posts = Counter[int]()
    for amount, memo, kind in reservations(database):
        number = int(memo.rpartition(" ")[2].removeprefix("call-"))
        if kind == "post":
            posts[number] += 1
            result.wrong_amounts += amount != record.calls[number].cost
    by_name = Counter[str]()
    for number, call in enumerate(record.calls):
        if call.name:
            by_name[call.name] += posts[number]
            continue
        result.paid += posts[number] > 0
        result.twice += posts[number] > 1
        if call.kind != "sync":  # a sync is a change, which is charged even without a response
            result.unanswered += posts[number] > 0 and not call.is_answered
        result.unpaid += call.cost > 0 and call.is_answered and not posts[number]
    names = {name for (name,) in database.read(lambda tx: tx.rows(_NAMES))}
    result.paid += sum(count > 0 for count in by_name.values())
    result.twice += sum(count > 1 for count in by_name.values())
    result.free = sum(not by_name[name] for name in names)
    result.unmade = sum(count > 0 and name not in names for name, count in by_name.items())
    result.unsound = database.read(ledger.check)
    return result


def _held(database: Database) -> int:
    ((credits,),) = database.read(lambda tx: tx.rows(_HELD))
    return int(credits or 0)
