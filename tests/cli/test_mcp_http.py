"""`/mcp` of a real server with the SDK's client: keys, limits and credits of the API apply."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from msgspec import structs

from chainfolio.agents.server import HTTP_TOOLS, PROMPTS
from chainfolio.api.app import make_app
from chainfolio.api.mcp import add_mcp
from chainfolio.api.serve import listening
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment, SystemClock
from chainfolio.indexer.wiring import System
from chainfolio.settings import Limits
from chainfolio.settings_file import load
from chainfolio.storage.state import State
from tests.cli.conftest import Run

pytestmark = pytest.mark.node


@dataclass
class McpServer:
    """A server with accounts."""

    url: str
    state: State

    def account(self, *grants: str, plan: str = "FREE", credits: int = 100) -> tuple[str, str]:
        """The id and the key of a new account."""
        account, key = self.state.create_account("team", plan, credits, grants)
        return account.id, key

    @asynccontextmanager
    async def client(self, key: str) -> AsyncIterator[Client]:
        """The SDK's client with a key."""
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http)) as mcp_client,
        ):
            yield mcp_client

    async def post(self, body: object, key: str = "", **headers: str) -> httpx2.Response:
        """One request without the SDK."""
        base_headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
        async with httpx2.AsyncClient(timeout=60) as http:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            authorization = {"Authorization": f"Bearer {key}"} if key else {}
            return await http.post(self.url, content=content, headers={**base_headers, **authorization})

    async def credits(self, account: str, expected: int) -> bool:
        """Return True if the account has `expected` credits after its calls are settled."""
        await self.state.meter.close()
        return self.state.balance(account) == expected


@asynccontextmanager
async def served(limits: Limits | None = None) -> AsyncIterator[McpServer]:
    config = structs.replace(load(Path("chainfolio.toml")), limits=limits or Limits())
    system = System(config)
    state = State.open("sqlite:///state-of-test.db", b"p" * 32, SystemClock(), random.Random(1))
    engine = Engine(system)
    app = make_app(engine, state, config, Environment())
    add_mcp(app, engine, state)
    try:
        async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port:
            yield McpServer(f"http://127.0.0.1:{port}/mcp", state)
    finally:
        await state.meter.close()
        await system.close()
        state.close()


async def ask(client: Client, tool: str, /, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, dict(arguments))
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    answer: dict[str, Any] = json.loads(content.text)
    return answer


async def test_the_client_of_the_sdk_gets_the_answers_of_commands_for_credits(
    wallets: dict[str, str], run: Run
) -> None:
    frank = wallets["frank"]
    of_command = (await asyncio.to_thread(run, "portfolio", frank, "--json")).json
    async with served() as at:
        account, key = at.account("portfolio")
        async with at.client(key) as mcp_client:
            listing = await mcp_client.list_tools()
            assert {each.name for each in listing.tools} == {*HTTP_TOOLS}
            assert {each.name for each in (await mcp_client.list_prompts()).prompts} == {*PROMPTS}
            portfolio = await ask(mcp_client, "portfolio", address=frank)
            both = await ask(mcp_client, "net_worth", addresses=[frank, wallets["bob"]])
            price = await ask(mcp_client, "price", asset="eip155:31337/slip44:60")
            token = await ask(mcp_client, "token", asset="eip155:31337/slip44:60")
            protocol = await ask(mcp_client, "protocol", name="Uniswap")
            remaining = await ask(mcp_client, "credits")
        of_command = of_command[0] if isinstance(of_command, list) else of_command
        assert portfolio["summary"]["netWorthUsd"] == of_command["networth"]
        assert both["completeness"] in ("complete", "partial")
        assert price["summary"]["usd"] == "2000"
        assert (token["summary"]["symbol"], token["summary"]["decimals"]) == ("“ETH”", 18)
        assert protocol["summary"]["protocols"] > 0
        assert remaining["summary"]["credits"] <= 91  # four answers for one each, and 5 for the protocol
        assert await at.credits(account, 91)


async def test_keys_grants_limits_and_errors_are_those_of_the_api(wallets: dict[str, str]) -> None:
    def call(tool: str, **arguments: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}

    frank = wallets["frank"]
    async with served(Limits(per_minute=15)) as at:
        account, key = at.account("portfolio")
        assert (await at.post(call("credits"))).status_code == 401
        assert (await at.post(call("credits"), "cf_live_no")).status_code == 401
        _, bare = at.account()
        assert (await at.post(call("portfolio", address=frank), bare)).status_code == 403
        _, poor = at.account("portfolio", credits=0)
        assert (await at.post(call("portfolio", address=frank), poor)).status_code == 402
        assert (await at.post(call("portfolio", address=frank, block=40), key)).status_code == 401
        assert (await at.post(call("performance", addresses=[frank]), key)).status_code == 403
        assert (await at.post(call("net_worth", addresses=[frank] * 11), key)).status_code == 400
        as_text = json.dumps([frank])  # the SDK takes a list inside a text
        assert (await at.post(call("net_worth", addresses=as_text), key)).status_code == 400
        assert (await at.post(b"{", key)).status_code == 400
        assert (await at.post([call("credits")], key)).status_code == 400
        for wrong in (call("sql", query="SELECT 1"), call("status"), call("nothing"), call("portfolio", address="x")):
            answer = await at.post(wrong, key)
            assert answer.status_code == 200
            assert "error" in answer.json() or answer.json()["result"]["isError"]
        assert await at.credits(account, 100)
        async with httpx2.AsyncClient() as http:
            assert (await http.get(at.url, headers={"Authorization": f"Bearer {key}"})).status_code == 405
        statuses = [(await at.post(call("credits"), key)).status_code for _ in range(12)]
        assert statuses[-1] == 429
