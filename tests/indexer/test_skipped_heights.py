"""A chain that skips heights is back-filled, followed and repaired after a reorganisation like any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_blocks import newest_block_in, times_at
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, DeepReorg, MissingCapability
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.reorg_recovery import recover_reorg
from chainfolio.indexer.rewind import check_anchor
from chainfolio.indexer.work import missing
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.indexer.slots import KEY, SlotChain

SKIPPED = {0, 3, *range(8, 21), 29, 40}
DATASETS = ("blocks",)


class SlotIndex:
    """The chain with a lake and a tail."""

    def __init__(self, folder: Path, last: int = 60) -> None:
        self.chain: Any = SlotChain()
        self.chain.grow(*(height for height in range(last + 1) if height not in SKIPPED))
        self.lake, self.tail = Lake(str(folder / "lake")), Tail(folder / "tail.db")

    async def fill(self) -> None:
        heads = await self.chain.heads()
        work = missing(self.tail, KEY, Span(0, heads.finalized), DATASETS, ())
        progress = Progress(Environment().clock, 1)
        await Collector(self.chain, self.lake, self.tail, Environment(), progress).run(work)

    def follower(self) -> Follower:
        return Follower(self.chain, self.lake, self.tail, Environment(), DATASETS)

    @property
    def heights(self) -> list[int]:
        """Return the heights of the lake and then of the tail."""
        from chainfolio.tables import BLOCKS

        stored = self.lake.window(BLOCKS, KEY, Span(0, 10_000))["height"].to_pylist()
        return [*sorted(stored), *(block.height for block in self.tail.blocks(KEY))]

    @property
    def covered(self) -> Spans:
        return self.tail.indexed_ranges(KEY, "blocks")


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[SlotIndex]:
    slot_index = SlotIndex(tmp_path)
    yield slot_index
    slot_index.tail.close()


async def test_what_is_final_is_filled_and_skipped_heights_count_as_indexed(indexed: SlotIndex) -> None:
    await indexed.fill()
    assert indexed.heights == [height for height in indexed.chain.blocks_by_height if height <= 52]
    assert indexed.covered == Spans([Span(0, 52)])
    anchor = indexed.tail.anchor(KEY)
    assert anchor is not None
    assert anchor.height == 52


async def test_a_final_height_without_a_block_leaves_the_block_below_it_as_the_last(indexed: SlotIndex) -> None:
    indexed.chain.final_behind = 20  # height 40 was skipped
    await indexed.fill()
    anchor = indexed.tail.anchor(KEY)
    assert anchor is not None
    assert anchor.height == 39
    await indexed.follower().step()
    assert indexed.heights == list(indexed.chain.blocks_by_height)
    await check_anchor(indexed.chain, indexed.tail)


async def test_the_head_is_followed_over_long_gaps(indexed: SlotIndex) -> None:
    await indexed.fill()
    await indexed.follower().step()
    assert indexed.heights == list(indexed.chain.blocks_by_height)
    indexed.chain.grow(61, 200, 203)  # a gap of more than one chunk
    await indexed.follower().step()
    assert indexed.heights == list(indexed.chain.blocks_by_height)
    assert indexed.covered == Spans([Span(0, 203)])
    assert indexed.follower()._top() == indexed.chain.blocks_by_height[203]


async def test_a_block_that_becomes_a_skipped_height_is_a_reorganisation(indexed: SlotIndex) -> None:
    await indexed.fill()
    follower = indexed.follower()
    await follower.step()
    indexed.chain.reorganise(58, 59, 62)
    await follower.step()
    assert follower.status.reorgs == 1
    assert indexed.heights == list(indexed.chain.blocks_by_height)
    assert [block.hash for block in indexed.tail.blocks(KEY)][-2:] == ["a'59", "a'62"]


async def test_a_chunk_that_does_not_stand_on_the_one_before_is_refused(indexed: SlotIndex) -> None:
    indexed.chain.blocks_by_height[21] = replace(
        indexed.chain.blocks_by_height[21], parent="0x22"
    )  # behind a gap, and not the child of 7
    with pytest.raises(BadAnswer, match="does not follow the block 7"):
        await indexed.fill()


async def test_a_deep_reorganisation_is_recovered_by_parents_and_not_by_heights(indexed: SlotIndex) -> None:
    await indexed.fill()
    indexed.chain.reorganise(25, 30, 41, 59, 70)
    with pytest.raises(DeepReorg):
        await check_anchor(indexed.chain, indexed.tail)
    assert await recover_reorg(indexed.chain, indexed.lake, indexed.tail) == 25
    await indexed.fill()
    assert indexed.heights == [height for height in indexed.chain.blocks_by_height if height <= 62]


async def test_the_newest_block_of_a_span_is_found_below_skipped_heights(indexed: SlotIndex) -> None:
    assert await newest_block_in(indexed.chain, Span(0, 20)) == indexed.chain.blocks_by_height[7]
    assert await newest_block_in(indexed.chain, Span(9, 20)) is None
    before = indexed.chain.requests
    assert await newest_block_in(indexed.chain, Span(0, 60)) == indexed.chain.blocks_by_height[60]
    assert indexed.chain.requests == before + 1


@pytest.mark.parametrize("capability", Capability)
def test_what_a_chain_lacks_is_one_typed_error_that_names_both(indexed: SlotIndex, capability: Any) -> None:
    with pytest.raises(MissingCapability, match=f"`{capability}` of slots cannot be answered"):
        require_capability(indexed.chain, capability)
    indexed.chain.capabilities = frozenset([capability])
    assert require_capability(indexed.chain, capability) is indexed.chain


async def test_the_time_at_a_skipped_height_is_that_of_the_block_below_it(indexed: SlotIndex) -> None:
    blocks = indexed.chain.blocks_by_height
    assert await times_at(indexed.chain, {0, 7, 15, 29, 60}) == {
        0: 0,
        7: blocks[7].time_us,
        15: blocks[7].time_us,
        29: blocks[28].time_us,
        60: blocks[60].time_us,
    }
