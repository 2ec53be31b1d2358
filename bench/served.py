"""Serve generated blocks of a chain: rate of indexing, and requests of a wallet with many tokens.

Used by `bench.starknet` and `bench.tron`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import multiprocessing
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import uvloop

from bench.figures import Figure, spread
from chainfolio.blocks import Span
from chainfolio.cli.main import main as chainfolio

MAX_REQUESTS: Final = 6
SPAN: Final = 50


class Node(Protocol):
    """A node in memory."""

    def answer(self, path: str, body: object) -> Any:
        """Return the response to a request."""


class Variant(NamedTuple):
    """Settings of a chain under test.

    Attributes:
        name: Shown behind the figure; empty if there is one variant.
        build: Makes the chain from a URL and a folder with `facts.toml`.
        min_rate: Rows against fetching and parsing; None if there is no bar.
    """

    name: str
    build: Callable[[str, Path], Any]
    min_rate: float | None = 0.6


@dataclass(frozen=True, slots=True)
class ServedChain:
    """A chain under test.

    Attributes:
        node: Makes a node from the numbers of blocks, of transactions in each, and of tokens.
        fetched: Requests and parses the responses of a span.
        first: The first block.
        wallet: Holds every token.
    """

    key: str
    node: Callable[[int, int, int], Node]
    variants: Sequence[Variant]
    fetched: Callable[[Any, Span], Awaitable[None]]
    datasets: Sequence[str]
    wallet: str
    facts: str = ""
    first: int = 0


class Handler(http.server.BaseHTTPRequestHandler):
    """The node over HTTP; `GET` returns the number of requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    node: Node
    requests = 0

    def do_GET(self) -> None:
        """Send the number of requests."""
        self._send(str(Handler.requests).encode())

    def do_POST(self) -> None:
        """Answer one request, and count it."""
        Handler.requests += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._send(msgspec.json.encode(self.node.answer(self.path, body)))

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    """A server with a long backlog: a connection for which the backlog has no room waits a second."""

    request_queue_size = 128


def serve(make: Callable[[], Node], ready: Any) -> None:
    """Serve the node in this child process."""
    Handler.node = make()
    server = Server(("127.0.0.1", 0), Handler)
    ready.send(server.server_port)
    server.serve_forever()


class Spent(NamedTuple):
    """Seconds by the clock, and of this process's processor."""

    wall_s: float
    cpu_s: float


async def timed(served: ServedChain, variant: Variant, url: str, folder: Path, blocks: int, *, as_rows: bool) -> Spent:
    """Return the time for all blocks, with as many spans at once as an index has."""
    chain = variant.build(url, folder)
    await chain.heads()
    spans = Span(served.first, served.first + blocks - 1).cut(SPAN)

    async def work() -> None:
        for span in spans:
            if as_rows:
                chunk = await chain.collect(span, served.datasets)
                assert len(chunk.blocks) == len(span)
            else:
                await served.fetched(chain, span)

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(chain.settings.concurrency)))
    spent = Spent(time.perf_counter() - start_s, time.process_time() - start_cpu_s)
    await chain.close()
    return spent


def requests_of_a_wallet(served: ServedChain, url: str, folder: Path) -> int:
    """Return the requests of `chainfolio portfolio` for a wallet with indexed tokens, counted by the node."""
    settings, key = folder / "chainfolio.toml", served.key
    lines = [
        f'data = "{folder}/data"',
        f"[chains.{key}]",
        f'adapter = "{key}"',
        f'rpc = ["{url}"]',
        "registry_lists = 0",
        f"start_block = {served.first}",
        *([f'facts = "{folder}/facts.toml"'] if served.facts else []),
    ]
    settings.write_text("\n".join(lines))
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert chainfolio(["--config", str(settings), "index", key]) == 0
        before = _count(url)
        assert chainfolio(["--config", str(settings), "portfolio", served.wallet, "--json"]) == 0
    return _count(url) - before


def _count(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return int(reply.read())


def run(served: ServedChain, options: argparse.Namespace) -> list[Figure]:
    """Measure the rate of each variant and the requests of a wallet, on a node in a child process."""
    own_end, child_end = multiprocessing.Pipe()
    make = partial(served.node, options.blocks, options.transactions, options.tokens)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(make, child_end), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{own_end.recv()}"
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "facts.toml").write_text(served.facts)
            rates = [rate(served, variant, url, folder, options) for variant in served.variants]
            requests = requests_of_a_wallet(served, url, folder)
    finally:
        server.kill()
        server.join()
    name = f"portfolio of a wallet of {options.tokens} tokens: requests"
    return [*rates, Figure(served.key, name, str(requests), f"≤ {MAX_REQUESTS}", requests <= MAX_REQUESTS)]


def rate(served: ServedChain, variant: Variant, url: str, folder: Path, options: argparse.Namespace) -> Figure:
    """Measure how fast blocks become rows, against fetching and parsing them in the same run."""
    ratios, costs = list[float](), list[float]()
    measure = partial(timed, served, variant, url, folder)
    uvloop.run(measure(min(SPAN, options.blocks), as_rows=True))  # loads what is imported at the first use
    for _ in range(options.repeat):
        plain = uvloop.run(measure(options.blocks, as_rows=False))
        rows = uvloop.run(measure(options.blocks, as_rows=True))
        ratios.append(plain.wall_s / rows.wall_s)
        costs.append(rows.cpu_s / plain.cpu_s)
    name = f"{options.blocks:,} blocks of {options.transactions} transactions to rows: rate / of fetching and parsing"
    bar = "" if variant.min_rate is None else f"≥ {variant.min_rate}"
    is_met = None if variant.min_rate is None else statistics.median(ratios) >= variant.min_rate
    value = f"{spread(ratios)} (processor time: {spread(costs)} times as much)"
    return Figure(served.key, f"{name}{variant.name and f' ({variant.name})'}", value, bar, is_met)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--transactions", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
