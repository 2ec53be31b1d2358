"""A headless Chromium, spoken to as its own developer tools do."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientWebSocketResponse

from tests.api.sessions import client_session

START_S = 60
TEST_S = 120

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Page:
    """One page; what its script says is awaited, so that nothing has to be waited for by the clock."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        self.events: list[dict[str, Any]] = []  # of a trace

    async def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            level = message.get("params", {}).get("entry", {}).get("level")
            if message.get("method") == "Runtime.exceptionThrown" or level in ("warning", "error"):
                self.complaints.append(str(message["params"]))
            if message.get("method", "").startswith("Tracing."):
                self.events.append(message)
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def open(self, url: str) -> None:
        """Go to an address; what follows is heard from the first line of its script on."""
        await self.do("Runtime.enable")
        await self.do("Log.enable")
        await self.do("Page.navigate", url=url)

    async def says(self, expression: str) -> Any:
        """The value of an expression on the page, awaited."""
        evaluation = await self.do("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in evaluation, evaluation["exceptionDetails"]
        return evaluation["result"].get("value")

    async def once(self, condition: str) -> None:
        """Wait until the page changes into one for which the condition holds."""
        await self.says(
            "new Promise(done => { const look = () => { if (" + condition + ") { watch.disconnect(); done(); } };"
            "const watch = new MutationObserver(look);"
            "watch.observe(document, {childList: true, subtree: true, attributes: true}); look(); })"
        )

    async def picture(self) -> bytes:
        """A PNG of what there is to see."""
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Page]:
    """A browser with an empty page, as long as the block lasts."""
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *OPTIONS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with client_session() as client:
            async with asyncio.timeout(START_S):
                port = await _port(process)
                async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (target,) = [each for each in await answer.json() if each["type"] == "page"]
                socket = await client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
            async with socket, asyncio.timeout(TEST_S):
                yield Page(socket)
    finally:
        process.kill()
        await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Return the port on which it listens, from its standard error."""
    assert process.stderr is not None
    async for line in process.stderr:
        if b"DevTools listening on" in line:
            return int(line.split(b"127.0.0.1:")[1].split(b"/")[0])
    raise AssertionError("the browser ended before it listened")
