"""The commands of the manual: a demo and a second server as separate processes, and accounts for them."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

import pytest

from chainfolio.cli.main import main
from tests.e2e.client import Client

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90
LOOK_S = 0.05
BLOCKS = 40
# The chain begins on 14 November 2023 at 22:13 UTC, and its blocks end that day.
MIDNIGHT = 1_700_006_400
THE_DAY = "2023-11-15"
COMMAND = [sys.executable, "-m", "chainfolio.cli.main"]
ALICE = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
BOB = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc"
DAVE = "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65"  # holds only what has a price
FRANK = "0x976ea74026e726554db657fa54763abd0c3a0aa9"  # so does he
SOLANA = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
TRON = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
STARKNET = "0x" + "04ab" * 16


@dataclass(frozen=True)
class Account:
    """An account and its first key."""

    id: str
    key: str


@dataclass(frozen=True)
class Running:
    """A server, and the commands for its accounts."""

    url: str
    config: Path

    def command(self, *words: str) -> Any:
        """Return the JSON that a command prints."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            status = main([*words, "--config", str(self.config), "--json"])
        assert status == 0, f"{words}: {stdout.getvalue()}{stderr.getvalue()}"
        return json.loads(stdout.getvalue())

    def account(self, name: str, *, plan: str = "FREE", funds: int = 1_000, grants: tuple[str, ...] = ()) -> Account:
        """A new account."""
        granted = [argument for grant in grants for argument in ("--grant", grant)]
        created = self.command("account", "create", "--name", name, "--plan", plan, "--credits", str(funds), *granted)
        return Account(created["accountId"], created["apiKey"])

    def client(self, key: str | None, **headers: str) -> Client:
        """A client with that key."""
        return Client(f"{self.url}/v1", key, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass(frozen=True)
class Demo(Running):
    """The demo, with the key that it printed and the chain that it runs."""

    key: str
    curl: str
    node: str

    def rpc(self, method: str, *params: Any) -> Any:
        """Asks the demo's own chain."""
        return ask(self.node, {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})["result"]


def ask(url: str, body: Any = None) -> Any:
    """The document at an address."""
    at = urlsplit(url)
    line = HTTPConnection(at.hostname or "", at.port, timeout=PATIENCE_S)
    try:
        payload = None if body is None else json.dumps(body)
        line.request("POST" if body else "GET", at.path or "/", payload, {"Content-Type": "application/json"})
        return json.loads(line.getresponse().read())
    finally:
        line.close()


def environment(*sites: Path) -> dict[str, str]:
    """Ours, with the code of this tree, and what is installed in other folders."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CHAINFOLIO_")}
    return {**clean, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *sites))), "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def process(
    arguments: list[str], log: Path, *sites: Path, launcher: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it is no longer needed; `launcher` is a program that becomes it."""
    command = [*launcher, *COMMAND, *arguments]
    with log.open("wb") as log_file:
        running = subprocess.Popen(command, cwd=ROOT, env=environment(*sites), stdout=log_file, stderr=log_file)
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def printed(running: subprocess.Popen[bytes], log: Path, mark: str) -> str:
    """Return the output of a command once the mark is in it."""
    end = time.monotonic() + PATIENCE_S
    while mark not in (output := log.read_text(errors="replace")):
        assert running.poll() is None, output
        assert time.monotonic() < end, f"no {mark!r} in {PATIENCE_S} s: {output}"
        time.sleep(LOOK_S)
    return output


def until_indexed(server: Running, height: int) -> None:
    """Waits until a server has read its chain so far."""
    end = time.monotonic() + PATIENCE_S
    while (ask(f"{server.url}/readyz")["chains"][0]["indexed"] or 0) < height:
        assert time.monotonic() < end, ask(f"{server.url}/readyz")
        time.sleep(LOOK_S)


@contextmanager
def demonstrated(folder: Path) -> Iterator[Demo]:
    """`chainfolio demo`, and then midnight passes on its chain, so that there is a day to look back at."""
    if which("node") is None:
        pytest.skip("the demo's chain needs Node.js, which is not here")
    log = folder / "demo.log"
    with process(
        ["demo", "--data", str(folder / "data"), "--port", str(free_port()), "--blocks", str(BLOCKS)], log
    ) as it:
        output = printed(it, log, "Ctrl-C ends it")
        url, curl = re.search(r"(http://\S+)/docs", output), re.search(r"^ *(curl .+)$", output, re.M)
        key, config = re.search(r"Key: (\S+)", output), re.search(r"--config (\S+)", output)
        node = re.search(r"anvil runs at (\S+)", output)
        assert url
        assert curl
        assert key
        assert config
        assert node
        demo = Demo(url[1], Path(config[1]), key[1], curl[1], node[1])
        until_indexed(demo, int(demo.rpc("eth_blockNumber"), 16))
        yield demo


@contextmanager
def as_ethereum(demo: Demo, folder: Path, launcher: Sequence[str] = ()) -> Iterator[Running]:
    """A second server over the demo's chain, under the name of a chain whose approvals and blocks can be asked for;
    `launcher` is the program that starts it."""
    port = free_port()
    facts = (demo.config.parent / "local.toml").read_text().replace('key = "local"', 'key = "ethereum"')
    (folder / "ethereum.toml").write_text(facts)
    prices = (demo.config.parent / "prices.toml").read_text().replace("[chainlink.local]", "[chainlink.ethereum]")
    (folder / "prices.toml").write_text(prices)
    (folder / "chainfolio.toml").write_text(f"""
data = "{folder}/data"
prices_file = "{folder}/prices.toml"
[server]
port = {port}
[chains.ethereum]
facts = "{folder}/ethereum.toml"
rpc = ["{demo.node}"]
""")
    log = folder / "serve.log"
    with process(["serve", "--config", str(folder / "chainfolio.toml")], log, launcher=launcher) as it:
        printed(it, log, "listening")
        server = Running(f"http://127.0.0.1:{port}", folder / "chainfolio.toml")
        until_indexed(server, int(demo.rpc("eth_blockNumber"), 16))
        yield server
