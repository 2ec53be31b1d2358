"""Measure the API with a cached portfolio: requests per second, and latency at 500 per second.

python -m bench.serving [--seconds 8] [--repeat 5] [--postgres URL]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from itertools import cycle
from typing import cast

import uvloop

from bench.figures import Figure, main, spread
from bench.places import ROOT, scratch
from bench.runs import environment
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.api.app import App, make_app
from chainfolio.api.serve import serve
from chainfolio.assets import Asset, account
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Price, Snapshot, Token
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots.account_cache import CachedAccount
from chainfolio.environment import SystemClock
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.valuation import valuate
from chainfolio.settings import Server, Settings, Store
from chainfolio.storage.state import State, ledger

ADDRESS = "0x" + "a1" * 20
PEPPER = bytes(32)
CLIENTS = 64
TOKENS = 48  # make 30 kB
KEYS = 8_000  # no key comes to its limit
OFFERED = 500  # requests a second
RATE_BAR, TAIL_BAR_MS = 1_500, 25.0


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure one process and two, on each store."""
    with scratch() as folder:
        urls = [f"sqlite:///{folder}/state.db", *filter(None, [options.postgres])]
        return [figure for url in urls for workers in (1, 2) for figure in _measured(url, workers, options)]


def _measured(url: str, workers: int, options: argparse.Namespace) -> list[Figure]:
    requests = [_request(key) for key in _keys(url)]
    rates, tails = [], []
    for _ in range(options.repeat):
        with _server(url, workers) as port:
            uvloop.run(_saturated(port, requests, 1))
            rates.append(uvloop.run(_saturated(port, requests, options.seconds)))
            tails.append(uvloop.run(_offered(port, requests, options.seconds)))
    _sound(url)
    store = url.partition(":")[0]
    barred = store == "sqlite" and workers == 1
    on = f"{store}, {workers} process{'es' if workers > 1 else ' on one core'}"
    rate, tail = statistics.median(rates), statistics.median(tails)
    return [
        Figure(
            "serving",
            f"requests/s on {on}, {CLIENTS} clients",
            spread(rates, 0),
            f">= {RATE_BAR:,}" if barred else "",
            rate >= RATE_BAR if barred else None,
        ),
        Figure(
            "serving",
            f"p99 in ms at {OFFERED} requests/s offered on {on}",
            spread(tails, 1),
            f"<= {TAIL_BAR_MS:.0f}" if barred else "",
            tail <= TAIL_BAR_MS if barred else None,
        ),
    ]


def _keys(url: str) -> list[str]:
    """Create accounts with plenty of credits, and return their keys."""
    state = State.open(url, PEPPER, SystemClock(), random.Random(time.time_ns()))
    tokens = []
    for number in range(8):
        account, token = state.create_account(f"bench {number}", "PRO", 10**9, ["portfolio"])
        tokens += [token, *(state.create_key(account.id, "more")[1] for _ in range(KEYS // 8 - 1))]
    state.close()
    return tokens


def _sound(url: str) -> None:
    state = State.open(url, PEPPER, SystemClock(), random.Random(1))
    wrong = state.database.read(ledger.check)
    state.close()
    assert not wrong, wrong


@contextmanager
def _server(url: str, workers: int) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.serving", "--serve", str(workers), "--port", str(port), "--url", url]
    pinned = functools.partial(os.sched_setaffinity, 0, {0}) if workers == 1 and (os.cpu_count() or 1) > 1 else None
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL, preexec_fn=pinned
    ) as process:
        try:
            _until_up(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def _until_up(port: int) -> None:
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server did not come up")


# --- the clients -----------------------------------------------------------------------------------------------------


def _request(key: str) -> bytes:
    return f"GET /v1/portfolio?addresses={ADDRESS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


class _Client(asyncio.Protocol):
    """One connection: sends a request, reads the whole answer, which is a 200."""

    def __init__(self) -> None:
        self.left, self.head = 0, b""
        self.answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.answered

    def data_received(self, data: bytes) -> None:
        if not self.left:
            self.head += data
            head, end, body = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 200 "), self.head
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.left, self.head = length - len(body), b""
        else:
            self.left -= len(data)
        if not self.left and self.answered:
            self.answered.set_result(None)


@asynccontextmanager
async def _clients(port: int) -> AsyncIterator[list[_Client]]:
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(_Client, "127.0.0.1", port))[1] for _ in range(CLIENTS)]
    yield clients
    for client in clients:
        client.transport.close()


async def _saturated(port: int, requests: Sequence[bytes], seconds: int) -> float:
    """Return responses per second while each client asks again as soon as it is answered."""
    end_s, turn, count = time.monotonic() + seconds, cycle(requests), 0

    async def busy(client: _Client) -> None:
        nonlocal count
        while time.monotonic() < end_s:
            await client.ask(next(turn))
            count += 1

    async with _clients(port) as clients:
        await asyncio.gather(*map(busy, clients))
    return count / seconds


async def _offered(port: int, requests: Sequence[bytes], seconds: int) -> float:
    """Return the 99th percentile in ms of requests at fixed times, including the wait for a free client."""
    began_s, turn = time.monotonic(), cycle(requests)
    due, late_ms = deque(began_s + number / OFFERED for number in range(OFFERED * seconds)), []

    async def steady(client: _Client) -> None:
        while due:
            moment_s = due.popleft()
            await asyncio.sleep(max(0.0, moment_s - time.monotonic()))
            await client.ask(next(turn))
            late_ms.append((time.monotonic() - moment_s) * 1000)

    async with _clients(port) as clients:
        await asyncio.gather(*map(steady, clients))
    return statistics.quantiles(late_ms, n=100)[98]


# --- the server ------------------------------------------------------------------------------------------------------


def _engine() -> Engine:
    """Return the product's engine with one account's portfolio in its cache for the whole run."""
    holdings, prices = [], []
    for number in range(TOKENS):
        asset = Asset("eip155:1", "erc20", f"0x{number:040x}")
        token = Token(asset, f"TKN{number}", f"Token Number {number}", 18)
        holdings.append(Holding(ADDRESS, token, 10**18 * (number + 1) + 7))
        prices.append(Price(asset, Decimal("1.25"), "chainlink", 1_760_000_000_000_000, Decimal(1)))
    block = Block(19_000_000, "0x" + "ab" * 32, "0x" + "cd" * 32, 1_760_000_000_000_000)
    settings = Settings(data=tempfile.mkdtemp(), chains={"ethereum": EvmSettings(rpc=["http://127.0.0.1:1"])})
    engine = Engine(System(settings))
    valuation = valuate([Snapshot("ethereum", block, (ADDRESS,), tuple(holdings), tuple(prices), ())])
    engine._accounts._entries[ADDRESS] = CachedAccount(valuation, time.time_ns() // 1000 + 3600 * 1_000_000)
    return engine


async def make(settings: Settings) -> App:
    """Return the product's own application over that engine."""
    engine = _engine()
    await engine.encoded_portfolios([account(ADDRESS)], Options(), wait=False)
    state = State.open(settings.state_url, PEPPER, SystemClock(), random.Random(time.time_ns()))
    app = make_app(engine, state, Settings(), engine.system.environment)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        await state.meter.close()
        state.close()

    app.lifespan.append(lifespan)
    return app


def _serve(options: argparse.Namespace) -> None:
    server = Server(port=options.port, workers=options.serve)
    serve(make, Settings(server=server, state=Store(options.url), log_level="warning"))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--postgres", default="", metavar="URL", help="an empty database, measured too")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        parser = argparse.ArgumentParser()
        _options(parser)
        _serve(parser.parse_args())
    else:
        main(__doc__, run, _options)
