"""While the node is down, histories are answered from stored rows, with their age and without waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainfolio.api.app import make_app
from chainfolio.api.serve import listening
from chainfolio.assets import account
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.cli.main import main
from chainfolio.engine import stored_heads
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.errors import NotIndexed, SourceError, Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.settings_file import load
from chainfolio.storage.tail import Tail
from chainfolio.transport.http_endpoint import identity
from tests.api.fakes import KEY as API_KEY
from tests.api.fakes import FakeKeys
from tests.api.sessions import client_session
from tests.chains.evm import KEY, EvmSubject, evm
from tests.cli.conftest import Run

BLOCKS = 120
pytestmark = pytest.mark.node


@dataclass(frozen=True)
class Dead:
    """The settings of a chain whose node is gone, its wallet, and what commands answered before."""

    config: Path
    late: Path
    wallet: str
    newest: int
    transactions: dict[str, Any]
    approvals: dict[str, Any]


def answered(*words: str) -> Any:
    with redirect_stdout(StringIO()) as output:
        assert main([*words, "--json"]) == 0
    return json.loads(output.getvalue())


def settings(folder: Path, subject: EvmSubject, extra: str = "") -> Path:
    folder.mkdir()
    path = folder / "chainfolio.toml"
    chain = f'[chains.{KEY}]\nrpc = ["{subject.node.url}"]\nfacts = "{folder}/facts.toml"\n{extra}'
    (folder / "facts.toml").write_text(subject.facts(16).read_text())
    path.write_text(f'data = "{folder}/data"\n{chain}\n')
    return path


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dead]:
    folder = tmp_path_factory.mktemp("dead")
    with evm(BLOCKS) as subject:
        config, late = settings(folder / "whole", subject), settings(folder / "late", subject)
        wallet = subject.deployment.accounts["alice"]
        answered("index", KEY, "--config", str(config))
        answered("index", KEY, "--from", "60", "--config", str(late))
        transactions = answered("transactions", wallet, "--limit", "250", "--config", str(config))
        approvals = answered("approvals", wallet, "--config", str(config))
        tail = Tail(folder / "whole" / "data" / "tail.db")
        top = tail.top(KEY) or tail.anchor(KEY)
        tail.drop_answers(identity(subject.node.url))  # they expire after a minute
        tail.close()
        assert top is not None
        subject.node.stop()
        yield Dead(config, late, wallet, top.height, transactions, approvals)


@asynccontextmanager
async def engine_of(config: Path) -> AsyncIterator[Engine]:
    system = System(load(config))
    yield Engine(system)
    await system.close()


MOVED = ("hash", "blockNumber", "timestamp", "from", "to", "type", "fees")


def moves(page: dict[str, Any]) -> list[Any]:
    """Return the movements of listed assets in transactions, without prices and gains."""
    return [
        [each[name] for name in MOVED]
        + [[(asset["contract"], asset["balance"]) for asset in each[side]] for side in ("assetsIn", "assetsOut")]
        for each in page["transactions"]
        if each["type"] != "SPAM"
    ]


def test_transactions_of_a_dead_node_are_those_that_are_stored(run: Run, dead: Dead) -> None:
    ran = run("transactions", dead.wallet, "--limit", "250", "--json", "--config", str(dead.config))
    assert ran.code == 0
    page, spam = ran.json, {each["hash"] for each in dead.transactions["transactions"] if each["type"] == "SPAM"}
    page["transactions"] = [each for each in page["transactions"] if each["hash"] not in spam]
    assert moves(page) == moves(dead.transactions)
    assert len(moves(page)) > 20
    assert page["completeness"] == "partial"
    (age,) = [issue for issue in page["issues"] if issue["subject"] == "node"]
    assert f"this is what is stored up to block {dead.newest} of 20" in age["reason"]
    prices_before = {
        (each["hash"], asset["contract"]): asset["price"]
        for each in dead.transactions["transactions"]
        for asset in (*each["assetsIn"], *each["assetsOut"])
    }
    prices = [
        (prices_before[each["hash"], asset["contract"]], asset["price"])
        for each in page["transactions"]
        for asset in (*each["assetsIn"], *each["assetsOut"])
    ]
    assert all(now in (before, "N/A") for before, now in prices), "a stored price or none"
    assert len(prices) > 20


def test_approvals_of_a_dead_node_are_those_that_are_stored_and_what_is_left_is_unknown(run: Run, dead: Dead) -> None:
    ran = run("approvals", dead.wallet, "--json", "--config", str(dead.config))
    assert ran.code == 0
    before = {(each["token"]["contract"], each["spender"]) for each in dead.approvals["approvals"]}
    assert before <= {(each["token"]["contract"], each["spender"]) for each in ran.json["approvals"]}
    unknown = ("allowance", "balance", "valueAtRisk")
    assert {each[name] for each in ran.json["approvals"] for name in unknown} == {None}
    assert {each["unlimited"] for each in ran.json["approvals"]} == {False}
    assert [issue["subject"] for issue in ran.json["issues"]] == ["allowances", "node"]
    assert dead.approvals["issues"] == []
    assert "the node does not answer" in run("approvals", dead.wallet, "--config", str(dead.config)).out
    assert "the node does not answer" in run("approvals", dead.wallet, "--csv", "--config", str(dead.config)).err


async def test_the_api_answers_stored_histories_while_the_node_is_dead(dead: Dead) -> None:
    async with engine_of(dead.config) as engine:
        system = engine.system
        app = make_app(engine, FakeKeys(), system.settings, system.environment)
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with listening(app, "127.0.0.1", 0, drain_s=1) as port, client_session(headers=headers) as client:

            async def get_page(path: str) -> tuple[int, Any]:
                async with client.get(f"http://127.0.0.1:{port}/v1{path}") as answer:
                    return answer.status, await answer.json()

            status, page = await get_page(f"/transactions?addresses={dead.wallet}&limit=10&offset=0")
            assert (status, len(page["transactions"]), page["completeness"]) == (200, 10, "partial")
            status, page = await get_page(f"/approvals/{KEY}?addresses={dead.wallet}&include=allowance&limit=1")
            assert (status, len(page["items"])) == (200, 1)
            assert [issue["subject"] for issue in page["issues"]] == ["allowance", "node"]
            assert page["items"][0].keys().isdisjoint({"allowance", "asset"})
            assert "unpricedAllowances" not in page
            status, page = await get_page(
                f"/approvals/{KEY}?addresses={dead.wallet}&limit=1&cursor={page['cursor']}&include=allowance"
            )
            assert status == 200


async def test_pages_above_what_is_not_indexed_are_answered_and_those_below_refused(dead: Dead) -> None:
    async with engine_of(dead.late) as engine:
        wallet = [account(dead.wallet)]
        page = (await engine.transactions(wallet, TransactionFilter(5, 0))).document
        assert [each.hash for each in page.transactions] == [
            each["hash"] for each in dead.transactions["transactions"][:5]
        ]
        with pytest.raises(NotIndexed):
            await engine.transactions(wallet, TransactionFilter(250, 0))
        with pytest.raises(NotIndexed):
            await engine.transactions(wallet, TransactionFilter(5, 0, newest_first=False))


async def test_no_gains_are_computed_from_a_history_that_may_be_old(dead: Dead) -> None:
    async with engine_of(dead.config) as engine:
        with pytest.raises(Unavailable):
            await pnl(engine, [account(dead.wallet)], PnlRequest("fifo", networks=(KEY,)))
        page = (await engine.transactions([account(dead.wallet)], TransactionFilter(5, 0))).document
        assert any(issue.reason == f"gains are not known: the node of {KEY} does not answer" for issue in page.issues)
        assert {each.closed_pnl for each in page.transactions} == {"N/A"}


# --- how long requests wait -----------------------------------------------------------------------------------------


class StalledChain:
    """A chain whose node answers when the test lets it."""

    key = KEY

    def __init__(self) -> None:
        self.count, self.answer = 0, asyncio.get_running_loop().create_future()

    async def heads(self) -> Heads:
        self.count += 1
        result: Heads = await asyncio.shield(self.answer)
        return result


@pytest.fixture
async def silent() -> StalledChain:
    return StalledChain()


def reader(top: Block | None) -> StoredHeads:
    tail = SimpleNamespace(top=lambda key: top, anchor=lambda key: None)
    return StoredHeads(SimpleNamespace(tail=tail))


STORED, NEWER = Block(7, "0x7", "0x6", 7_000_000), Block(9, "0x9", "0x8", 9_000_000)


async def test_a_silent_node_is_waited_for_once_and_asked_once_at_a_time(
    silent: StalledChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_heads, "HEAD_WAIT_S", 0.01)
    heads = reader(STORED)
    first = await heads.latest(silent)  # type: ignore[arg-type]
    assert (first.block, heads.is_silent(KEY)) == (STORED, True)
    assert first.issue is not None
    assert first.issue.reason.endswith("up to block 7 of 1970-01-01T00:00:07Z")
    monkeypatch.setattr(stored_heads, "HEAD_WAIT_S", None)  # to wait now is to wait for ever
    assert [(await heads.latest(silent)).block for _ in range(3)] == [STORED] * 3  # type: ignore[arg-type]
    assert silent.count == 1
    silent.answer.set_result(Heads(NEWER, 8))
    await heads._probes[KEY]
    assert not heads.is_silent(KEY)
    assert (await heads.latest(silent)) == stored_heads.StoredHead(NEWER)  # type: ignore[arg-type]


async def test_an_error_of_the_node_is_raised_if_nothing_is_stored(silent: StalledChain) -> None:
    silent.answer.set_exception(Unavailable("node", "down"))
    with pytest.raises(SourceError, match="down"):
        await reader(None).latest(silent)  # type: ignore[arg-type]
    assert (await reader(STORED).latest(silent)).block == STORED  # type: ignore[arg-type]


async def test_a_bug_is_no_silent_node(silent: StalledChain) -> None:
    silent.answer.set_exception(RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        await reader(STORED).latest(silent)  # type: ignore[arg-type]
