"""Every call of the API through the TypeScript client in Node.js, also at refusals and faults."""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import chainfolio
from chainfolio.api.metrics import Traffic
from chainfolio.api.routes import ROUTES
from chainfolio.localchain import install
from clients.build import HERE, describe_api
from clients.python_source import operations
from clients.typescript_source import camel
from tests.api.fakes import ALICE, BOB
from tests.api.furnished import GRANTS, furnish, request_of
from tests.api.tenants import World, a_world
from tests.clients.scripted import HANG, answer, scripted
from tests.clients.test_faults import CREDITS, EVENT, LIMITED, NAV, QUIET
from tests.e2e.browser import PROGRAM, browsing

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("typescript")]

Ask = Callable[..., Awaitable[Any]]
LISTS = ("addresses", "include", "networks")  # parameters that TypeScript takes as arrays


@pytest.fixture
async def ask(project: Path) -> AsyncIterator[Ask]:
    """Makes a call in Node.js: what it returned, what it failed with, and how long it would have waited."""
    process = await asyncio.create_subprocess_exec(
        "node", "calls.mjs", cwd=project, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    stdin, stdout = process.stdin, process.stdout

    async def call(url: str, name: str, args: Any = None, *, key: str = "cf_live_k", **more: Any) -> Any:
        stdin.write(json.dumps({"url": url, "key": key, "name": name, "args": args or {}, **more}).encode() + b"\n")
        async with asyncio.timeout(60):
            return json.loads(await stdout.readline())

    yield call
    stdin.close()
    await process.wait()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as world:
        yield world


def read(outcome: Any) -> Any:
    assert "error" not in outcome, outcome
    return outcome.get("result")


async def test_every_operation_of_the_description_is_called(
    ask: Ask, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: set[str] = set()
    monkeypatch.setattr(Traffic, "note", lambda _, name, status, took_s: answered.add(name) if status < 300 else None)
    tenant = world.tenant("ann", grants=GRANTS)
    routes = {route.name: route for route in ROUTES}
    described = [operation["operationId"] for _, _, operation in operations(describe_api())]
    for name in described:
        furnish(world, tenant.account)
        _, target, body = request_of(routes[name], tenant.account)
        path, _, query = target.partition("?")
        parts = zip(routes[name].path.split("/"), path.split("/"), strict=True)
        args: dict[str, Any] = {part[1:-1]: value for part, value in parts if part.startswith("{")}
        args |= dict(parse_qsl(query)) | (msgspec.json.decode(body) if body else {})
        args |= {each: args[each].split(",") for each in LISTS if isinstance(args.get(each), str)}
        read(await ask(world.base, camel(name), args, key=tenant.key, take=1 if name == "events" else None))
    assert answered >= set(described) == set(routes), "what the server answered, not what the client sent"


async def test_pages_are_one_list_and_changes_have_keys(ask: Ask, world: World) -> None:
    key = world.tenant("ann", grants=GRANTS).key
    wallets = [f"0x{number:040x}" for number in range(1, 6)]
    body = {"entries": [{"address": wallet, "label": 'ä, & "b"'} for wallet in wallets]}
    read(await ask(world.base, "addEntries", body, key=key, options={"idempotencyKey": "monday-1"}))
    read(await ask(world.base, "addEntries", body, key=key, options={"idempotencyKey": "monday-1"}))
    book = read(await ask(world.base, "addressbook", {"limit": 2}, key=key))
    assert [(entry["address"], entry["label"]) for entry in book] == [(wallet, 'ä, & "b"') for wallet in wallets]
    protocols = read(await ask(world.base, "chainProtocols", {"key": "optimism", "limit": 100}, key=key))
    assert read(await ask(world.base, "chainProtocols", {"key": "optimism", "limit": 20}, key=key)) == protocols
    portfolios = read(await ask(world.base, "portfolio", {"addresses": [ALICE, BOB]}, key=key))
    assert [each["address"] for each in portfolios] == [ALICE, BOB]


async def test_refusals_have_codes_and_never_the_key(ask: Ask, world: World) -> None:
    key = world.tenant("ann", grants=GRANTS).key
    bundle = {"name": "One", "addresses": [ALICE]}
    read(await ask(world.base, "addEntries", {"entries": [{"address": ALICE}, {"address": BOB}]}, key=key))
    read(await ask(world.base, "createBundle", bundle, key=key))
    error = (await ask(world.base, "createBundle", bundle | {"addresses": [BOB]}, key=key))["error"]
    assert (error["kind"], error["status"], error["code"]) == ("ApiError", 409, "BUNDLE_NAME_TAKEN")
    assert re.fullmatch(r"[\w.-]+", error["requestId"])
    for secret in ("cf_live_secret", "cf_live_secret\n"):
        result = await ask(world.base, "credits", key=secret)
        assert result["error"]["kind"] in ("ApiError", "TypeError")
        assert "secret" not in json.dumps(result)
    assert read(await ask(world.base, "readyz", key=""))["ready"]


@pytest.mark.parametrize("part", ["", ".", ".."])
async def test_a_part_of_a_path_never_makes_it_that_of_another_call(ask: Ask, world: World, part: str) -> None:
    key = world.tenant("ann", grants=GRANTS).key
    read(await ask(world.base, "addEntries", {"entries": [{"address": ALICE}]}, key=key))
    bundle = read(await ask(world.base, "createBundle", {"name": "One", "addresses": [ALICE]}, key=key))["data"]["id"]
    outcome = await ask(world.base, "removeMember", {"bundleId": bundle, "address": part}, key=key)
    assert outcome["error"]["kind"] == "TypeError"
    assert read(await ask(world.base, "bundle", {"bundleId": bundle}, key=key))["data"]["addresses"] == [ALICE]


async def test_wrong_arguments_are_not_sent(ask: Ask) -> None:
    async with scripted([CREDITS]) as server:
        for name, args, options in (
            ("credits", {"wallet": ALICE}, {}),
            ("removeEntry", {"address": ALICE, "label": "x"}, {}),
            ("credits", {}, {"delegateFor": "Zo\u0142"}),
        ):
            outcome = await ask(server.url, name, args, options=options)
            assert (outcome["error"]["kind"], outcome["waits"]) == ("TypeError", [])
        for user in ("ann:secret@", ":secret@", "secret@"):
            error = (await ask(server.url.replace("//", f"//{user}"), "credits"))["error"]
            assert error["kind"] == "TypeError"
            assert "secret" not in json.dumps(error)
        assert server.requests == []


@pytest.mark.parametrize("phase", ["wait", "item"])
async def test_a_signal_ends_a_call_with_its_own_reason(ask: Ask, phase: str) -> None:
    stream = answer(200, EVENT % ("a1", ALICE, QUIET), length=9_999, Content_Type="text/event-stream") + HANG
    async with scripted([answer(503, "{}", Retry_After="5") if phase == "wait" else stream]) as server:
        outcome = await ask(server.url, "events", {"addresses": [ALICE]}, abort=phase)
        assert (outcome["error"]["kind"], outcome["error"]["message"]) == ("Error", "enough")
        assert (outcome["waits"], len(server.requests)) == ([5] if phase == "wait" else [], 1)


UNDEFINED = """
import { createClient } from "chainfolio-client";
const [url, wallet] = process.argv.slice(2);
const waits = [];
const sleep = async (seconds) => void waits.push(seconds);
const client = createClient(url, "k", { attempts: undefined, random: undefined, timeoutS: undefined, sleep });
const failed = await client.credits().catch((error) => error.status);
const list = client.approvals({ chain: "ethereum", addresses: [wallet], limit: undefined });
const issues = [];
for (let turn = 0; turn < 2; turn++) {
  for await (const _ of list);
  issues.push(list.issues.length);
}
console.log(JSON.stringify({ failed, waits: waits.length, issues }));
"""


async def test_undefined_is_no_value_and_each_iteration_has_its_issues(project: Path) -> None:
    (project / "undefined.mjs").write_text(UNDEFINED)
    issue = {"adapter": "a", "subject": "s", "reason": "no node"}
    page = answer(200, json.dumps({"cursor": None, "pageSize": 1, "items": [], "issues": [issue]}))
    async with scripted([*[answer(503, "{}")] * 5, page]) as server, asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            "node", "undefined.mjs", server.url, ALICE, cwd=project, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
    assert json.loads(printed) == {"failed": 503, "waits": 4, "issues": [1, 1]}
    assert "limit=" in server.requests[-1]


IN_A_PAGE = """(async () => {
  delete Crypto.prototype.randomUUID; // as on pages that are not secure
  const { createClient } = await import("/client/index.js");
  await createClient(location.origin).removeEntry({ address: "%s" });
})()"""


@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")
async def test_calls_work_in_a_browser(project: Path, tmp_path: Path) -> None:
    keys: list[str] = []

    async def remove(request: web.Request) -> web.Response:
        keys.append(request.headers["Idempotency-Key"])
        return web.Response(status=204)

    app = web.Application()
    app.router.add_static("/client", project / "node_modules" / "chainfolio-client" / "dist")
    app.router.add_delete("/v1/addressbook/{address}", remove)
    async with TestServer(app) as server, browsing(tmp_path) as page:
        await page.open(str(server.make_url("/client/index.js")))
        await page.says(IN_A_PAGE % ALICE)
    assert [uuid.UUID(key).version for key in keys] == [4]


async def test_retries_wait_as_the_server_says(ask: Ask) -> None:
    busy = answer(503, "{}", Retry_After="60")
    async with scripted([answer(429, LIMITED, Retry_After="7"), busy, CREDITS]) as server:
        assert await ask(server.url, "credits") == {"result": 8777, "waits": [7, 60]}
    async with scripted([answer(429, LIMITED, Retry_After="61")]) as server:
        outcome = await ask(server.url, "credits")
        assert (outcome["error"]["retryAfterS"], outcome["waits"], len(server.requests)) == (61, [], 1)
    async with scripted([answer(503, "{}")]) as server:
        outcome = await ask(server.url, "credits")
        assert (outcome["error"]["status"], len(server.requests)) == (503, 5)
        bounds = [(0.25, 0.5), (0.5, 1), (1, 2), (2, 4)]
        assert all(low <= wait <= high for wait, (low, high) in zip(outcome["waits"], bounds, strict=True))


@pytest.mark.parametrize("status", [307, 409, 500, 502])
async def test_other_refusals_are_not_repeated(ask: Ask, status: int) -> None:
    async with scripted([answer(status, "the log has it", Location="http://127.0.0.1:9/")]) as server:
        error = (await ask(server.url, "credits"))["error"]
        assert (error["status"], error["message"], len(server.requests)) == (status, f"{status}: the log has it", 1)


@pytest.mark.parametrize("cut", [b"", answer(200, '{"data":', length=50)], ids=["no answer", "half an answer"])
async def test_a_change_that_is_sent_again_has_the_same_key(ask: Ask, cut: bytes) -> None:
    async with scripted([cut, answer(200, '{"data":[]}')]) as server:
        assert read(await ask(server.url, "addEntries", {"entries": [{"address": ALICE}]})) == {"data": []}
        first, second = server.headers("Idempotency-Key")
        assert first == second != ""
    async with scripted([b""]) as server:
        outcome = await ask(server.url, "credits", limits={"attempts": 2})
        assert (outcome["error"]["kind"], len(server.requests)) == ("ConnectionFailed", 2)


@pytest.mark.parametrize("hang", [HANG, answer(200, "87", length=4) + HANG], ids=["no answer", "half an answer"])
async def test_a_server_that_is_silent_is_left(ask: Ask, hang: bytes) -> None:
    async with scripted([hang]) as server:
        outcome = await ask(server.url, "credits", limits={"attempts": 1, "timeoutS": 0.3})
        assert outcome["error"]["kind"] == "ConnectionFailed"
        assert "silent for 0.3 s" in outcome["error"]["message"]


async def test_a_file_that_is_cut_is_an_error(ask: Ask) -> None:
    args = {"kind": "holdings", "addresses": [ALICE], "format": "csv"}
    async with scripted(
        [answer(200, "a,b\n1,2\n", length=99), answer(200, "a,b\n", Content_Type="text/csv")]
    ) as server:
        assert (await ask(server.url, "exportFile", args))["error"]["kind"] == "ConnectionFailed"
        assert read(await ask(server.url, "exportFile", args)) == {"type": "text/csv", "text": "a,b\n"}


async def test_a_stream_that_is_cut_goes_on_after_its_last_event(ask: Ask) -> None:
    stream = "text/event-stream"
    first = "retry: 2000\n\n" + EVENT % ("a1", ALICE, QUIET) + 'id: b2\nevent: status\ndata: [{"addr'
    second = ":\n\n" + EVENT % ("b2", ALICE, QUIET.replace("false", "true").replace(':"complete', ':"a\u2028b\u2029'))
    answers = [answer(200, first, length=9_999, Content_Type=stream), answer(503, "{}", Retry_After="3")]
    async with scripted([*answers, answer(200, second, Content_Type=stream)]) as server:
        outcome = await ask(server.url, "events", {"addresses": [ALICE]}, take=2)
        events = [(each["id"], each["event"], each["data"][0]["syncInProgress"]) for each in read(outcome)]
        assert events == [("a1", "status", False), ("b2", "status", True)]
        assert read(outcome)[1]["data"][0]["completeness"] == "a\u2028b\u2029"
        assert server.headers("Last-Event-ID") == ["", "a1", "a1"]
        assert outcome["waits"] == [2, 3]
    async with scripted([answer(200, "[]", Content_Type="application/json")]) as server:
        outcome = await ask(server.url, "events", {"addresses": [ALICE]}, take=1)
        assert outcome["error"]["kind"] == "InvalidAnswer"


@pytest.mark.parametrize("number", ["24404277.52000000000000000000000000001", "1e-30", "0", "-5"])
async def test_numbers_are_texts_to_the_last_digit(ask: Ask, number: str) -> None:
    async with scripted([answer(200, NAV.replace("USD", 'a\\"nav\\": 1.50') % (number, "0.1"))]) as server:
        value = read(await ask(server.url, "nav", {"addresses": [ALICE]}))
        assert (value["nav"], value["conversionPrice"], value["currency"]) == (number, "0.1", 'a"nav": 1.50')
        assert value["unpricedAssets"] == 0


async def test_what_a_page_lacks_is_an_issue_of_the_list(ask: Ask) -> None:
    issue = {"adapter": "a", "subject": "s", "reason": "no node"}
    pages = [{"cursor": cursor, "pageSize": 1, "items": [], "issues": [issue]} for cursor in ("x", None)]
    async with scripted([answer(200, json.dumps(page)) for page in pages]) as server:
        read_list = read(await ask(server.url, "approvals", {"chain": "ethereum", "addresses": [ALICE]}))
        assert read_list == {"items": [], "issues": [issue, issue]}


async def test_answers_that_are_no_json_and_circles_of_pages_are_errors(ask: Ask) -> None:
    async with scripted([answer(200, "<html>")]) as server:
        outcome = await ask(server.url, "credits")
        assert (outcome["error"]["kind"], len(server.requests)) == ("InvalidAnswer", 1)
    async with scripted([answer(200, '{"cursor":"x","pageSize":1,"items":[]}')]) as server:
        outcome = await ask(server.url, "approvals", {"chain": "ethereum", "addresses": [ALICE]})
        assert (outcome["error"]["kind"], len(server.requests)) == ("InvalidAnswer", 2)


def test_the_tarball_has_the_version_of_the_api_and_no_dependency(project: Path, tarball: Path) -> None:
    manifest = json.loads((project / "node_modules" / "chainfolio-client" / "package.json").read_text())
    assert manifest["version"] == chainfolio.__version__
    assert "dependencies" not in manifest
    with tarfile.open(tarball) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
    assert {"LICENSE", "README.md", "dist/index.js", "dist/index.d.ts", "dist/schema.d.ts"} <= names


def test_the_compiler_is_that_of_the_lock_file(tarball: Path) -> None:
    locked = json.loads((HERE / "typescript" / "package-lock.json").read_text())["packages"]
    hidden = install.home() / "clients" / "node_modules" / ".package-lock.json"
    installed = json.loads(hidden.read_text())["packages"]
    assert {name: each["integrity"] for name, each in installed.items()} == {
        name: each["integrity"] for name, each in locked.items() if name in installed
    }
    assert {"node_modules/typescript", "node_modules/openapi-typescript"} <= installed.keys()
