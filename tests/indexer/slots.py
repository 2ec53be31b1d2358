"""A chain in memory that skips heights, for tests of the indexer. It has blocks, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import ChainInfo, Heads, SpanTables
from chainfolio.chain_settings import ChainSettings
from chainfolio.contracts import Token
from chainfolio.datasets import Dataset
from chainfolio.errors import NoBlock, NodeBehind
from chainfolio.tables import BLOCKS

KEY = "slots"
NATIVE = Token(Asset("slots:1", "slip44", "1"), "SLT", "Slot", 9)


@dataclass
class SlotChain:
    """Heights without a block are absent from `kept`; `branch` names the blocks that are added."""

    final_behind: int = 8
    span: int = 4
    branch: str = "a"
    blocks_by_height: dict[int, Block] = field(default_factory=dict)
    requests: int = 0

    key, kind, caip2 = KEY, "slots", "slots:1"
    datasets = {"blocks": Dataset("blocks", BLOCKS)}  # noqa: RUF012 - a fixed table
    default_datasets = ("blocks",)
    capabilities: frozenset[Capability] = frozenset()
    info = ChainInfo("Slots", 1, NATIVE, "token", 1000)

    @property
    def settings(self) -> ChainSettings:
        """Small spans, so that some of them have no block at all."""
        return ChainSettings(span=self.span, concurrency=3)

    def grow(self, *heights: int) -> None:
        """Blocks at these heights on top, each on the one before."""
        for height in heights:
            parent = max((h for h in self.blocks_by_height if h < height), default=None)
            above = self.blocks_by_height[parent].hash if parent is not None else "-"
            self.blocks_by_height[height] = Block(height, f"{self.branch}{height}", above, height * 1_000_000)

    def reorganise(self, first: int, *heights: int) -> None:
        """Other blocks from a height on."""
        self.branch += "'"
        self.blocks_by_height = {height: block for height, block in self.blocks_by_height.items() if height < first}
        self.grow(*heights)

    async def heads(self) -> Heads:
        """The newest block, and a final height that need not have one."""
        top = max(self.blocks_by_height)
        return Heads(self.blocks_by_height[top], max(0, top - self.final_behind))

    def is_final(self, height: int) -> bool:
        """By the height alone."""
        return height <= max(self.blocks_by_height) - self.final_behind

    async def block(self, height: int) -> Block:
        """One block, or the reason why there is none."""
        if height > max(self.blocks_by_height):
            raise NodeBehind(KEY, f"does not have block {height}")
        if height not in self.blocks_by_height:
            raise NoBlock(KEY, height)
        return self.blocks_by_height[height]

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks of a span; skipped heights have none."""
        self.requests += 1
        return [self.blocks_by_height[height] for height in heights if height in self.blocks_by_height]

    async def collect(self, span: Span, datasets: Sequence[str], *_: Any, **__: Any) -> SpanTables:
        """The blocks of a span, each linked to its parent."""
        blocks = [
            self.blocks_by_height[height]
            for height in range(span.first, span.last + 1)
            if height in self.blocks_by_height
        ]
        rows = [
            {
                "chain": KEY,
                "height": each.height,
                "time": datetime.fromtimestamp(each.height, UTC),
                "hash": each.hash,
                "parent": each.parent,
                "tx_count": 0,
            }
            for each in blocks
        ]
        tables = {"blocks": pa.Table.from_pylist(rows, schema=BLOCKS.schema())}
        return SpanTables(span, tables, blocks[-1] if blocks else None, blocks, is_linked=True)
