"""No answer and no log line shows a configured secret, also if a node fails or repeats it."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from chainfolio.api.routes import ROUTES
from chainfolio.localchain.node import LocalNode
from tests.api.fakes import ALICE, SOL, TRON
from tests.api.over_nodes import READS, WRITES, ask, lived, served, settings_of
from tests.api.targets import target
from tests.api.tenants import Tenant

pytestmark = pytest.mark.node
PASSWORD, KEY, QUERY, EXPLORER, GRID, VENDOR, WEBHOOK = (
    f"{name}S3cr3t" for name in ("pass", "path", "query", "scan", "grid", "cg", "hook")
)
SECRETS: Final = (PASSWORD, KEY, QUERY, EXPLORER, GRID, VENDOR, WEBHOOK)
SETTINGS = """
[chains.base]
rpc = ["http://user:{password}@{host}/v3/{key}?apikey={query}"]
explorer = "http://{host}/api?apikey={explorer}"
[chains.solana]
adapter = "solana"
rpc = ["http://{host}/{key}"]
[chains.tron]
adapter = "tron"
rpc = ["http://{host}/?apikey={query}"]
api_key = "{grid}"
"""
GETS = [target(route).replace("ethereum", "base") for route in ROUTES if route.method == "GET"]
PAGES = ("/metrics", "/docs", *GETS)


class Echo(BaseHTTPRequestHandler):
    """A node that refuses every call, and repeats the address and the headers of the request."""

    def answer(self) -> None:
        """Send the refusal."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        message = f"project of {self.path} with {dict(self.headers)} is suspended"
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": message}, "Error": message})
        self.send_response(403)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    """The host of such a node."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with lived() as running:
        yield running


def stored(folder: Path) -> dict[str, str]:
    """The content of every file in a folder, by its path there."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes().decode("latin-1") for file in files}


async def read(tenant: Tenant, path: str) -> str:
    """Headers and body of an answer; of a stream, the first part."""
    if not path.startswith("/v1/events"):
        response = await tenant.ask("GET", path)
        return f"{response.headers} {response.body.decode('latin-1')}"
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with tenant.session.get(f"{tenant.base}{path}", headers=headers) as answer:
        return f"{answer.headers} {(await answer.content.readany()).decode()}"


@pytest.mark.parametrize("is_dead", [False, True], ids=["node repeats the request", "node is dead"])
async def test_no_answer_shows_a_configured_secret(
    node: LocalNode,
    echo: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_dead: bool,
) -> None:
    monkeypatch.setenv("COINGECKO_DEMO_KEY", VENDOR)
    caplog.set_level(logging.DEBUG)
    config = settings_of(tmp_path, node)
    host = "127.0.0.1:9" if is_dead else echo
    credentials = {"password": PASSWORD, "key": KEY, "query": QUERY, "explorer": EXPLORER, "grid": GRID}
    config.write_text(config.read_text() + SETTINGS.format(host=host, **credentials))
    prices = tmp_path / "prices.toml"
    prices.write_text(f"{prices.read_text()}[coingecko]\nbase_url = 'http://{host}'\n")
    texts = dict[str, str]()
    async with served(config, tmp_path) as world:
        with capture_logs([format_exc_info]) as lines:
            for name in (*READS, *WRITES):
                response, _ = await ask(world, name, ALICE, SOL, TRON)
                texts[name] = f"{response.headers} {response.body.decode()}"
            tenant = world.tenant(uuid.uuid4().hex, grants=("portfolio", "at-block", "enterprise"))
            for path in PAGES:
                texts[path] = await read(tenant, path)
            readiness = await world.engine.readiness()
    assert "base" in texts["portfolio"], "the chains that fail are named"
    assert "partial" in texts["portfolio"]
    assert {"/v1/portfolio", "/v1/portfolio/at-block"} <= {line.get("path") for line in lines}, "requests are logged"
    texts |= {"log": caplog.text, "lines": repr(lines), "readiness": repr(readiness)} | stored(tmp_path)
    del texts[config.name]
    assert {name: secret for name, text in texts.items() for secret in SECRETS if secret in text} == {}
