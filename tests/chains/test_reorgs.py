"""After any reorganisations at the head, lake and tail together are a from-scratch index of the final chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.errors import DeepReorg, SourceError
from chainfolio.indexer import materialise
from tests.chains.index import AnyIndex, in_order, index
from tests.chains.subject import FINALITY, ChainUnderTest


@pytest.fixture
async def live(living: ChainUnderTest, tmp_path: Path) -> AsyncIterator[AnyIndex]:
    """An index that has just caught up with its chain."""
    async with index(living, tmp_path / "live") as live:
        await live.fill_final()
        await live.follower().step()
        yield live


async def assert_as_from_scratch(indexed: AnyIndex, chain: ChainUnderTest) -> None:
    """No row more, no row less than a plain reading of the chain as it is now."""
    plain = chain.rows(Span(0, chain.height))
    for table in indexed.tables:
        assert indexed.rows(table) == in_order(plain[table]), table
    assert (indexed.tail.top(indexed.key)) == await indexed.chain.block(chain.height)
    for dataset in indexed.datasets:
        assert indexed.tail.indexed_ranges(indexed.key, dataset).covers(Span(0, chain.height))


@pytest.mark.slow("on a chain of its own, whose node is slower", only=["beacon-*", "solana-60", "tron-1"])
@pytest.mark.parametrize(
    "depth", [1, pytest.param(10, marks=pytest.mark.slow("a depth between the other two, on a chain of its own")), 60]
)
async def test_a_reorganisation_leaves_no_trace(living: ChainUnderTest, live: AnyIndex, depth: int) -> None:
    follower = live.follower()
    living.reorg(depth)
    await follower.step()
    assert follower.status.reorgs == 1
    await assert_as_from_scratch(live, living)
    living.trade(5, depth)
    await follower.step()
    await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; other tests replace blocks once")
async def test_one_reorganisation_after_the_other(living: ChainUnderTest, live: AnyIndex) -> None:
    follower = live.follower()
    for depth in (1, 3, 1, 20, 7, 40):
        living.mine(2)
        await follower.step()
        living.reorg(depth)
        await follower.step()
    assert follower.status.reorgs == 6
    await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; other tests replace blocks between runs")
async def test_the_chain_changes_between_back_fill_and_live(living: ChainUnderTest, tmp_path: Path) -> None:
    async with index(living, tmp_path) as live:
        await live.fill_final()
        living.reorg(FINALITY - 1)
        living.mine(3)
        await live.follower().step()
        await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; other tests replace blocks between runs")
async def test_the_chain_changes_while_nobody_follows(living: ChainUnderTest, tmp_path: Path, live: AnyIndex) -> None:
    living.reorg(10)
    living.mine(1)
    async with index(living, tmp_path / "live") as restarted:
        await restarted.follower().step()
        await assert_as_from_scratch(restarted, living)


@pytest.mark.slow("a new chain of each kind; other tests replace a branch once")
async def test_a_branch_that_comes_back(living: ChainUnderTest, tmp_path: Path) -> None:
    living.fork(12)
    async with index(living, tmp_path) as live:
        await live.fill_final()
        follower = live.follower()
        for reorgs in range(4):
            await follower.step()
            assert follower.status.reorgs == reorgs
            await assert_as_from_scratch(live, living)
            living.switch()
        living.mine(1)
        await follower.step()
        await assert_as_from_scratch(live, living)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon", "solana", "tron"])
async def test_final_blocks_go_to_the_lake_and_what_can_still_change_stays(
    living: ChainUnderTest, live: AnyIndex
) -> None:
    before = live.tail.blocks(live.key)
    living.trade(12, 3)
    follower = live.follower()
    await follower.step()
    assert live.tail.blocks(live.key)[0] == before[0], "twelve blocks are too few for a commit"
    await follower.finalise_all()
    tail_blocks, final = live.tail.blocks(live.key), (await live.chain.heads()).finalized
    assert tail_blocks[0].height > final > before[0].height
    assert live.tail.anchor(live.key) == [block for block in before if block.height <= final][-1]
    await assert_as_from_scratch(live, living)
    living.reorg(50)
    await follower.step()
    await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; other tests move blocks to the lake")
async def test_what_moved_to_the_lake_is_in_the_histories(
    living: ChainUnderTest, live: AnyIndex, tmp_path: Path
) -> None:
    """Derived while the blocks were in the tail, and again after they left it: nothing is passed over."""
    await live.materialise()
    follower = live.follower()
    for seed in (1, 2):
        living.trade(10, seed)
        await follower.step()
        await live.materialise()
        await follower.finalise_all()
        await live.materialise()
    async with index(living, tmp_path / "whole") as full_index:
        await full_index.fill_final()
        await full_index.materialise()
        for table in materialise.DERIVED:
            assert live.stored(table) == full_index.stored(table), table


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon", "solana", "tron"])
async def test_a_reorganisation_below_all_that_is_kept_halts_and_loses_nothing(
    living: ChainUnderTest, live: AnyIndex
) -> None:
    follower = live.follower()
    before, tail_blocks = live.read_all(), live.tail.blocks(live.key)
    living.reorg(FINALITY + 6)
    for _ in range(2):
        with pytest.raises(DeepReorg):
            await follower.step()
    assert live.read_all() == before
    assert live.tail.blocks(live.key) == tail_blocks


@pytest.mark.slow("the same follower, with a new chain of another kind", only=["beacon", "solana", "tron"])
async def test_a_follower_that_runs_says_why_it_halted(living: ChainUnderTest, live: AnyIndex) -> None:
    follower = live.follower()
    living.reorg(FINALITY + 6)
    await follower.run()
    assert "finalised block" in follower.status.halted


@pytest.mark.slow("a new chain of each kind; rewinds have faster tests")
async def test_a_halted_chain_is_mended_by_a_rewind(living: ChainUnderTest, live: AnyIndex) -> None:
    from chainfolio.indexer.rewind import rewind

    living.reorg(FINALITY + 6)
    assert rewind(live.lake, live.tail, live.key, 5) == 5
    await live.fill_final()
    await live.follower().step()
    await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; nodes that lag have faster tests")
async def test_a_node_that_falls_behind_moves_nothing_backwards(living: ChainUnderTest, tmp_path: Path) -> None:
    living.fork(0)
    living.mine(5)
    async with index(living, tmp_path) as live:
        follower = live.follower()
        await follower.step()
        top = live.tail.top(live.key)
        living.switch()  # the same blocks, but for the newest five
        await follower.step()
        assert (live.tail.top(live.key), follower.status.reorgs) == (top, 0)
        living.switch()
        living.mine(1)
        await follower.step()
        await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind; other tests replace blocks between reads")
async def test_the_chain_changes_while_it_is_read(living: ChainUnderTest, tmp_path: Path) -> None:
    async with index(living, tmp_path / "counted") as live:
        await live.fill_final()
        living.request_log.forget()
        await live.follower().step()
        requests = living.request_log.requests
    for request_number in range(1, min(requests, 8) + 1, 2):
        async with index(living, tmp_path / str(request_number)) as live:
            await live.fill_final()
            follower = live.follower()
            living.request_log.forget()
            living.request_log.at = {request_number: lambda: living.reorg(40)}
            with suppress(SourceError):
                await follower.step()
            assert living.request_log.at == {}, "a step asks as often as the one before"
            await follower.step()
            await assert_as_from_scratch(live, living)


@pytest.mark.slow("a new chain of each kind, for a rare case")
async def test_a_chain_that_is_younger_than_its_finality(living: ChainUnderTest, tmp_path: Path) -> None:
    """No block was final, so there is no start but the first block."""
    async with index(living, tmp_path) as live:
        follower = live.follower()
        await follower.step()
        living.reorg(9)
        await follower.step()
        await follower.finalise_all()
        await assert_as_from_scratch(live, living)


@pytest.mark.slow("the same follower, with a new chain of another kind", only=["beacon", "solana", "tron"])
async def test_trouble_with_the_node_is_told_and_passes(living: ChainUnderTest, live: AnyIndex) -> None:
    follower, chain = live.follower(), live.chain
    living.mine(2)
    heads = chain.heads

    async def broken() -> object:
        raise SourceError("node", "is on fire")

    chain.heads = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(SourceError):
        await follower.step()
    chain.heads = heads  # type: ignore[method-assign]
    await follower.step()
    await assert_as_from_scratch(live, living)
