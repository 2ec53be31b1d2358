"""Run servers that share a port and a state store, with an engine whose answers depend on the address.

python -m bench.fleet PORT URL [--hold 10]      one of them: it is killed from outside, and started again
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from bench.places import ROOT
from bench.runs import environment
from chainfolio.api.app import App, make_app
from chainfolio.api.engine import Engine
from chainfolio.api.serve import serve
from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from chainfolio.environment import Environment, SystemClock
from chainfolio.errors import BadRequest, Unavailable
from chainfolio.portfolio.document import Portfolio, ProtocolDocument
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Limits, Quotas, Server, Settings
from chainfolio.storage.state import State

PEPPER = bytes(32)
WORKER = "X-Worker"  # the process id; a header of the benchmark, not of the product
BIG_BYTES = 6 * 1024 * 1024  # more than a socket takes at once, so that a kill can cut it
ENDINGS = ("quick", "slow", "big", "refused", "unavailable", "broken", "hanging")


def address(ending: str, number: int = 0) -> str:
    """Return an address for which the engine behaves as `ending` says."""
    return f"0x{ENDINGS.index(ending) + 1:02x}{number:038x}"


@dataclass
class Answers:
    """An engine whose responses depend on the address. `broken` raises an untyped error, so a 500 follows."""

    chance: random.Random
    big: bytes = b'{"padding":"' + b"x" * BIG_BYTES + b'"}'

    def kinds(self) -> set[str]:
        """Return the kinds of chains with snapshots by subscription: EVM."""
        return {"evm"}

    async def watch(self, owner: str, accounts: Sequence[Account]) -> None:
        """Do nothing."""

    async def watch_subscribed(self, owner: str, subscribed: Mapping[Account, int]) -> None:
        """Do nothing."""

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        """Return portfolios as JSON; the address decides about delay, size and failure."""
        return [await self._portfolio(account.address) for account in accounts]

    async def at_block(self, accounts: Sequence[Account], chain: str, height: int, options: Options) -> list[Portfolio]:
        """Return empty portfolios."""
        return [_empty_portfolio(account.address) for account in accounts]

    async def virtual(self, users: Sequence[VirtualUser], options: Options, *, wait: bool) -> list[Portfolio]:
        """Return empty portfolios."""
        return [_empty_portfolio(user.address) for user in users]

    async def _portfolio(self, name: str) -> bytes:
        match ENDINGS[int(name[2:4], 16) - 1]:
            case "slow":
                await asyncio.sleep(self.chance.uniform(0.02, 0.3))
            case "hanging":
                await asyncio.sleep(3600)
            case "big":
                return self.big
            case "refused":
                raise BadRequest("addresses", "the engine cannot mean this one")
            case "unavailable":
                raise Unavailable("node", "no answer")
            case "broken":
                raise RuntimeError("a fault of our own, on purpose")
        return b'{"address":"' + name.encode() + b'"}'


def _empty_portfolio(name: str) -> Portfolio:
    wallet = ProtocolDocument(name="Wallet", key="wallet", value="0", chains={})
    return Portfolio(name, "0", "1700000000000", {"wallet": wallet}, {}, "complete", (), 0, (), {})


# --- one server ------------------------------------------------------------------------------------------------------


def opened(url: str, hold_s: int) -> State:
    """Open the store that the servers share."""
    return State.open(url, PEPPER, SystemClock(), random.Random(), hold_s)


def _serve(options: argparse.Namespace) -> None:
    async def make(settings: Settings) -> App:
        state = opened(options.url, options.hold)
        engine = cast(Engine, Answers(random.Random()))
        app = make_app(engine, state, settings, Environment(random=random.Random()), {WORKER: str(os.getpid())})

        @asynccontextmanager
        async def closed() -> AsyncIterator[None]:
            yield
            await state.meter.close()
            state.close()

        app.lifespan.append(closed)
        return app

    settings = Settings(
        server=Server(port=options.port),
        limits=Limits(hold_s=options.hold),
        log_level="critical",
        quotas=Quotas(addressbook=10_000, bundles=1_000),
    )
    serve(make, settings, reuse_port=True)


# --- all of them -----------------------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """Servers on one port. `killed` has the time (seconds since 1970) and process id of each kill."""

    url: str
    size: int
    hold_s: int
    port: int = 0
    killed: list[tuple[float, int]] = field(default_factory=list)
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start one more server; it does not wait for it."""
        command = [sys.executable, "-m", "bench.fleet", str(self.port), self.url, "--hold", str(self.hold_s)]
        self._running.append(subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL))

    def starting(self, answered: set[int]) -> int:
        """Return the number of running servers whose process id is not in `answered`."""
        return sum(each.pid not in answered for each in self._running)

    def kill_one(self, chance: random.Random) -> None:
        """Kill a random server and start another one in its place; the time and process id are recorded."""
        victim = self._running.pop(chance.randrange(len(self._running)))
        at = time.time()
        victim.kill()
        victim.wait()
        self.killed.append((at, victim.pid))
        self.start()

    def until_up(self, limit_s: float = 60) -> None:
        """Wait until all servers answer."""
        expected, answering, last_s = {each.pid for each in self._running}, set[int](), time.monotonic() + limit_s
        while not expected <= answering:
            assert time.monotonic() < last_s, f"{len(expected - answering)} servers did not come up"
            assert all(each.poll() is None for each in self._running), "a server ended by itself"
            with contextlib.suppress(OSError, ValueError):
                answering.add(_pid(self.port))

    def stop(self) -> None:
        """Terminate all servers; those that do not end within 30 s are killed."""
        for each in self._running:
            each.terminate()
        for each in self._running:
            try:
                each.wait(30)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()


@contextlib.contextmanager
def fleet(url: str, size: int, hold_s: int) -> Iterator[Fleet]:
    """Run `size` servers over a store within the context; all answer when it begins."""
    with socket.socket() as holder:  # reserves the port while servers restart; it never listens
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        servers = Fleet(url, size, hold_s, holder.getsockname()[1])
        try:
            for _ in range(size):
                servers.start()
            servers.until_up()
            yield servers
        finally:
            servers.stop()


def _pid(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        head = line.makefile("rb").read().partition(b"\r\n\r\n")[0]
    rows = [row for row in head.split(b"\r\n") if row.lower().startswith(WORKER.lower().encode())]
    if not rows:
        raise ValueError("no whole answer")
    time.sleep(0.01)
    return int(rows[0].partition(b":")[2])


def main(arguments: Sequence[str]) -> None:
    """Run one server."""
    parser: Any = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("url")
    parser.add_argument("--hold", type=int, default=10)
    _serve(parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
