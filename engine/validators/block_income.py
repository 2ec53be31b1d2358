"""Income of block proposers on the execution chain: priority fees, or the payment of a builder.

The block names the recipient of the priority fees. A builder names itself, and pays the proposer with the last
transaction of the block: a last transaction sent by the fee recipient is such a payment, and the fees are the
builder's. Calls inside transactions that pay the fee recipient are not counted: they need traces.
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

MAX_BLOCKS: Final = 512  # per response
CONCURRENCY: Final = 8
MAX_CACHED_BLOCKS: Final = 65_536
RETRY_AFTER_S: Final = 60.0  # enough for a node that lags

log = logging.getLogger("chainfolio.engine")


@dataclass(frozen=True, slots=True)
class Income:
    """The proposer's income from a block in wei: `fees` or `payment` is 0.

    `is_built` is True if a builder made the block and paid for it.
    """

    fees: int
    payment: int
    is_built: bool


@dataclass(slots=True)
class BlockIncome:
    """Reads the income of blocks of one execution chain, each block once.

    A block that cannot be read is not tried again for `RETRY_AFTER_S`: a node is asked several times for a block that
    it lacks, which takes seconds.
    """

    chain: Chain
    clock: Clock
    _incomes: OrderedDict[str, Income] = field(default_factory=OrderedDict)
    _retry_at_s: OrderedDict[str, float] = field(default_factory=OrderedDict)  # the time of the next attempt, by block

    async def of(self, blocks: Mapping[str, int]) -> dict[str, Income]:
        """Return the income of the blocks that can be read, by hash.

        Args:
            blocks: The height of each block by its hash.

        Returns:
            No entry for unreadable blocks, which are not read again for a while. Reading stops after a batch without a
            readable block.
        """
        now_s = self.clock.monotonic_s()
        unread = [
            block for block in blocks if block not in self._incomes and self._retry_at_s.get(block, now_s) <= now_s
        ]
        for start in range(0, len(unread), CONCURRENCY):
            batch = unread[start : start + CONCURRENCY]
            errors = await asyncio.gather(*(self._try_read(block, blocks[block]) for block in batch))
            if all(errors):
                self._postpone(unread[start + CONCURRENCY :])
                break
        incomes = {block: self._incomes[block] for block in blocks if block in self._incomes}
        while len(self._incomes) > MAX_CACHED_BLOCKS:
            self._incomes.popitem(last=False)
        return incomes

    async def _try_read(self, block: str, height: int) -> SourceError | None:
        """Read and cache the income of a block; if it cannot be read, log, postpone and return the error."""
        try:
            self._incomes[block] = await self._read(block, height)
        except SourceError as error:
            log.warning("what the block at %d of %s brought is not known: %s", height, self.chain.key, error.message)
            self._postpone([block])
            return error
        self._retry_at_s.pop(block, None)
        return None

    def _postpone(self, blocks: Sequence[str]) -> None:
        """Mark blocks as unreadable for `RETRY_AFTER_S`; the oldest marks go above MAX_CACHED_BLOCKS."""
        retry_at_s = self.clock.monotonic_s() + RETRY_AFTER_S
        for block in blocks:
            self._retry_at_s.pop(block, None)  # keeps the oldest first
            self._retry_at_s[block] = retry_at_s
        while len(self._retry_at_s) > MAX_CACHED_BLOCKS:
            self._retry_at_s.popitem(last=False)

    async def _read(self, block: str, height: int) -> Income:
        """Read the income of one block by its hash; BadAnswer if another block has its height."""
        collected = await self.chain.collect(Span(height, height), (BLOCKS.name, TRANSACTIONS.name))
        rows = collected.tables[BLOCKS.name].to_pylist()
        if [each["hash"] for each in rows] != [block]:
            raise BadAnswer(self.chain.key, f"another block stands at {height} than the beacon chain carries")
        return income(rows[0], collected.tables[TRANSACTIONS.name].to_pylist())


def income(block: Mapping[str, Any], transactions: Sequence[Mapping[str, Any]]) -> Income:
    """Compute the proposer's income in wei from the row of a block and those of its transactions.

    If the builder sends coins in the last transaction, this payment is the income; else it is the sum of the tips.
    """
    builder, base_fee = block["miner"], raw_from_bytes(block["base_fee"]) if block["base_fee"] else 0
    last = max(transactions, key=lambda each: int(each["tx_index"]), default=None)
    if last is not None and last["sender"] == builder and last["recipient"] not in (None, builder):
        payment = raw_from_bytes(last["raw"])
        if payment and last["status"] != 0:
            return Income(0, payment, is_built=True)
    return Income(
        sum(each["gas_used"] * (raw_from_bytes(each["gas_price"]) - base_fee) for each in transactions),
        0,
        is_built=False,
    )
