"""The link to the dashboard that the demo prints: it has the port that the server got."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chainfolio.cli import demo
from chainfolio.settings_file import load


async def test_the_link_has_the_port_that_the_server_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chainfolio.toml"
    path.write_text(
        f'data = "{tmp_path}/data"\n[server]\nhost = "::1"\nport = 0\n[examples]\n"2026-03-01" = "2026-01-01"\n'
        '[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n'
    )

    async def no_application(_: object) -> None:
        """No application."""

    @asynccontextmanager
    async def listening(*_: object) -> AsyncIterator[int]:
        # As Ctrl-C does, once the demo waits for it.
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        yield 5_555

    monkeypatch.setattr(demo, "indexing", no_application)
    monkeypatch.setattr(demo, "listening", listening)
    monkeypatch.setattr(demo, "configure_log", lambda _: None)
    options = argparse.Namespace(json=True, data=str(tmp_path), port=0)
    wallets = {name: f"0x{number:040x}" for number, name in enumerate(("carol", "dave", "erin"), 1)}
    try:
        await demo._serve(load(path, {}), wallets, options, lambda _: None)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    printed = json.loads(capsys.readouterr().out)
    assert printed["url"] == "http://[::1]:5555"
    assert printed["dashboard"].startswith(f"http://[::1]:5555/#/portfolio?addresses={wallets['carol']}&to=2026-01-01")
    assert "link=cf_live_" in printed["dashboard"]
