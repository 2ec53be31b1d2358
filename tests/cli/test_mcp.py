"""`chainfolio mcp` on a real chain, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from chainfolio.agents.compact import MAX_BYTES, MAX_DETAIL_BYTES
from chainfolio.agents.server import PROMPTS
from tests.cli.conftest import Run

pytestmark = pytest.mark.node
ROOT = Path(__file__).parents[2]
MAX_LIST_TOKENS = 6_000
BYTES_OF_TOKEN = 4


@asynccontextmanager
async def client(folder: Path, mode: Literal["auto", "legacy"] = "auto") -> AsyncIterator[Client]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "chainfolio.cli.main", "mcp"], cwd=str(folder), env=environment
    )
    async with Client(server, mode=mode) as mcp_client:
        yield mcp_client


async def ask(mcp_client: Client, tool: str, /, **arguments: object) -> dict[str, Any]:
    result = await mcp_client.call_tool(tool, dict(arguments))
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    limit = MAX_DETAIL_BYTES if arguments.get("detail") or tool == "status" else MAX_BYTES
    assert len(content.text.encode()) <= limit
    answer: dict[str, Any] = json.loads(content.text)
    assert answer["completeness"] in ("complete", "partial")
    assert all(set(each) in ({"block", "ageSeconds"}, {"block"}) for each in answer["at"].values())
    assert answer["at"]
    return answer


@pytest.mark.slow("the same list over the older protocol", fast=["auto"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_are_listed_in_few_tokens_and_say_if_they_only_read(
    wallets: dict[str, str], here: Path, mode: Literal["auto", "legacy"]
) -> None:
    assert wallets
    async with client(here, mode) as mcp_client:
        listing = await mcp_client.list_tools()
        assert len(listing.model_dump_json(exclude_none=True)) / BYTES_OF_TOKEN <= MAX_LIST_TOKENS
        assert {"portfolio", "transactions", "approvals", "gains", "sql"} <= {each.name for each in listing.tools}
        assert {each.name for each in listing.tools if not (each.annotations and each.annotations.read_only_hint)} == {
            "reconcile"
        }
        assert all(each.description for each in listing.tools)
        prompts = await mcp_client.list_prompts()
        assert {each.name for each in prompts.prompts} == set(PROMPTS)
        resources = await mcp_client.list_resources()
        assert {str(each.uri) for each in resources.resources} == {"chainfolio://tables", "chainfolio://llms.txt"}
        tables = await mcp_client.read_resource("chainfolio://tables")
        assert "transfers: chain, height" in str(tables)


async def every_answer(folder: Path, frank: str) -> dict[str, dict[str, Any]]:
    """Return the answer of each tool about a wallet."""
    questions: dict[str, dict[str, object]] = {
        "portfolio": {"address": frank},
        "transactions": {"address": frank, "limit": 5},
        "approvals": {"address": frank},
        "gains": {"addresses": [frank]},
        "net_worth": {"addresses": [frank]},
        "price": {"asset": "eip155:31337/slip44:60"},
        "status": {},
        "sql": {"query": "SELECT count(*) AS n FROM transfers"},
        "history": {"addresses": [frank]},
        "reconcile": {"address": frank},
    }
    async with client(folder) as mcp_client:
        answers = {tool: await ask(mcp_client, tool, **arguments) for tool, arguments in questions.items()}
        answers["at block"] = await ask(mcp_client, "portfolio", address=frank, chain="local", block=40)
        answers["performance"] = await ask(mcp_client, "performance", addresses=[frank])
        answers["portfolio in detail"] = await ask(mcp_client, "portfolio", address=frank, detail=True)
        answers["only chain"] = await ask(mcp_client, "portfolio", address=frank, block=40)
    return answers


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_every_tool_agrees_with_the_command(run: Run, wallets: dict[str, str], here: Path) -> None:
    frank = wallets["frank"]
    answers = asyncio.run(every_answer(here, frank))
    assert answers["at block"]["at"] == answers["only chain"]["at"] == {"local": {"block": 40}}
    assert answers["history"]["summary"]["days"] >= 1
    of_command = run("portfolio", frank, "--json").json
    of_command = of_command[0] if isinstance(of_command, list) else of_command
    assert Decimal(answers["portfolio"]["summary"]["netWorthUsd"]) == Decimal(of_command["networth"])
    assert Decimal(answers["net_worth"]["summary"]["netWorth"]) == Decimal(of_command["networth"])
    in_detail = answers["portfolio in detail"]
    assert "rest" not in in_detail
    values = [Decimal(row["value"]) for row in in_detail["rows"] if row["value"] != "N/A"]
    assert sum(values) == Decimal(of_command["networth"])
    assert [abs(value) for value in values] == sorted(map(abs, values), reverse=True)
    of_days = run("performance", frank, "--json").json
    for name in ("startValue", "endValue", "netFlows", "gain", "timeWeightedReturn", "moneyWeightedReturn"):
        assert answers["performance"]["summary"][name] == of_days[name]
    assert answers["performance"]["summary"]["largestFall"] == of_days["drawdown"]
    listing = run("transactions", frank, "--limit", "5", "--json").json["transactions"]
    assert [each["hash"] for each in answers["transactions"]["rows"]] == [each["hash"] for each in listing]
    assert answers["approvals"]["summary"]["valueAtRiskUsd"] == run("approvals", frank, "--json").json["valueAtRisk"]
    assert answers["gains"]["summary"]["closedGainUsd"] == run("pnl", frank, "--json").json["closedPnl"]
    assert answers["price"]["summary"]["usd"] == "2000"
    assert [each["chain"] for each in answers["status"]["rows"]] == ["local"]
    assert answers["sql"]["rows"] == run("sql", "SELECT count(*) AS n FROM transfers", "--json").json
    assert [each["chain"] for each in answers["reconcile"]["rows"]] == ["local"]
    assert all(each["token"].startswith("“") for each in answers["portfolio"]["rows"])


async def test_what_cannot_be_answered_is_an_error_with_its_remedy(wallets: dict[str, str], here: Path) -> None:
    assert wallets
    async with client(here) as mcp_client:
        for tool, arguments, reason in (
            ("portfolio", {"address": "nonsense"}, "nonsense"),
            ("transactions", {"address": wallets["bob"], "limit": 1000}, "not between 1 and 250"),
            ("sql", {"query": "COPY transfers TO 'x.csv'"}, "query"),
            ("sql", {"query": "SELECT * FROM read_csv('/etc/passwd')"}, "query"),
            ("gains", {"addresses": [wallets["bob"]], "method": "magic"}, "fifo"),
        ):
            result = await mcp_client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            assert reason in str(result.content)
            assert "Traceback" not in str(result.content)
