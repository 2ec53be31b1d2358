"""The API serving a cached portfolio with key, rate and credits, beside a bare handler that sends the same bytes.

python -m bench.serving [--seconds 8] [--repeat 5] [--postgres URL]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path

import psycopg
import uvloop
from aiohttp import web

from api.app import App, make_app
from api.serve import serve, settle_memory
from bench.figures import Figure, main, spread
from bench.places import ROOT, Absent, scratch
from bench.runs import environment
from chainfolio.assets import Asset, account
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Price, Snapshot, Token
from chainfolio.seams import SystemClock
from chainfolio.settings import Chain, Server, Settings
from indexer.engine import Engine, _Kept
from indexer.wiring import System
from portfolio.facts import Options
from portfolio.valuation import value
from storage.state import State, ledger

ADDRESS = "0x" + "a1" * 20
PEPPER = bytes(32)
CLIENTS = 64
TOKENS = 48  # make 30 kB
KEYS = 2_000  # no key comes to its limit
RATE_BAR, TAIL_BAR = 0.70, 4.0


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure."""
    if not shutil.which("wrk"):
        raise Absent("wrk is not installed: it is in Debian's package `wrk`")
    with scratch() as folder:
        found = _compared(folder, f"sqlite:///{folder}/state.db", options)
        if options.postgres:
            found += _compared(folder, options.postgres, options)
        return found


def _compared(folder: Path, url: str, options: argparse.Namespace) -> list[Figure]:
    store = url.partition(":")[0]
    script = _script(folder, _keys(url))
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    tails: dict[str, list[float]] = {"bare": [], "ours": []}
    shares: list[float] = []
    for _ in range(options.repeat):
        for name in rates:
            before_s = _database_s(url)
            with _server(name, url) as port:
                _load(port, script, 1)
                rate, tail_ms = _load(port, script, options.seconds)
            if name == "ours":
                shares.append((_database_s(url) - before_s) / (1 + options.seconds) * 100)
            rates[name].append(rate)
            tails[name].append(tail_ms)
    sound = _sound(url)
    ratio = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    tail = [ours / bare for ours, bare in zip(tails["ours"], tails["bare"], strict=True)]
    detail = {"rates": rates, "p99_ms": tails, "ledger": sound}
    barred = store == "sqlite"
    inside = "" if barred else f", {statistics.median(shares):.0f} % of the time in its statements"
    return [
        Figure(
            "serving", f"requests/s on {store} / a bare handler's", spread(ratio) + inside,
            f">= {RATE_BAR}" if barred else "",
            statistics.median(ratio) >= RATE_BAR if barred else None, detail,
        ),
        Figure(
            "serving", f"p99 on {store} / a bare handler's", spread(tail), f"<= {TAIL_BAR}" if barred else "",
            statistics.median(tail) <= TAIL_BAR if barred else None, in_readme=barred,
        ),
        Figure("serving", f"requests/s on {store}", spread(rates["ours"], 0)),
    ]  # fmt: skip


def _database_s(url: str) -> float:
    """For how long PostgreSQL has worked on statements in this database; its sessions say so as they end."""
    if url.startswith("sqlite"):
        return 0.0
    time.sleep(1.5)
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT active_time FROM pg_stat_database WHERE datname = current_database()")
        return float(row.fetchall()[0][0]) / 1000


def _keys(url: str) -> list[str]:
    """Keys of some accounts with credits enough."""
    state = State.open(url, PEPPER, SystemClock(), random.Random(time.time_ns()))
    tokens = []
    for number in range(8):
        account, token = state.create_account(f"bench {number}", "PRO", 10**9, ["portfolio"])
        tokens += [token, *(state.create_key(account.id, "more")[1] for _ in range(KEYS // 8 - 1))]
    state.close()
    return tokens


def _sound(url: str) -> list[str]:
    state = State.open(url, PEPPER, SystemClock(), random.Random(1))
    wrong = state.database.look(ledger.check)
    state.close()
    assert not wrong, wrong
    return wrong


def _script(folder: Path, keys: Sequence[str]) -> Path:
    """What wrk runs: each request with the next key."""
    path = folder / "keys.lua"
    path.write_text(
        "local keys = {" + ",".join(f'"{key}"' for key in keys) + "}\nlocal at = 0\nrequest = function()\n"
        "  at = at % #keys + 1\n"
        f'  return wrk.format("GET", "/v1/portfolio?addresses={ADDRESS}", '
        '{["Authorization"] = "Bearer " .. keys[at]})\nend\n'
    )
    return path


def _load(port: int, script: Path, seconds: int) -> tuple[float, float]:
    """Requests a second, and the 99th percentile in ms."""
    command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "--latency", "-s", str(script)]
    told = subprocess.run([*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in told, told
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
    tail = re.search(r"99%\s+([\d.]+)(us|ms|s)", told)
    assert rate, told
    assert tail, told
    return float(rate[1]), float(tail[1]) * {"us": 0.001, "ms": 1, "s": 1000}[tail[2]]


@contextmanager
def _server(name: str, url: str) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.serving", "--serve", name, "--port", str(port), "--url", url]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL) as process:
        try:
            _until_up(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def _until_up(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server did not come up")


# --- the two servers -------------------------------------------------------------------------------------------------


def _engine() -> Engine:
    """The product's engine with one account's portfolio in its cache, for as long as this runs."""
    holdings, prices = [], []
    for number in range(TOKENS):
        asset = Asset("eip155:1", "erc20", f"0x{number:040x}")
        token = Token(asset, f"TKN{number}", f"Token Number {number}", 18)
        holdings.append(Holding(ADDRESS, token, 10**18 * (number + 1) + 7))
        prices.append(Price(asset, Decimal("1.25"), "chainlink", 1_760_000_000_000_000, Decimal(1)))
    block = Block(19_000_000, "0x" + "ab" * 32, "0x" + "cd" * 32, 1_760_000_000_000_000)
    given = Settings(data=tempfile.mkdtemp(), chains={"ethereum": Chain(rpc=["http://127.0.0.1:1"])})
    engine = Engine(System(given))
    valuation = value([Snapshot("ethereum", block, (ADDRESS,), tuple(holdings), tuple(prices), ())])
    engine._kept[ADDRESS] = _Kept(valuation, time.time_ns() // 1000 + 3600 * 1_000_000)
    return engine


async def _bare(port: int) -> None:
    engine = _engine()
    written = await engine.written([account(ADDRESS)], Options(), wait=False)
    body = b"[" + written[0] + b"]"

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/portfolio", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    settle_memory()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def _ours(url: str) -> App:
    engine = _engine()
    await engine.written([account(ADDRESS)], Options(), wait=False)
    state = State.open(url, PEPPER, SystemClock(), random.Random(time.time_ns()))
    app = make_app(engine, state, Settings(), engine.system.seams)

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        yield
        await state.meter.close()
        state.close()

    app.beside.append(beside)
    return app


def _serve(options: argparse.Namespace) -> None:
    if options.serve == "bare":
        uvloop.run(_bare(options.port))
    else:
        serve(lambda _: _ours(options.url), Settings(server=Server(port=options.port), log_level="warning"))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--postgres", default="", metavar="URL", help="an empty database, measured too")
    parser.add_argument("--serve", choices=("bare", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        given = argparse.ArgumentParser()
        _options(given)
        _serve(given.parse_args())
    else:
        main(__doc__, run, _options)
