"""Details of transactions, from the index, from earlier lookups, or from a node.

What a node returned is stored batch by batch. It is valid as long as its block is part of the chain: details of a final
block stay, those of another block are stored with its hash and deleted with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_results import IndexedTransaction
from chainfolio.chains import Chain
from chainfolio.contracts import TransactionDetails
from chainfolio.engine.results import MAX_LOOKUPS
from chainfolio.engine.transactions.activities import Activities, indexed_hashes, indexed_transactions
from chainfolio.errors import NotIndexed, Unavailable
from chainfolio.tables import TRANSACTIONS

if TYPE_CHECKING:
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.portfolio.activity import Activity

BATCH: Final = 250  # transactions that are read, and then stored, together
PENDING: Final = (
    "{pending:,} of the transactions that others sent are not stored yet, and one answer reads {most:,}: those are "
    "stored now, and the same request goes on there"
)


@dataclass(slots=True)
class Lookups:
    """Reads the details of transactions for one answer.

    Attributes:
        most: Maximum number of transactions that are read from nodes; None for any number.
        count: Transactions that were read from nodes so far.
    """

    most: int | None = MAX_LOOKUPS
    count: int = 0

    async def with_details(
        self, source: Snapshotter, history: Activities, activities: Sequence[Activity], *, is_silent: bool
    ) -> list[Activity]:
        """Return the activities with details.

        Details of the accounts' own transactions are in the index. Others are read from the node once, and stored.

        Args:
            is_silent: The node does not answer.

        Raises:
            NotIndexed: The node cannot return them, and they belong into the index.
            MissingCapability: Neither the index nor the node can have them.
            Unavailable: The node does not answer, or more than `most` would be read; those that were read are stored.
        """
        incomplete = [activity for activity in activities if activity.details is None]
        stored = await asyncio.to_thread(_stored, source, incomplete)
        to_read = list({each.tx_hash: each for each in incomplete if each.tx_hash not in stored}.values())
        if to_read:
            _check(source.chain, [activity.height for activity in to_read])
            if is_silent:
                raise Unavailable(
                    source.chain.key, "the node does not answer, and not all of these transactions are stored"
                )
            stored |= await self._read(source, history, to_read)
        return [each if each.details else replace(each, details=stored[each.tx_hash]) for each in activities]

    async def _read(
        self, source: Snapshotter, history: Activities, activities: Sequence[Activity]
    ) -> dict[str, TransactionDetails]:
        """Read and store transactions, batch by batch; return their details by hash.

        Raises:
            Unavailable: More than `most` would be read in this answer; those that were allowed are stored.
        """
        allowed = len(activities) if self.most is None else min(len(activities), max(self.most - self.count, 0))
        details: dict[str, TransactionDetails] = {}
        for start in range(0, allowed, BATCH):
            details |= await _read_batch(source, history, activities[start : min(start + BATCH, allowed)])
        self.count += allowed
        if allowed < len(activities):
            assert self.most is not None, "any number is allowed"
            reason = PENDING.format(pending=len(activities) - allowed, most=self.most)
            raise Unavailable(source.chain.key, reason, retry_after_s=1)
        return details


def _stored(source: Snapshotter, activities: Sequence[Activity]) -> dict[str, TransactionDetails]:
    """Return the details that the index or an earlier lookup has, by hash."""
    key = source.chain.key
    details = indexed_transactions(source.lake, source.tail, key, activities)
    others = source.tail.lookups(key, [each.tx_hash for each in activities if each.tx_hash not in details])
    return details | {each: msgspec.json.decode(blob, type=TransactionDetails) for each, blob in others.items()}


async def _read_batch(
    source: Snapshotter, history: Activities, activities: Sequence[Activity]
) -> Mapping[str, TransactionDetails]:
    """Read transactions from the node, and store them; return their details by hash.

    Those of blocks that may change are stored with the block's hash.
    """
    final = {activity.height for activity in activities} - history.hashes.keys()
    hashes = {**await asyncio.to_thread(indexed_hashes, source.lake, source.chain.key, final), **history.hashes}
    indexed = [
        IndexedTransaction(
            each.tx_hash,
            each.height,
            each.tx_index,
            each.time_us // 1_000_000,
            hashes.get(each.height),
            each.height in final,
        )
        for each in activities
    ]
    details_read = await require_capability(source.chain, Capability.TRANSACTIONS).look_up(indexed)
    blocks = [None if each.final else each.block_hash or "" for each in indexed]
    rows = [
        (each.tx_hash, each.height, block_hash, msgspec.json.encode(details))
        for each, block_hash, details in zip(indexed, blocks, details_read, strict=True)
    ]
    await asyncio.to_thread(source.tail.add_lookups, source.chain.key, rows)
    return {each.tx_hash: details for each, details in zip(indexed, details_read, strict=True)}


def _check(chain: Chain, heights: Sequence[int]) -> None:
    """Raise an error if transactions at these heights may not be read from the node.

    Raises:
        NotIndexed: The node cannot return them, and they belong into the index.
        MissingCapability: Neither the index nor the node can have them.
    """
    if all(each.table is not TRANSACTIONS for each in chain.datasets.values()):
        require_capability(chain, Capability.TRANSACTIONS)
    if Capability.TRANSACTIONS not in chain.capabilities:
        raise NotIndexed(chain.key, "transactions", min(heights), max(heights))
