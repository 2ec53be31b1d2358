"""After a chain left its final past, indexing halts visibly, drops only what it must, and then equals a fresh index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import DeepReorg, Unavailable
from chainfolio.indexer.follow import Status
from chainfolio.indexer.metrics import WorkerMetrics
from chainfolio.indexer.reorg_recovery import recover_reorg
from chainfolio.indexer.wiring import System
from chainfolio.indexer.worker import RECOVER_AFTER_S, Worker
from chainfolio.settings import Settings
from chainfolio.tables import BLOCKS
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.http import HttpTransport
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, FETCHED, Index, in_order, index
from tests.chains.subject import FINALITY
from tests.indexer.clock import ManualClock

pytestmark = pytest.mark.node
DEEPER = FINALITY + 20


@pytest.fixture
async def living() -> AsyncIterator[EvmSubject]:
    with evm(110) as living:
        yield living


@pytest.fixture
async def live(living: EvmSubject, tmp_path: Path) -> AsyncIterator[Index]:
    async with index(living, tmp_path / "live") as live:
        await live.fill_final()
        await live.follower().step()
        yield live


def set_settings(live: Index, **settings: Any) -> None:
    live.chain.settings = msgspec.structs.replace(live.chain.settings, **settings)


async def assert_as_from_scratch(live: Index, living: EvmSubject, tmp_path: Path) -> None:
    plain = living.rows(Span(0, living.height))
    for table in FETCHED:
        assert live.rows(table) == in_order(plain[table]), table
    await live.follower().finalise_all()
    await live.materialise()
    async with index(living, tmp_path / "scratch") as scratch:
        await scratch.fill_final()
        await scratch.materialise()
        for table in ("account_transfers", "balances", "allowances"):
            assert live.stored(table) == scratch.stored(table), table


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_only_what_is_gone_is_forgotten_and_the_rest_is_as_from_scratch(
    living: EvmSubject, live: Index, tmp_path: Path
) -> None:
    await live.materialise()
    height = living.height
    living.reorg(DEEPER)
    assert await recover_reorg(live.chain, live.lake, live.tail) == height - DEEPER + 1
    assert [row["height"] for row in live.stored("blocks").to_pylist()] == list(range(height - DEEPER + 1))
    await live.fill_final()
    await live.follower().step()
    await assert_as_from_scratch(live, living, tmp_path)


async def test_the_shared_block_is_found_in_a_few_questions(living: EvmSubject, live: Index) -> None:
    living.reorg(DEEPER)
    living.request_log.forget()
    await recover_reorg(live.chain, live.lake, live.tail)
    assert living.request_log.requests <= 2 + (living.height - FINALITY).bit_length()


async def test_a_past_that_is_there_after_all_costs_nothing(live: Index) -> None:
    before = live.read_all()
    assert await recover_reorg(live.chain, live.lake, live.tail) is None
    assert live.read_all() == before


@pytest.mark.slow("other limits, each on a chain of its own", fast=["settings2"])
@pytest.mark.parametrize("settings", [{"reorg_depth": 0}, {"reorg_depth": 5}, {"reorg_depth": 18}])
async def test_no_more_than_the_operator_allows(living: EvmSubject, live: Index, settings: dict[str, int]) -> None:
    set_settings(live, **settings)
    before, anchor = live.read_all(), live.tail.anchor(live.key)
    living.reorg(DEEPER)  # 20 blocks of what was final
    with pytest.raises(DeepReorg, match=rf"more than reorg_depth \({settings['reorg_depth']}\) blocks are gone"):
        await recover_reorg(live.chain, live.lake, live.tail)
    assert (live.read_all(), live.tail.anchor(live.key)) == (before, anchor)


async def test_exactly_what_the_operator_allows(living: EvmSubject, live: Index) -> None:
    set_settings(live, reorg_depth=20)
    living.reorg(DEEPER)
    assert await recover_reorg(live.chain, live.lake, live.tail) == living.height - DEEPER + 1


async def test_without_the_hashes_of_its_blocks_it_stays_halted(living: EvmSubject, tmp_path: Path) -> None:
    async with index(living, tmp_path, datasets=("transfers",)) as live:
        await live.fill_final()
        before = live.read_all()
        living.reorg(DEEPER)
        with pytest.raises(DeepReorg, match=r"hashes of all its blocks were not kept.*--rewind"):
            await recover_reorg(live.chain, live.lake, live.tail)
        assert live.read_all() == before


def telling(live: Index, *answers: str) -> list[Endpoint]:
    """Have as many endpoints as words say "ours", or something else, about the last final block."""
    anchor = live.tail.anchor(live.key)
    assert anchor is not None
    node = live.chain.node
    endpoints: list[Endpoint] = [
        EvmEndpoint(f"http://{k}.test", HttpTransport(), live.environment) for k, _ in enumerate(answers)
    ]
    node.endpoints += endpoints
    said = [anchor.hash if name == "ours" else f"0x{name}" for name in answers]

    async def hashes(height: int) -> dict[Endpoint, str]:
        assert height == anchor.height
        return dict(zip(endpoints, said, strict=True))

    node.hashes = hashes  # type: ignore[method-assign]
    return endpoints


@pytest.mark.slow("other answers, each on a chain of its own", fast=["words0"])
@pytest.mark.parametrize("answers", [("ours", "theirs"), ("theirs", "others"), ()])
async def test_nothing_is_forgotten_while_endpoints_do_not_agree(live: Index, answers: tuple[str, ...]) -> None:
    telling(live, *answers)
    before = live.read_all()
    with pytest.raises(Unavailable, match="do not agree about final block"):
        await recover_reorg(live.chain, live.lake, live.tail)
    assert live.read_all() == before


async def test_a_majority_that_has_our_past_cordons_who_has_not(live: Index) -> None:
    endpoints = telling(live, "theirs", "ours", "ours")
    before = live.read_all()
    assert await recover_reorg(live.chain, live.lake, live.tail) is None
    assert [endpoint.health.evidence is not None for endpoint in endpoints] == [True, False, False]
    assert live.read_all() == before


# --- a worker, from the outside --------------------------------------------------------------------------------------


@asynccontextmanager
async def working(live: Index, clock: ManualClock) -> AsyncIterator[Worker]:
    """A worker over an index, for the same datasets; its clock stands still until a test moves it."""
    live.chain.settings = msgspec.structs.replace(live.chain.settings, datasets=list(live.datasets))
    system = System(Settings(chains={live.key: live.chain.settings}), Environment(clock=clock))
    system._lake, system._tail, system._chains = live.lake, live.tail, {live.key: live.chain}
    worker = Worker(system)
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.02)


def exported(worker: Worker) -> str:
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(worker))
    return generate_latest(registry).decode()


def test_a_process_that_does_not_index_a_chain_exports_no_head_of_it(tmp_path: Path) -> None:
    system = System(Settings(data=str(tmp_path), chains={"ethereum": EvmSettings(rpc=["http://127.0.0.1:1"])}))
    worker = Worker(system, status={"ethereum": Status()})
    assert 'chain="ethereum"' not in "".join(
        line for line in exported(worker).splitlines() if line.startswith(("chainfolio_head", "chainfolio_indexed"))
    )
    worker.status["ethereum"].head = worker.status["ethereum"].indexed = 7
    assert 'chainfolio_head_block{chain="ethereum"} 7.0' in exported(worker)
    assert 'chainfolio_indexed_block{chain="ethereum"} 7.0' in exported(worker)


class Steps(ManualClock):
    """Sleeps that last until the test ends them; short ones end by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.heals = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == RECOVER_AFTER_S:
            await self.heals.wait()
        else:
            await asyncio.sleep(0.02)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_worker_halts_visibly_and_goes_on_by_itself(
    living: EvmSubject, live: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Steps()
    async with working(live, clock) as worker:
        await wait_until(lambda: worker.status[live.key].indexed == living.height)
        with caplog.at_level(logging.WARNING, "chainfolio.index"):
            living.reorg(DEEPER)
            living.mine(1)
            await wait_until(lambda: worker.status[live.key].halted)
            assert "finalised block" in worker.status[live.key].halted
            assert f'chainfolio_halted{{chain="{live.key}"}} 1.0' in exported(worker)
            clock.heals.set()
            await wait_until(lambda: worker.status[live.key].recovered_reorgs)
            await wait_until(lambda: worker.status[live.key].indexed == living.height)
        status = worker.status[live.key]
        assert (status.halted, status.problem, status.recovered_reorgs) == ("", "", 1)
        text = exported(worker)
        assert f'chainfolio_halted{{chain="{live.key}"}} 0.0' in text
        assert f'chainfolio_healed_total{{chain="{live.key}"}} 1.0' in text
    assert "halted: " in caplog.text
    assert f"indexed again from block {living.height - 1 - DEEPER + 1}" in caplog.text
    assert live.lake.count(BLOCKS, live.key)
    await assert_as_from_scratch(live, living, tmp_path)


async def test_a_worker_that_may_not_heal_stays_halted_with_the_reason(living: EvmSubject, live: Index) -> None:
    set_settings(live, reorg_depth=3)
    clock = Steps()
    clock.heals.set()
    before = live.stored("blocks")
    async with working(live, clock) as worker:
        await wait_until(lambda: worker.status[live.key].indexed == living.height)
        living.reorg(DEEPER)
        living.mine(1)
        await wait_until(lambda: "reorg_depth" in worker.status[live.key].halted)
        assert worker.status[live.key].recovered_reorgs == 0
        assert f'chainfolio_halted{{chain="{live.key}"}} 1.0' in exported(worker)
    assert live.stored("blocks") == before
    assert set(EVERYTHING) == set(live.datasets)
