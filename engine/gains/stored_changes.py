"""Read changes in transactions from a node, once: those of final blocks are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from chainfolio.capabilities import EventLogReader
from chainfolio.position_changes import EventLog

if TYPE_CHECKING:
    from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
    from chainfolio.storage.tail import Tail

BATCH: Final = 100  # transactions in one request
Change = TypeVar("Change")


async def decoded_logs(
    reader: EventLogReader,
    decode: Callable[[str, Sequence[EventLog]], tuple[Change, ...] | None],
    transactions: Sequence[tuple[str, int]],
) -> list[tuple[Change, ...] | None]:
    """Return the changes in the logs of transactions, in order; None where `decode` returns it."""
    logs = await reader.event_logs(transactions)
    return [decode(tx_hash, each) for (tx_hash, _), each in zip(transactions, logs, strict=True)]


@dataclass(frozen=True, slots=True)
class StoredChanges(Generic[Change]):
    """Reads changes in transactions of one chain, and stores the results.

    Attributes:
        suffix: Follows the hash in the store of looked-up transactions; it changes with the decoder.
        read_batch: Reads the changes in transactions (hash and height), in order; None where they cannot be decoded.
        type: The type of one change.
    """

    tail: Tail
    chain: str
    suffix: str
    read_batch: Callable[[Sequence[tuple[str, int]]], Awaitable[Sequence[tuple[Change, ...] | None]]]
    type: type[Change]

    async def read(self, records: Iterable[TransactionRecord]) -> dict[str, tuple[Change, ...] | None]:
        """Return the changes in some transactions by hash, from the store or from the node.

        None if not decodable. BATCH transactions are requested at a time. Decoded changes of final blocks are
        stored.

        Raises:
            SourceError: The node does not give a transaction.
        """
        heights = {record.hash: record.height for record in records}
        names = {f"{tx_hash}{self.suffix}": tx_hash for tx_hash in heights}
        stored = await asyncio.to_thread(self.tail.lookups, self.chain, names)
        decoder = msgspec.json.Decoder(tuple[self.type, ...])  # type: ignore[name-defined]
        changes: dict[str, tuple[Change, ...] | None] = {
            names[name]: decoder.decode(text) for name, text in stored.items()
        }
        missing = [(tx_hash, height) for tx_hash, height in heights.items() if tx_hash not in changes]
        if not missing:
            return changes
        lowest = self.tail.lowest(self.chain)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            for (tx_hash, _), decoded in zip(batch, await self.read_batch(batch), strict=True):
                changes[tx_hash] = decoded
            final = [each for each in batch if lowest is None or each[1] < lowest.height]
            await asyncio.to_thread(self.tail.add_lookups, self.chain, list(self._rows(final, changes)))
        return changes

    def _rows(
        self, transactions: Iterable[tuple[str, int]], changes: Mapping[str, tuple[Change, ...] | None]
    ) -> Iterable[tuple[str, int, None, bytes]]:
        """Yield the rows of the store for decoded transactions; those that could not be decoded are left out."""
        for tx_hash, height in transactions:
            if (decoded := changes[tx_hash]) is not None:
                yield f"{tx_hash}{self.suffix}", height, None, msgspec.json.encode(decoded)
