"""What blocks of the execution chain brought to those who proposed them: priority fees, or what a builder paid.

Who gets the priority fees stands in the block. A builder puts itself there, and pays the proposer with the last
transaction of the block. So a last transaction that the fee recipient sends is such a payment, and the fees are the
builder's. What calls inside transactions give the fee recipient is not counted: it needs traces.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainfolio.amounts import raw_from_bytes
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.tables import BLOCKS, TRANSACTIONS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.environment import Clock

MAX_BLOCKS: Final = 512  # that one answer asks for
AT_ONCE: Final = 8
KEPT: Final = 65_536  # blocks that are remembered
REFUSED_S: Final = 60.0  # a node that is late has the block by then

log = logging.getLogger("chainfolio.engine")


@dataclass(frozen=True, slots=True)
class Income:
    """What a block brought its proposer, in the smallest unit of the native coin: one of the two is 0. `is_built`:
    somebody else built it, and paid."""

    fees: int
    payment: int
    is_built: bool


@dataclass(slots=True)
class BlockIncome:
    """Reads blocks of one execution chain, each once. A block that cannot be read is left alone for REFUSED_S: nodes
    are asked several times for a block that they lack, which takes seconds."""

    chain: Chain
    clock: Clock
    _known: OrderedDict[str, Income] = field(default_factory=OrderedDict)
    _refused_s: OrderedDict[str, float] = field(default_factory=OrderedDict)  # when a block is asked for again

    async def of(self, blocks: Mapping[str, int]) -> dict[str, Income]:
        """Return the income of those blocks that can be read, by hash; `blocks` has the height of each by its hash. If
        nothing of AT_ONCE blocks can be read, the others are not asked for."""
        now_s = self.clock.monotonic_s()
        unread = [block for block in blocks if block not in self._known and self._refused_s.get(block, now_s) <= now_s]
        for start in range(0, len(unread), AT_ONCE):
            some = unread[start : start + AT_ONCE]
            errors = await asyncio.gather(*(self._learn(block, blocks[block]) for block in some))
            if all(errors):
                self._refuse(unread[start + AT_ONCE :])
                break
        found = {block: self._known[block] for block in blocks if block in self._known}
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found

    async def _learn(self, block: str, height: int) -> SourceError | None:
        """Remember the income of a block, or that it cannot be read; return the reason in that case."""
        try:
            self._known[block] = await self._read(block, height)
        except SourceError as error:
            log.warning("what the block at %d of %s brought is not known: %s", height, self.chain.key, error.message)
            self._refuse([block])
            return error
        self._refused_s.pop(block, None)
        return None

    def _refuse(self, blocks: Sequence[str]) -> None:
        again_s = self.clock.monotonic_s() + REFUSED_S
        for block in blocks:
            self._refused_s.pop(block, None)  # so that the oldest come first
            self._refused_s[block] = again_s
        while len(self._refused_s) > KEPT:
            self._refused_s.popitem(last=False)

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
        sum(each["gas_used"] * (raw_from_bytes(each["gas_price"]) - base_fee) for each in transactions),
        0,
        is_built=False,
    )
