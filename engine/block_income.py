"""What blocks of the execution chain brought to those who proposed them: priority fees, or what a builder paid.

Who gets the priority fees stands in the block. A builder puts itself there, and pays the proposer with the last
transaction of the block. So a last transaction that the fee recipient sends is such a payment, and the fees are the
builder's. What calls inside transactions give the fee recipient is not counted: it needs traces.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainfolio.amounts import raw_from_bytes
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from chainfolio.tables import BLOCKS, TRANSACTIONS

if TYPE_CHECKING:
    from chainfolio.chains import Chain

MAX_BLOCKS: Final = 512  # that one answer asks for
AT_ONCE: Final = 8
KEPT: Final = 65_536  # blocks whose income is remembered


@dataclass(frozen=True, slots=True)
class Income:
    """What a block brought its proposer, in the smallest unit of the native coin: one of the two is 0. `is_built`:
    somebody else built it, and paid."""

    fees: int
    payment: int
    is_built: bool


@dataclass(slots=True)
class BlockIncome:
    """Reads blocks of one execution chain, each once."""

    chain: Chain
    _known: OrderedDict[str, Income] = field(default_factory=OrderedDict)

    async def of(self, blocks: Mapping[str, int]) -> dict[str, Income]:
        """The income of some blocks, by hash; `blocks` says at what height each stands. A SourceError where one cannot
        be read, BadAnswer where another block stands there."""
        room = asyncio.Semaphore(AT_ONCE)

        async def read(block: str, height: int) -> None:
            async with room:
                self._known[block] = await self._read(block, height)

        try:
            async with asyncio.TaskGroup() as group:
                for block, height in blocks.items():
                    if block not in self._known:
                        group.create_task(read(block, height))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        found = {block: self._known[block] for block in blocks}
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found

    async def _read(self, block: str, height: int) -> Income:
        found = await self.chain.collect(Span(height, height), (BLOCKS.name, TRANSACTIONS.name))
        rows = found.tables[BLOCKS.name].to_pylist()
        if [each["hash"] for each in rows] != [block]:
            raise BadAnswer(self.chain.key, f"another block stands at {height} than the beacon chain carries")
        return income(rows[0], found.tables[TRANSACTIONS.name].to_pylist())


def income(block: Mapping[str, Any], transactions: Sequence[Mapping[str, Any]]) -> Income:
    """What a block brought its proposer, by its row and those of its transactions."""
    builder, base_fee = block["miner"], raw_from_bytes(block["base_fee"]) if block["base_fee"] else 0
    last = max(transactions, key=lambda each: int(each["tx_index"]), default=None)
    if last is not None and last["sender"] == builder and last["recipient"] not in (None, builder):
        paid = raw_from_bytes(last["raw"])
        if paid and last["status"] != 0:
            return Income(0, paid, is_built=True)
    return Income(
        sum(each["gas_used"] * (raw_from_bytes(each["gas_price"]) - base_fee) for each in transactions), 0,
        is_built=False,
    )  # fmt: skip
