"""The engine caches a complete answer of an account for a while, and never one that lacks a chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import Asset, account
from chainfolio.blocks import Block
from chainfolio.chain_results import EndpointHealth
from chainfolio.contracts import Holding, Snapshot, Token
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots import account_cache as module
from chainfolio.errors import Unavailable
from chainfolio.indexer.follow import Status
from chainfolio.indexer.wiring import System
from chainfolio.messages import quoted
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Limits, Settings

ALICE = account("0x" + "a1" * 20)
IDS = {"ethereum": "eip155:1", "base": "eip155:8453"}


@dataclass
class Node:
    """Stands for the snapshotter of a chain: one coin for every account, as long as it answers."""

    chain: str
    failure: Exception | None = None
    requests: list[Sequence[str]] = field(default_factory=list)
    hangs: bool = False
    cancelled: int = 0

    async def take(self, accounts: Sequence[str], *, live: bool = False) -> Snapshot:
        self.requests.append(accounts)
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        if self.failure:
            raise self.failure
        coin = Token(Asset(IDS[self.chain], "slip44", "60"), "ETH", "Ether", 18)
        holdings = tuple(Holding(each, coin, 10**18) for each in accounts)
        return Snapshot(self.chain, Block(7, "0x07", "0x06", 1_760_000_000_000_000), tuple(accounts), holdings, (), ())


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[tuple[Engine, Node, Node]]:
    chains = {key: EvmSettings(rpc=["http://127.0.0.1:1"]) for key in IDS}
    settings = Settings(data=str(tmp_path), chains=chains, limits=Limits(request_s=1))
    system, first, second = System(settings), Node("ethereum"), Node("base")
    yield Engine(system, _snapshotters={"ethereum": first, "base": second}), first, second  # type: ignore[dict-item]
    await system.close()


async def ask(engine: Engine, *, wait: bool = False) -> Portfolio:
    (portfolio,) = await engine.portfolios([ALICE], Options(), wait=wait, wallet_only=False)
    return portfolio


async def test_an_answer_that_lacks_a_chain_says_so_and_is_not_kept(nodes: tuple[Engine, Node, Node]) -> None:
    engine, first, second = nodes
    second.failure = Unavailable("node", "timed out")
    for attempt in (1, 2):
        portfolio = await ask(engine)
        assert (portfolio.completeness, sorted(portfolio.chains)) == ("partial", ["base", "ethereum"])
        assert [issue.reason for issue in portfolio.issues] == ["the chain could not be read: timed out"]
        assert len(first.requests) == attempt, "it was kept"
    second.failure = None
    assert (await ask(engine)).completeness == "complete"


async def test_a_whole_answer_is_kept_and_a_failure_after_it_is_told_only_to_who_wants_it_fresh(
    nodes: tuple[Engine, Node, Node],
) -> None:
    engine, first, second = nodes
    complete = await ask(engine)
    assert (complete.completeness, complete.unpriced_assets) == ("complete", 2)
    assert await ask(engine) == complete
    assert len(first.requests) == 1
    second.failure = Unavailable("node", "timed out")
    engine._accounts._entries[ALICE.address].updated_us = 0
    assert (await ask(engine, wait=True)).completeness == "partial"
    assert (await ask(engine)).networth == complete.networth


async def test_a_chain_that_never_answers_leaves_the_others_time_to(nodes: tuple[Engine, Node, Node]) -> None:
    engine, _, second = nodes
    second.hangs = True
    portfolio = await asyncio.wait_for(ask(engine), 5)
    assert [issue.reason for issue in portfolio.issues] == [
        "the chain could not be read: it could not be read within 0.75 s"
    ]
    assert (portfolio.completeness, second.cancelled) == ("partial", 1)


async def test_chains_that_never_answer_are_an_error_with_a_time_to_come_again(
    nodes: tuple[Engine, Node, Node],
) -> None:
    engine, first, second = nodes
    first.hangs = second.hangs = True
    with pytest.raises(Unavailable) as caught:
        await asyncio.wait_for(ask(engine), 5)
    assert caught.value.retry_after_s


async def test_what_nobody_waits_for_any_more_is_not_read_on(nodes: tuple[Engine, Node, Node]) -> None:
    engine, first, _ = nodes
    first.hangs = True
    callers = [asyncio.create_task(ask(engine)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for caller in callers[:2]:
        caller.cancel()
    await asyncio.sleep(0.05)
    assert (len(first.requests), first.cancelled) == (1, 0), "the third one waits for the read that the three share"
    callers[2].cancel()
    await asyncio.sleep(0.05)
    assert first.cancelled == 1
    assert ALICE.address not in engine._accounts._reads


async def test_only_so_many_accounts_are_read_for_later(
    nodes: tuple[Engine, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BACKGROUND_READS", 2)
    engine, first, _ = nodes
    first.hangs = True
    accounts = [account(f"0x{number:040x}") for number in range(1, 4)]
    assert await engine.sync(accounts[:2])
    with pytest.raises(Unavailable, match="too many"):
        await engine.sync(accounts[2:])
    assert await engine.sync(accounts[:1]) is False, "that one is being read"


async def test_of_what_is_kept_the_oldest_goes_first(
    nodes: tuple[Engine, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ACCOUNTS", 2)
    engine, *_ = nodes
    accounts = [account(f"0x{number:040x}") for number in range(1, 4)]
    for each in accounts:
        await engine.portfolios([each], Options(), wait=True, wallet_only=False)
    assert list(engine._accounts._entries) == [each.address for each in accounts[1:]]


async def test_the_words_of_a_node_reach_the_log_and_no_tenant(
    nodes: tuple[Engine, Node, Node], caplog: pytest.LogCaptureFixture
) -> None:
    engine, _, second = nodes
    second.failure = Unavailable("node", f"it limits us: {quoted('project CANARY at http://10.0.0.5/v3/short77')}")
    (issue,) = (await ask(engine)).issues
    assert issue.reason == "the chain could not be read: it limits us: (in the server's log)"
    assert "CANARY" in caplog.text
    engine.indexing = {"base": Status(problem=str(second.failure))}
    task = engine.supervisor.task("indexing", chain="ethereum")
    task.problem = f"indexing failed: {second.failure}"
    readiness = await engine.readiness()
    assert "CANARY" not in repr(readiness)
    assert "it limits us" in repr(readiness.chains)
    assert "it limits us" in repr(readiness.tasks)


async def test_readiness_names_no_host_of_a_node(nodes: tuple[Engine, Node, Node]) -> None:
    engine, *_ = nodes
    health = EndpointHealth("10.0.0.5:8545", height=7)
    engine.system.chain("base").health = lambda: [health]  # type: ignore[method-assign]
    engine.indexing = {"base": Status(problem="10.0.0.5:8545: timed out")}
    engine.supervisor.task("indexing", chain="base").problem = "indexing failed: 10.0.0.5:8545: timed out"
    readiness = await engine.readiness()
    assert "10.0.0.5" not in repr(readiness)
    (base,) = (each for each in readiness.chains if each.key == "base")
    assert base.endpoints[0].endpoint == "endpoint 1"
    assert "endpoint 1: timed out" in (base.reason or "")
    assert "endpoint 1: timed out" in (readiness.tasks[0].reason or "")


async def test_up_to_when_transactions_are_known_follows_the_index_and_each_new_read(
    nodes: tuple[Engine, Node, Node],
) -> None:
    engine, *_ = nodes
    tail = engine.system.tail

    async def known_us() -> int | None:
        (status,) = await engine.status([ALICE])
        return status.transactions_us

    await ask(engine)
    assert await known_us() is None, "nothing is indexed"
    tail.set_anchor("ethereum", Block(7, "0x07", "0x06", 2_000_000))
    tail.set_anchor("base", Block(9, "0x09", "0x08", 1_000_000))
    (account_status,) = await engine.status([ALICE])
    assert account_status.transactions_us == account_status.portfolio_us
    (unread,) = await engine.status([account("0x" + "b0" * 20)])
    assert (unread.portfolio_us, unread.transactions_us) == (None, 1_000_000), "what all its chains are indexed to"
    before = await known_us()
    assert await engine.sync([ALICE])
    await engine._accounts._reads.results(
        [(ALICE.address, partial(engine._accounts.read, ALICE))]
    )  # the read that has begun
    assert before is not None
    assert (await known_us() or 0) > before
