"""When final blocks move to the lake, which endpoints a follower trusts, and which rows it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.environment import Environment
from chainfolio.indexer import follow
from chainfolio.tables import BLOCKS
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import in_order, index
from tests.chains.subject import FINALITY
from tests.indexer.clock import ManualClock

pytestmark = pytest.mark.node
LOGS = ("transfers", "approvals")


@pytest.fixture
def living() -> Iterator[EvmSubject]:
    with evm(60) as living:
        yield living


async def test_final_blocks_move_when_they_are_many_or_have_waited(
    living: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FINALISE_BLOCKS", 20)
    clock = ManualClock()
    async with index(living, tmp_path, datasets=("blocks",)) as indexed:
        indexed.environment = Environment(clock=clock)
        await indexed.fill_final()
        follower = indexed.follower()

        async def stored_after(details: int, seconds: float) -> int:
            living.mine(details)
            clock.now_s += seconds
            await follower.step()
            return indexed.lake.count(BLOCKS)

        start = indexed.lake.count(BLOCKS)
        assert [await stored_after(1, 1) for _ in range(19)] == [start] * 19
        assert await stored_after(1, 1) == start + 20
        assert await stored_after(3, 1) == start + 20
        assert await stored_after(0, follow.FINALISE_S - 1) == start + 20
        assert await stored_after(0, 1) == start + 23
        assert await stored_after(50, 0) == start + 73
        assert indexed.tail.blocks(indexed.key)[0].height == living.height - FINALITY + 1


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_long_way_to_the_head_does_not_fill_the_tail(
    living: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FINALISE_BLOCKS", 20)
    async with index(living, tmp_path, datasets=("blocks",)) as indexed:
        await indexed.fill_final()
        max_blocks = 0
        put = indexed.tail.put

        def watched(*arguments: object, **named: object) -> None:
            nonlocal max_blocks
            put(*arguments, **named)  # type: ignore[arg-type]
            max_blocks = max(max_blocks, len(indexed.tail.blocks(indexed.key)))

        indexed.tail.put = watched  # type: ignore[method-assign]
        living.mine(500)
        await indexed.follower().step()
        assert max_blocks <= FINALITY + follow.CHUNK + follow.FINALISE_BLOCKS
        assert indexed.rows("blocks") == in_order(living.rows(Span(0, living.height))["blocks"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_head_that_stays_below_ours_is_believed_in_the_end(living: EvmSubject, tmp_path: Path) -> None:
    clock = ManualClock()
    living.fork(0)
    living.mine(3)
    async with index(living, tmp_path) as indexed:
        indexed.environment = Environment(clock=clock)
        follower = indexed.follower()
        await follower.step()
        top = indexed.tail.top(indexed.key)
        assert top is not None
        living.switch()
        for _ in range(4):
            await follower.step()
            assert indexed.tail.top(indexed.key) == top
            clock.now_s += follow.BEHIND_S / 3 - 1
        await follower.step()
        now = indexed.tail.top(indexed.key)
        assert now is not None
        assert now.height == top.height - 3
        assert indexed.rows("blocks") == in_order(living.rows(Span(0, living.height))["blocks"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_only_the_contracts_of_the_settings_are_followed(living: EvmSubject, tmp_path: Path) -> None:
    first, second = living.plain[1:3]
    for contracts in ([first], [first, second]):  # the second one is added between two runs
        async with index(living, tmp_path, contracts=contracts) as indexed:
            await indexed.fill(0, living.height - FINALITY, contracts=contracts)
            for seed in (1, 2):
                await indexed.follower().step()
                living.trade(3, seed)
            await indexed.follower().step()
            plain = living.rows(Span(0, living.height))
            expected = [row for row in plain["transfers"] if row["token"] in (None, *contracts)]
            assert indexed.rows("transfers") == in_order(expected)
            assert indexed.rows("approvals") == in_order([r for r in plain["approvals"] if r["token"] in contracts])
            assert indexed.rows("transactions") == in_order(plain["transactions"])
            for contract in contracts:
                assert indexed.tail.indexed_ranges(indexed.key, "transfers", contract) == Spans(
                    [Span(0, living.height)]
                )
            await indexed.follower().finalise_all()


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_dataset_that_is_added_is_read_for_the_tail_too(living: EvmSubject, tmp_path: Path) -> None:
    async with index(living, tmp_path, datasets=LOGS) as narrow:
        await narrow.fill_final()
        await narrow.follower().step()
    living.mine(30)
    async with index(living, tmp_path) as wide:
        follower = wide.follower()
        await follower.finalise_all()
        await wide.fill_final()
        await follower.step()
        plain = living.rows(Span(0, living.height))
        for table, rows in plain.items():
            assert wide.rows(table) == in_order(rows), table


async def test_a_lake_without_a_block_to_stand_on_is_followed_from_where_it_ends(
    living: EvmSubject, tmp_path: Path
) -> None:
    async with index(living, tmp_path, datasets=("blocks",)) as indexed:
        last = await indexed.fill_final()
        indexed.tail.set_anchor(indexed.key, None)
        await indexed.follower().step()
        assert indexed.tail.blocks(indexed.key)[0].height == last + 1
        assert indexed.rows("blocks") == in_order(living.rows(Span(0, living.height))["blocks"])
