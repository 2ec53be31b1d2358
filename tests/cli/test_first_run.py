"""The server part of the page *Start*: permissions, reports about a real node, and written files."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from chainfolio.api.app import App
from chainfolio.api.auth import HEADER
from chainfolio.api.first_run import NO_SETUP, ONLY_OWNER
from chainfolio.api.serve import listening
from chainfolio.cli import first_run
from chainfolio.cli.dashboard_link import new_link, owner_account
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Server, Settings
from chainfolio.settings_file import load
from tests.api.sessions import client_session
from tests.cli.conftest import Run
from tests.e2e.running import free_port

pytestmark = pytest.mark.node
ALICE = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
SOLANA = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
SECRET = "s3cr3t-k3y"
POSTS = ("check", "portfolio", "preview", "keep")


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as running:
        deploy(running)
        yield running


@dataclass
class Face:
    """A server, its application, and the owner's session."""

    client: ClientSession
    url: str
    app: App
    cookie: str
    logs: list[Any] = field(default_factory=list)

    async def post(self, name: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        request_headers = {HEADER: "1", "Cookie": self.cookie} if headers is None else headers
        async with self.client.post(f"{self.url}/dashboard/start/{name}", json=body, headers=request_headers) as answer:
            return answer.status, await answer.json()

    async def done(self, name: str, **body: object) -> Any:
        status, document = await self.post(name, body)
        assert status == 200, document
        return document

    async def start(self, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        request_headers = {HEADER: "1", "Cookie": self.cookie} if headers is None else headers
        async with self.client.get(f"{self.url}/dashboard/start", headers=request_headers) as answer:
            return answer.status, await answer.json()


async def log_in(client: ClientSession, url: str, body: dict[str, str]) -> str:
    async with client.post(f"{url}/dashboard/session", json=body, headers={HEADER: "1"}) as answer:
        assert answer.status == 204
        return answer.headers["Set-Cookie"].partition(";")[0]


@asynccontextmanager
async def served(folder: Path, file: Path | None, port: int = 0) -> AsyncIterator[Face]:
    """A server over the settings file of a folder, if there is one, with its owner logged in by a link."""
    has_file = file is not None and file.name in os.listdir(folder)
    config = msgspec.structs.replace(load(file if has_file else None, {}), data=str(folder / "data"))
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port))
    state = open_state(config)
    link = new_link(state, owner_account(state).id, "").partition("link=")[2]
    state.close()
    with capture_logs() as logs:
        app = await indexing(config, file)
        async with listening(app, "127.0.0.1", port, drain_s=1) as bound, client_session() as client:
            url = f"http://127.0.0.1:{bound}"
            yield Face(client, url, app, await log_in(client, url, {"link": link}), logs)


@pytest.fixture
async def face(here: Path) -> AsyncIterator[Face]:
    """Serve an empty folder in a separate task, because its lifespan must end in the task that began it."""
    started: asyncio.Future[Face] = asyncio.get_running_loop().create_future()
    end = asyncio.Event()

    async def main() -> None:
        async with served(here, here / "chainfolio.toml") as it:
            started.set_result(it)
            await end.wait()

    task = asyncio.create_task(main())
    both: list[asyncio.Future[Any]] = [task, started]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield started.result()
    finally:
        end.set()
        await task


async def test_an_empty_folder_becomes_a_server_of_a_chain(face: Face, node: LocalNode, here: Path, run: Run) -> None:
    _, start = await face.start()
    assert start["allowed"] is True
    assert start["settings"] == str(here / "chainfolio.toml")
    local = {"key": "local", "kind": "evm", "name": "Local", "configured": False}
    assert local in start["chains"]
    report = await face.done("check", rpc=node.url, addresses=[ALICE])
    assert (report["ok"], report["problem"], report["remedy"], report["chain"]) == (True, "", "", local)
    assert report["row"]["head"] == node.height
    assert report["row"]["oldestState"] == 0
    assert {"final", "lagBlocks", "headAgeS", "latencyMs", "reads", "maxBatch"} <= report["row"].keys()
    assert report["accounts"] == [{"text": ALICE, "address": ALICE, "notes": [], "problem": ""}]
    (document,) = await face.done("portfolio", rpc=node.url, addresses=[ALICE])
    (printed,) = await asyncio.to_thread(lambda: run("portfolio", ALICE, "--rpc", node.url, "--json").json)
    for key in ("networth", "blockNumber", "issues"):
        assert document.get(key) == printed.get(key)
    balances = [
        each["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]["WALLET"]["assets"][0]
        for each in (document, printed)
    ]
    assert balances[0]["balance"] == balances[1]["balance"]
    assert balances[0]["sources"]["blockHash"]
    assert not (here / "chainfolio.toml").exists()
    assert not face.app.restart.is_set()
    preview = await face.done("preview", rpc=node.url)
    assert (preview["before"], preview["seen"]) == ("", "")
    await face.done("keep", rpc=node.url, seen=preview["seen"])
    assert face.app.restart.is_set()
    chain = load(here / "chainfolio.toml", {}).chains["local"]
    assert (chain.endpoints, chain.index) == ([node.url], "accounts")
    assert stat.S_IMODE((here / "chainfolio.toml").stat().st_mode) == 0o600
    assert sorted(os.listdir(here)) == ["chainfolio.toml", "data"]


async def test_only_the_session_of_the_link_may_add_chains(face: Face, node: LocalNode, here: Path) -> None:
    state = open_state(msgspec.structs.replace(Settings(), data=str(here / "data")))
    _, other_key = state.create_account("somebody", "PRO", 1000, ("portfolio", "enterprise"))
    _, owner_key = state.create_key(owner_account(state).id, "a key")
    state.close()
    sessions = [await log_in(face.client, face.url, {"key": key}) for key in (other_key, owner_key)]
    refusals: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({"Cookie": face.cookie}, 401),  # what a form of another site could send
        ({"Cookie": face.cookie, HEADER: "1", "Sec-Fetch-Site": "same-site"}, 401),
        ({"Authorization": f"Bearer {owner_key}"}, 403),
        ({"Authorization": f"Bearer {other_key}"}, 403),
        *(({"Cookie": session, HEADER: "1"}, 403) for session in sessions),
    ]
    for headers, status in refusals:
        for name in POSTS:
            assert (await face.post(name, {"rpc": node.url}, headers))[0] == status, (name, headers)
        if status == 403:
            assert await face.start(headers) == (
                200,
                {"allowed": False, "reason": ONLY_OWNER, "settings": "", "chains": [], "nodes": {}},
            )
    assert (await face.start({}))[0] == 401
    assert not (here / "chainfolio.toml").exists()


async def test_a_session_that_another_process_revoked_adds_no_chain(face: Face, node: LocalNode, here: Path) -> None:
    state = open_state(msgspec.structs.replace(Settings(), data=str(here / "data")))
    for key in state.keys(owner_account(state).id):
        state.revoke_key(key.id)
    state.close()
    assert (await face.post("keep", {"rpc": node.url}))[0] in (401, 403)


async def test_a_server_for_others_adds_no_chain(here: Path, node: LocalNode) -> None:
    async with served(here, None) as face:
        assert (await face.start())[1]["reason"] == NO_SETUP
        for name in POSTS:
            assert (await face.post(name, {"rpc": node.url}))[0] == 403


@pytest.mark.parametrize(
    ("rpc", "problem"),
    [
        ("ws://127.0.0.1:1/x", "WebSocket endpoints are not read"),
        ("ftp://127.0.0.1/x", "is not an http:// or https:// address"),
        ("javascript:alert(1)", "is not an http:// or https:// address"),
        ("data:text/html,x", "is not an http:// or https:// address"),
        ("<img src=x onerror=alert(1)>", "is not an http:// or https:// address"),
        ("http://a b", "is not an http:// or https:// address"),
        ("http://127.0.0.1:1/", "127.0.0.1:1"),
        ("http://x.invalid/", "x.invalid"),
        ("env:NO_SUCH_VARIABLE", "the environment variable NO_SUCH_VARIABLE is not set"),
    ],
)
async def test_a_wrong_address_is_a_problem_of_the_report(face: Face, rpc: str, problem: str) -> None:
    report = await face.done("check", rpc=rpc, addresses=[ALICE])
    assert problem in report["problem"]
    assert (report["ok"], report["chain"]) == (False, None)
    for name in POSTS[1:]:
        status, document = await face.post(name, {"rpc": rpc})
        assert status in (400, 502)
        assert problem in document["message"]


@pytest.mark.parametrize("body", [{}, {"rpc": ""}, {"rpc": "x" * 2049}, {"rpc": "x", "more": 1}, {"rpc": 1}, []])
async def test_a_malformed_request_is_refused(face: Face, body: object) -> None:
    for name in POSTS:
        assert (await face.post(name, body))[0] == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]", "2130706433"])
async def test_the_own_port_is_refused_under_every_name(here: Path, host: str) -> None:
    port = free_port()
    async with served(here, here / "chainfolio.toml", port) as face:
        report = await face.done("check", rpc=f"http://{host}:{port}/")
        assert "dashboard's own server" in report["problem"]


Reply = Callable[[web.BaseRequest], Awaitable[web.Response]]


@asynccontextmanager
async def endpoint(reply: Reply) -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """Yield the URL of an endpoint, with a key, and events of an arrived and of an ended request."""
    arrived, departed = asyncio.Event(), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        arrived.set()
        try:
            return await reply(request)
        finally:
            departed.set()

    runner = web.ServerRunner(web.Server(answer, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v2/{SECRET}", arrived, departed
    finally:
        await runner.cleanup()


async def silence(_: web.BaseRequest) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("the request has left before")


def pruned(node: LocalNode, client: ClientSession) -> Reply:
    """Replies of the node, but without the state of any block but the newest."""
    newest = (node.rpc("eth_getBlockByNumber", "latest", False)["hash"], hex(node.height), "latest")

    def refusal(call: dict[str, Any]) -> dict[str, Any] | None:
        at = call["params"][1:2] if call["method"] in ("eth_call", "eth_getBalance") else []
        if not at or (at[0]["blockHash"] if isinstance(at[0], dict) else at[0]) in newest:
            return None
        return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32000, "message": "missing trie node"}}

    async def reply(request: web.BaseRequest) -> web.Response:
        calls = await request.json()
        async with client.post(node.url, json=calls) as answer:
            replies = await answer.json()
        if isinstance(calls, list):
            return web.json_response([refusal(call) or each for call, each in zip(calls, replies, strict=True)])
        return web.json_response(refusal(calls) or replies)

    return reply


@pytest.mark.slow("requests are repeated for seconds", only=["429", "500"])
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
async def test_a_refusing_endpoint_is_reported_without_its_key(
    face: Face, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status)

    async with endpoint(refuse) as (url, *_):
        report = await face.done("check", rpc=url, addresses=[ALICE])
        answers = [
            report,
            *[
                await face.post(name, {"rpc": url, **fields})
                for name, fields in (("portfolio", {"addresses": [ALICE]}), ("preview", {}), ("keep", {"seen": ""}))
            ],
        ]
    assert report["problem"]
    assert report["remedy"]
    assert SECRET not in json.dumps(answers, default=str)
    assert SECRET not in str(face.logs) + caplog.text


async def test_a_hanging_endpoint_is_given_up(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "CHECK_S", 0.2)
    async with endpoint(silence) as (url, _, departed):
        report = await face.done("check", rpc=url)
        await departed.wait()
    assert "no complete answer within" in report["problem"]
    assert report["remedy"]


async def test_a_check_that_the_user_stops_leaves_the_endpoint(face: Face) -> None:
    async with endpoint(silence) as (url, arrived, departed):
        check = asyncio.create_task(face.done("check", rpc=url))
        await arrived.wait()
        check.cancel()
        await departed.wait()


async def test_an_endpoint_without_an_archive_says_so(face: Face, node: LocalNode) -> None:
    async with endpoint(pruned(node, face.client)) as (url, *_):
        report = await face.done("check", rpc=url, addresses=[ALICE])
        assert report["problem"] == ""
        assert report["row"]["oldestState"] == report["row"]["head"] == node.height
        (document,) = await face.done("portfolio", rpc=url, addresses=[ALICE])
        assert document["assetByProtocols"]["wallet"]["chains"]["local"]


async def test_another_chain_and_other_accounts_are_named(face: Face, node: LocalNode) -> None:
    report = await face.done("check", rpc=node.url, chain="polygon")
    assert "serves local, and not polygon" in report["problem"]
    report = await face.done("check", rpc=node.url, addresses=[SOLANA, "vitalik.eth", "0x12", ALICE])
    problems = [each["problem"] for each in report["accounts"]]
    assert "is a Solana address, and no chain of its kind is among: local" in problems[0]
    assert "names are looked up on ethereum" in problems[1]
    assert problems[2]
    assert not problems[3]
    (document,) = await face.done("portfolio", rpc=node.url, addresses=[SOLANA, ALICE])
    assert document["address"] == ALICE
    for addresses in ([], [SOLANA], [f"0x{number:040x}" for number in range(1, 12)]):
        assert (await face.post("portfolio", {"rpc": node.url, "addresses": addresses}))[0] == 400


async def test_a_chain_is_added_below_what_the_file_has(here: Path, node: LocalNode) -> None:
    file = here / "chainfolio.toml"
    before = f'# mine\n[chains.ethereum]\nrpc = ["http://u:p@127.0.0.1:1/{SECRET}"]\n[server]\ncache_s = 5'
    file.write_text(before)
    async with served(here, file) as face:
        preview = await face.done("preview", rpc=f"{node.url}/?{SECRET}")
        assert SECRET not in json.dumps(preview)
        assert "http://127.0.0.1:1/…" in preview["before"]
        assert "[chains.local]" in preview["added"]
        assert SECRET not in json.dumps(await face.done("keep", rpc=f"{node.url}/?{SECRET}", seen=preview["seen"]))
    assert file.read_text().startswith(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = load(file, {})
    assert settings.server == Server(cache_s=5)
    assert [settings.chains[key].endpoints[0].endswith(SECRET) for key in ("ethereum", "local")] == [True, True]
    async with served(here, file) as face:
        status, document = await face.post("preview", {"rpc": node.url})
        assert (status, "local is configured already" in document["message"]) == (409, True)


async def test_a_variable_keeps_the_url_out_of_the_file(
    face: Face, node: LocalNode, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_NODE", f"{node.url}/?{SECRET}")
    assert (await face.done("check", rpc="env:MY_NODE"))["chain"]["key"] == "local"
    await face.done("keep", rpc="env:MY_NODE", seen="")
    text = (here / "chainfolio.toml").read_text()
    assert 'rpc = ["env:MY_NODE"]' in text
    assert SECRET not in text
    assert load(here / "chainfolio.toml").chains["local"].endpoints == [f"{node.url}/?{SECRET}"]


async def test_of_two_tabs_that_keep_one_writes(face: Face, node: LocalNode, here: Path) -> None:
    answers = await asyncio.gather(*(face.post("keep", {"rpc": node.url, "seen": ""}) for _ in range(2)))
    assert sorted(status for status, _ in answers) == [200, 409]
    assert (here / "chainfolio.toml").read_text().count("[chains.local]") == 1


@pytest.mark.parametrize("fault", ["changed", "created", "read-only file", "read-only folder", "inline", "full disk"])
async def test_a_file_that_cannot_be_added_to_stays_as_it_is(
    here: Path, node: LocalNode, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here / "chainfolio.toml"
    text = 'chains = {ethereum = {rpc = ["http://127.0.0.1:1"]}}\n' if fault == "inline" else "# mine\n"
    if fault != "created":
        file.write_text(text)
    async with served(here, file) as face:
        preview = (await face.done("preview", rpc=node.url))["seen"]
        if fault in ("changed", "created"):
            file.write_text(text := "# other\n")
        elif fault.startswith("read-only"):
            (file if fault.endswith("file") else here).chmod(0o555)
        elif fault == "full disk":

            def full(_: int) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(os, "fsync", full)
        status, document = await face.post("keep", {"rpc": node.url, "seen": preview})
        os.chmod(here, 0o755)
        monkeypatch.undo()
        assert (status, bool(document["message"])) == (409, True)
        assert not face.app.restart.is_set()
    assert file.read_text() == text
    assert sorted(os.listdir(here)) == ["chainfolio.toml", "data"]
