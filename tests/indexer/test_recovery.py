"""A run that ends between any two writes is made good by the next one: nothing lost, nothing doubled.

Kills at random moments are in `test_kills.py`. Here the moments come in turn: every third, and with
CHAINFOLIO_TESTS=deep every single one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chainfolio.adapters.evm import events
from chainfolio.adapters.evm.datasets.decoding import decode
from chainfolio.adapters.evm.datasets.logs import rows_of_logs
from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.logs import Logs
from chainfolio.indexer import collect, follow, materialise, reprocess
from chainfolio.indexer.rewind import rewind
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, FETCHED, Index, index
from tests.depth import IS_DEEP
from tests.indexer.dying import Died, Fuse, mortal

pytestmark = pytest.mark.node
DATASETS = (*EVERYTHING, "events")
TABLES = (*FETCHED, *materialise.DERIVED)
LAST = 24
DECODE = "chainfolio.adapters.evm.chain.decode"  # as stored rows are decoded again
EVERY = 1 if IS_DEEP else 7
Run = Callable[[Index], Awaitable[None]]
Known = dict[Any, Any]


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(40) as subject:
        yield subject


@pytest.fixture(scope="module")
def chain_answers() -> Known:
    """Return the chain's answers so far: they are always the same."""
    return {}


def remember(indexed: Index, chain_answers: Known) -> None:
    """Let the chain answer from memory."""
    asked = indexed.chain.collect

    async def collected(span: Any, datasets: Any, contracts: Any = (), before: Any = None, events: Any = ()) -> Any:
        key = (span, tuple(datasets), tuple(contracts), tuple(events))
        if key not in chain_answers:
            chain_answers[key] = await asked(span, datasets, contracts, before, events)
        return chain_answers[key]

    indexed.chain.collect = collected  # type: ignore[method-assign]


async def contents(indexed: Index) -> dict[str, Any]:
    """Return all rows, and the ends of each table's indexed ranges."""
    rows: dict[str, Any] = {table: indexed.rows(table) for table in TABLES}
    return rows | {"open": indexed.tail.open_batches(indexed.key)}


async def every_death(
    subject: EvmSubject,
    chain_answers: Known,
    folder: Path,
    before: Path | None,
    run: Run,
    datasets: Sequence[str] = DATASETS,
) -> int:
    """Die at the first moment, at the second… and run again; in how many ways a run can die."""

    async def run_with(name: str, fuse: Fuse) -> dict[str, Any]:
        if before is not None and not (folder / name).exists():
            shutil.copytree(before, folder / name)
        async with index(subject, folder / name, datasets=datasets, span=5) as indexed:
            remember(indexed, chain_answers)
            for store in (indexed.lake, indexed.tail):
                mortal(store, fuse)
            await run(indexed)
            return await contents(indexed)

    unbroken = await run_with("unbroken", Fuse(-1))
    for moment in range(0, 1_000, EVERY):
        died = True
        with suppress(Died):
            await run_with("broken", Fuse(moment))
            died = False
        if not died:
            return moment  # more than there are, by less than EVERY
        assert await run_with("broken", Fuse(-1)) == unbroken, f"after a death at moment {moment}"
        shutil.rmtree(folder / "broken")
    raise AssertionError("a run has an end")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "BATCH_ROWS", 150)
    monkeypatch.setattr(materialise, "WINDOW_ROWS", 150)
    monkeypatch.setattr(follow, "MOVE_BLOCKS", 12)


@pytest.mark.slow("dies at very many moments of a run")
@pytest.mark.usefixtures("small_batches")
async def test_a_back_fill_may_die_at_any_moment(subject: EvmSubject, chain_answers: Known, tmp_path: Path) -> None:
    async def run(indexed: Index) -> None:
        await indexed.fill(5, 12, ["transfers", "approvals"], contracts=subject.plain[1:3])
        await indexed.fill(0, LAST)

    assert await every_death(subject, chain_answers, tmp_path, None, run) >= 20


@pytest.mark.slow("dies at very many moments of a run")
@pytest.mark.usefixtures("small_batches")
async def test_deriving_may_die_at_any_moment(subject: EvmSubject, chain_answers: Known, tmp_path: Path) -> None:
    async with index(subject, tmp_path / "before", datasets=DATASETS, span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(5, 12, ["transfers"], contracts=subject.plain[1:2])
        await indexed.materialise()
        await indexed.fill(0, LAST)

    async def run(indexed: Index) -> None:
        await indexed.materialise()

    assert await every_death(subject, chain_answers, tmp_path, tmp_path / "before", run) >= 8


@pytest.mark.usefixtures("small_batches")
async def test_a_move_to_the_lake_may_die_at_any_moment(
    subject: EvmSubject, chain_answers: Known, tmp_path: Path
) -> None:
    datasets = ("blocks", "transfers")
    async with index(subject, tmp_path / "before", datasets=datasets, span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(0, 10)
        await indexed.follower().step()

    async def run(indexed: Index) -> None:
        follower = indexed.follower()
        follower.recover()
        follower.finalise(LAST + 10)
        materialise.materialise(indexed.lake, indexed.tail, indexed.key, ["account_transfers"])
        await follower.step()

    assert await every_death(subject, chain_answers, tmp_path, tmp_path / "before", run, datasets) >= 12


async def test_following_may_die_at_any_moment(subject: EvmSubject, chain_answers: Known, tmp_path: Path) -> None:
    """By contract, too: there blocks and their indexed ranges are two writes."""

    async def run(indexed: Index) -> None:
        indexed.chain.settings = subject.chain(contracts=subject.plain[1:3]).settings
        await indexed.fill(0, 10, contracts=subject.plain[1:3])
        await indexed.follower().step()

    assert await every_death(subject, chain_answers, tmp_path, None, run) >= 10


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_decoding_again_may_die_at_any_moment(subject: EvmSubject, chain_answers: Known, tmp_path: Path) -> None:
    async with index(subject, tmp_path / "before", datasets=DATASETS, span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(0, LAST)
        await indexed.materialise()

    async def run(indexed: Index) -> None:
        await asyncio.to_thread(reprocess.reprocess, indexed.chain, indexed.lake)
        materialise.rebuild_history(indexed.lake, indexed.tail, indexed.key, "account_transfers")

    assert await every_death(subject, chain_answers, tmp_path, tmp_path / "before", run) >= 3


async def test_a_rewind_may_die_at_any_moment(subject: EvmSubject, chain_answers: Known, tmp_path: Path) -> None:
    async with index(subject, tmp_path / "before", datasets=("transfers", "approvals"), span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(0, LAST)
        materialise.materialise(indexed.lake, indexed.tail, indexed.key, ["account_transfers"])

    async def run(indexed: Index) -> None:
        rewind(indexed.lake, indexed.tail, indexed.key, 15)
        await indexed.fill(0, LAST)
        materialise.materialise(indexed.lake, indexed.tail, indexed.key, ["account_transfers"])

    assert (
        await every_death(subject, chain_answers, tmp_path, tmp_path / "before", run, ("transfers", "approvals")) >= 8
    )


async def test_a_rewind_that_died_is_finished_by_any_run(
    subject: EvmSubject, chain_answers: Known, tmp_path: Path
) -> None:
    for moment in range(1, 6):
        async with index(subject, tmp_path / str(moment), datasets=DATASETS, span=5) as indexed:
            remember(indexed, chain_answers)
            await indexed.fill(0, LAST)
            unbroken = indexed.read_all()
            fuse = Fuse(moment)
            for store in (indexed.lake, indexed.tail):
                mortal(store, fuse)
            with suppress(Died):
                rewind(indexed.lake, indexed.tail, indexed.key, 15)
            fuse.writes_left = -1
            await indexed.fill(0, 14)
            await indexed.fill(0, LAST)
            assert indexed.read_all() == unbroken, moment


async def test_a_log_that_changes_its_table_is_neither_lost_nor_doubled(
    subject: EvmSubject, chain_answers: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that grows stricter gives rows back to `logs`; the one that was before takes them again."""
    async with index(subject, tmp_path, datasets=DATASETS, span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(0, LAST)
        before = indexed.read_all()
        transfers, token = before["transfers"], subject.plain[1]
        token_rows = [row for row in transfers if row["token"] == token]
        with monkeypatch.context() as patch:
            patch.setattr(DECODE, partial(_stricter, token))
            reprocess.reprocess(indexed.chain, indexed.lake)
        assert token_rows
        assert indexed.rows("transfers") == [row for row in transfers if row["token"] != token]
        assert len(indexed.rows("logs")) == len(before["logs"]) + len(token_rows)
        reprocess.reprocess(indexed.chain, indexed.lake)
        assert indexed.read_all() == before


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_log_on_its_way_to_another_table_outlives_any_death(
    subject: EvmSubject, chain_answers: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of the four writes of `reprocess` a log may lie in two tables, and never in none."""
    async with index(subject, tmp_path, datasets=DATASETS, span=5) as indexed:
        remember(indexed, chain_answers)
        await indexed.fill(0, LAST)
        before = indexed.read_all()
        fuse = Fuse(-1)
        mortal(indexed.lake, fuse)

        def reprocess_until(moment: int) -> dict[str, Any]:
            fuse.writes_left = moment
            with pytest.raises(Died):
                reprocess.reprocess(indexed.chain, indexed.lake)
            fuse.writes_left = -1
            reprocess.reprocess(indexed.chain, indexed.lake)
            return indexed.read_all()

        for moment in (1, 2, 3):
            with monkeypatch.context() as patch:
                patch.setattr(DECODE, partial(_stricter, subject.plain[1]))
                stricter = reprocess_until(moment)
            assert len(stricter["transfers"]) < len(before["transfers"])
            assert sum(map(len, stricter.values())) == sum(map(len, before.values()))
            assert reprocess_until(moment) == before


def _stricter(token: str, facts: Facts, logs: Logs, datasets: Sequence[str]) -> dict[str, pa.Table]:
    """Decode everything but one token's transfers, which stay raw."""
    is_moved = (logs.address == np.frombuffer(token.encode(), np.uint8)).all(axis=1)
    is_moved &= logs.of(events.TRANSFER)
    tables = decode(facts, logs.take(np.flatnonzero(~is_moved)), datasets)
    raw = rows_of_logs(logs.take(np.flatnonzero(is_moved)), facts.key)
    tables["logs"] = pa.concat_tables([tables["logs"], raw]) if "logs" in tables else raw
    return tables
