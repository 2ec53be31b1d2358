"""Collect the rows of spans of slots: those of blocks, and those of the epochs that the blocks settle."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from chainfolio.adapters.beacon import rows
from chainfolio.adapters.beacon.block_responses import BlockMessage
from chainfolio.adapters.beacon.computed import ComputedRewards
from chainfolio.adapters.beacon.datasets import DATASETS, EPOCH_DATASETS
from chainfolio.adapters.beacon.epochs import SETTLEMENT_DELAY, SettledEpoch, settle_epochs, validators_before
from chainfolio.adapters.beacon.memo import LARGE_SELECTION, LIMITS, MIN_CACHED_EPOCHS, WHOLE_LIMITS, Memo, memo_limits
from chainfolio.adapters.beacon.reader import NOT_SERVED, Reader, gather_all
from chainfolio.adapters.beacon.registry import Registry
from chainfolio.adapters.beacon.responses import (
    Header,
    PendingDeposit,
)
from chainfolio.adapters.beacon.selection import ValidatorSelector
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.slots import Slots
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import Array
from chainfolio.blocks import Block, Span
from chainfolio.chain_results import SpanTables
from chainfolio.errors import HistoryUnavailable, NoBlock, NoQuorum, Reorged, SourceError, Unavailable
from chainfolio.transport.rest import ResourceNotFound
from chainfolio.validators import ADDRESS

if TYPE_CHECKING:
    import pyarrow as pa


KEY_DATASETS: Final = ("deposits", "stake_requests")  # rows name a validator by its public key
CHANGED: Final = "the chain changed while it was read"
MAX_MISSED: Final = 256  # slots after a span without a block, in which the next block is looked for


class _BrokenLink(Exception):
    """Blocks do not follow each other, or the block before them. `error` is raised to the caller."""

    def __init__(self, error: SourceError) -> None:
        super().__init__()
        self.error = error


class Collector:
    """Collects rows for the selected validators, and caches what spans that are read at once share.

    Attributes:
        selector: Finds the validators that filters select.
    """

    def __init__(self, slots: Slots, settings: BeaconSettings) -> None:
        self._slots, self._settings = slots, settings
        self._key, self._nodes = slots.key, slots.nodes
        self._large_spans = asyncio.Semaphore(2)
        self.reset()

    def close(self) -> None:
        """Stop all requests."""
        for memo in self._memos.values():
            memo.close()
        for computed in self._computed.values():
            computed.close()

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
    ) -> SpanTables:
        """Return the rows of datasets in a span of slots.

        Args:
            span: Slots, both ends included.
            datasets: Names of datasets.
            contracts: Indexes, public keys and withdrawal addresses of validators; all if empty.
            before: The block before the span, None if the first link is not checked.

        Raises:
            Reorged: The first block does not follow `before`.
            Unavailable: The chain changed meanwhile.
            NoQuorum: Nodes disagree about a final block.
        """
        async with self._large_spans if self._is_large(contracts) else nullcontext():
            return await self._collect(span, datasets, contracts, before)

    def _is_large(self, contracts: Sequence[str]) -> bool:
        """Return True if spans may need all validators or nearly, so that few are to be collected at once.

        So it is without `contracts`, if a selection in the cache has more than LARGE_SELECTION validators, or if
        rewards were computed before. The first span, which is collected alone, shows the latter two.
        """
        sizes = [len(indexes) for indexes in self._memos if indexes is not None]
        is_computed = any(each.is_used for each in self._computed.values())
        return not contracts or max(sizes, default=0) > LARGE_SELECTION or is_computed

    async def _collect(
        self, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Collect the rows and blocks of a span that the chain has reached; all blocks may be missed.

        A read of blocks that fails while the cache is cleared is repeated. At the end endpoints must agree on the last
        block.
        """
        spec = await self._slots.spec()
        await self._slots.check_reached(span.last)
        memos = self._memos
        try:
            block_memo, messages, blocks = await self._read_span(spec, span, before)
        except SourceError:
            if self._memos is memos:
                raise
            block_memo, messages, blocks = await self._read_span(spec, span, before)  # the cache was cleared
        if before is None:
            await self._check_start(spec, span, messages)
        reader, filters = await self._select(spec, span, datasets, contracts, messages, block_memo)
        pairs = list(zip(blocks, messages, strict=True))
        tables = self._block_tables(spec, datasets, pairs, reader, filters)
        if messages and set(datasets) & set(EPOCH_DATASETS):
            last = before.height if before is not None else await self._slot_of(messages[0].parent_root)
            tables |= await self._epoch_tables(reader, datasets, [last, *(each.slot for each in messages)])
        await self._check_agreed(blocks[-1] if blocks else None)
        event_count = sum(len(table) for name, table in tables.items() if name != "blocks")
        return SpanTables(span, tables, blocks[-1] if blocks else None, blocks, event_count, 0, True)

    async def _select(
        self,
        spec: Spec,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str],
        messages: Sequence[BlockMessage],
        block_memo: Memo,
    ) -> tuple[Reader, frozenset[str]]:
        """Return a reader of the selected validators, and the filters of rows that have public keys.

        All validators are read without `contracts`. The filters are `contracts`, public keys of the selected
        validators, and keys with a pending deposit for a selected address.
        """
        needs_keys, pending = bool(set(datasets) & set(KEY_DATASETS)), frozenset[str]()
        if needs_keys and any(len(each) == ADDRESS for each in contracts):
            pending = await self.selector.pending_keys(contracts, span, messages, self._read_queue)
        indexes = await self.selector.indexes(contracts, messages) if contracts else None
        registry = self._registry if self._slots.is_final(span.last) else None
        reader = Reader(self._nodes, spec, indexes, self._memo(spec, indexes, span), block_memo, registry)
        if self._slots.is_final(span.last):
            reader.computed = self._computed.setdefault(indexes is None, reader.computed_rewards())
        keys = await self.selector.keys(indexes, messages) if indexes and needs_keys else frozenset()
        return reader, pending.union(contracts, keys)

    async def _read_span(
        self, spec: Spec, span: Span, before: Block | None
    ) -> tuple[Memo, list[BlockMessage], list[Block]]:
        """Return the cache of blocks, and the blocks of a span twice: as messages, and with their roots.

        If final blocks do not link, the cache is cleared. Raises the error of `_link` without its `_BrokenLink`.
        """
        block_memo = self._memo(spec, None, span)
        messages = await Reader(self._nodes, spec, None, block_memo).read_blocks(range(span.first, span.last + 1))
        try:
            return block_memo, messages, await self._link(spec, messages, before)
        except _BrokenLink as broken:
            if self._slots.is_final(span.last):  # final blocks may have been reverted, and the cache has the old ones
                self.reset()
            raise broken.error from None

    async def _read_queue(self) -> tuple[int, Sequence[PendingDeposit] | None]:
        """Return the newest known slot and the deposits that are queued after it, None if no node serves them.

        Before Electra, no deposit is queued for a validator.
        """
        spec, head = await self._slots.spec(), self._slots.head or (await self._slots.heads()).latest
        if not spec.is_at_least("electra", spec.epoch(head.height)):
            return head.height, ()
        try:
            return head.height, await Reader(self._nodes, spec, ()).pending_deposits(head.height)
        except NOT_SERVED:
            return head.height, None

    def reset(self) -> None:
        """Clear all caches. Running requests still get their results."""
        self.selector, self._registry = ValidatorSelector(self._nodes), Registry(self._nodes)
        self._memos: dict[tuple[int, ...] | None, Memo] = {}
        self._computed: dict[bool, ComputedRewards] = {}  # by whether all validators are selected

    def _cached_epochs(self, spec: Spec) -> int:
        """Number of epochs in and around all spans that are read at once."""
        slots = spec.slots_per_epoch
        return max(
            MIN_CACHED_EPOCHS, self._settings.concurrency * (self._settings.span // slots + 2) + SETTLEMENT_DELAY
        )

    def _memo(self, spec: Spec, indexes: tuple[int, ...] | None, span: Span) -> Memo:
        """Return the cache for selected validators (None: all), an unshared one if the span is not final.

        Of the caches for selections, the oldest are closed.
        """
        if not self._slots.is_final(span.last):  # its blocks may change
            return Memo(LIMITS)
        if indexes not in self._memos:
            while len(self._memos) > 2:
                self._memos.pop(next(key for key in self._memos if key is not None)).close()
            epochs = MIN_CACHED_EPOCHS if len(indexes or ()) > LARGE_SELECTION else self._cached_epochs(spec)
            self._memos[indexes] = Memo(WHOLE_LIMITS if indexes is None else memo_limits(epochs))
        return self._memos[indexes]

    async def _check_start(self, spec: Spec, span: Span, messages: Sequence[BlockMessage]) -> None:
        """Check that the first block from the start of a span on follows a block before it.

        Nodes answer for a block that they dropped as for a missed slot.

        Raises:
            HistoryUnavailable: The nodes lack blocks of the span.
        """
        if messages and messages[0].slot == span.first:
            return
        first = messages[0] if messages else await self._next_block(spec, span.last + 1)
        if first is None:
            return
        try:
            parent = await self._nodes.read(f"/eth/v1/beacon/headers/{first.parent_root}", Header)
            is_lost = parent.header.message.slot >= max(span.first, 1)  # nodes may lack the genesis block
        except ResourceNotFound:
            is_lost = (await self._genesis_root()) != first.parent_root.lower()
        if is_lost:
            reason = f"the nodes do not have the parent of the block at slot {first.slot}"
            raise HistoryUnavailable(self._key, span.first, reason)

    async def _next_block(self, spec: Spec, slot: int) -> BlockMessage | None:
        """Return the first block from a slot on; None if the chain has none yet.

        Raises:
            HistoryUnavailable: There is none in MAX_MISSED slots.
        """
        reader, head = Reader(self._nodes, spec, ()), self._slots.head or (await self._slots.heads()).latest
        for each in range(slot, min(head.height, slot + MAX_MISSED) + 1):
            if (block := await reader.block(each)) is not None:
                return block
        if slot + MAX_MISSED < head.height:
            reason = f"no node has a block in the {MAX_MISSED:,} slots from {slot} on"
            raise HistoryUnavailable(self._key, slot, reason)
        return None

    async def _slot_of(self, root: str) -> int:
        """Return the slot of a block by its root; 0 for the genesis block, which nodes may lack.

        Raises Unavailable if the node does not know the block.
        """
        try:
            return (await self._nodes.read(f"/eth/v1/beacon/headers/{root}", Header)).header.message.slot
        except ResourceNotFound:
            if (await self._genesis_root()) == root.lower():
                return 0
            raise Unavailable(self._key, "the node does not know the parent of a block of its own") from None

    async def _genesis_root(self) -> str | None:
        """Return the root of the genesis block, from the first block after it; None after two empty epochs."""
        reader = Reader(self._nodes, await self._slots.spec(), ())
        for slot in range(1, 2 * reader.spec.slots_per_epoch):
            if (block := await reader.block(slot)) is not None:
                return block.parent_root.lower()
        return None

    async def _link(self, spec: Spec, messages: Sequence[BlockMessage], before: Block | None) -> list[Block]:
        """Return blocks with their roots, which the next block names.

        Headers are read for the last block and those before a missed slot: a node that lost a block must not look like
        a chain that missed it.

        Raises:
            _BrokenLink: A block does not follow the one before it.
        """
        if not messages:
            return []
        if before is not None and messages[0].parent_root.lower() != before.hash:
            raise _BrokenLink(Reorged(self._key, before.height, before.hash))
        ends = {messages[-1].slot} | {a.slot for a, b in pairwise(messages) if b.slot > a.slot + 1}
        try:
            headers = dict(
                zip(sorted(ends), await gather_all(self._slots.block(slot) for slot in sorted(ends)), strict=True)
            )
        except NoBlock as error:  # the block was read a moment ago
            raise _BrokenLink(Unavailable(self._key, f"{CHANGED}: slot {error.height} has no block any more")) from None
        blocks = []
        for i, each in enumerate(messages):
            root = messages[i + 1].parent_root.lower() if i + 1 < len(messages) else headers[each.slot].hash
            header = headers.get(each.slot)
            if header is not None and (header.hash != root or header.parent != each.parent_root.lower()):
                reason = f"the blocks after slot {each.slot} do not follow it: some are missing"
                raise _BrokenLink(Unavailable(self._key, reason))
            blocks.append(Block(each.slot, root, each.parent_root.lower(), spec.time_us(each.slot)))
        return blocks

    def _block_tables(
        self,
        spec: Spec,
        datasets: Sequence[str],
        pairs: Sequence[tuple[Block, BlockMessage]],
        reader: Reader,
        filters: Collection[str],
    ) -> dict[str, pa.Table]:
        """Return the tables whose rows are made from blocks alone, those among `datasets`.

        Deposits and requests are included by key or withdrawal address, all of them without `filters`.
        """

        def includes_key(pubkey: str, credentials: str) -> bool:
            return not filters or pubkey in filters or f"0x{credentials[26:]}" in filters

        tables = {}
        if "blocks" in datasets:
            tables["blocks"] = rows.blocks(self._key, pairs)
        if "proposals" in datasets:
            tables["proposals"] = rows.proposals(self._key, spec, (each for _, each in pairs), reader.includes)
        if "withdrawals" in datasets:
            tables["withdrawals"] = rows.withdrawals(self._key, spec, pairs, reader.includes)
        if "deposits" in datasets:
            tables["deposits"] = rows.deposits(self._key, spec, pairs, includes_key)
        if "stake_requests" in datasets:
            tables["stake_requests"] = rows.stake_requests(self._key, spec, pairs, includes_key)
        return tables

    async def _epoch_tables(self, reader: Reader, datasets: Sequence[str], slots: Sequence[int]) -> dict[str, pa.Table]:
        """Return the rows of the epochs that blocks at `slots` settle; the first is the block before them.

        An epoch is settled by the first block that is SETTLEMENT_DELAY epochs later. There is a table, perhaps empty,
        for each of the epoch datasets in `datasets`.
        """
        spec = reader.spec
        parts: dict[str, list[pa.Table]] = {name: [] for name in EPOCH_DATASETS if name in datasets}
        epochs = [
            (epoch - SETTLEMENT_DELAY, slot)
            for last, slot in pairwise(slots)
            for epoch in range(max(spec.epoch(last) + 1, SETTLEMENT_DELAY), spec.epoch(slot) + 1)
        ]
        async for settled_epochs in settle_epochs(reader, epochs):
            if "validator_rewards" in parts:
                parts["validator_rewards"].append(rows.rewards(self._key, settled_epochs))
            if "stake_changes" in parts:
                parts["stake_changes"].append(rows.changes(self._key, settled_epochs))
            if "validators" in parts:
                tables = [await self._changed_validators(reader, epoch) for epoch in settled_epochs]
                parts["validators"] += [table for table in tables if table is not None]
            del settled_epochs  # 200 MB for a million validators, which the next epoch needs
        return {name: rows.concatenate(tables, DATASETS[name].table) for name, tables in parts.items()}

    async def _changed_validators(self, reader: Reader, epoch: SettledEpoch) -> pa.Table | None:
        """Return the validators that an epoch changed, all of the first indexed epoch; None if there is none."""
        first = max(0, -(-self._settings.start_block // reader.spec.slots_per_epoch) - SETTLEMENT_DELAY)
        if epoch.number == first:
            selected: Array | slice = slice(None)
        else:
            selected = epoch.at.changed_rows(await validators_before(reader, epoch.number, epoch.at))
        if not len(epoch.at.index[selected]):
            return None
        return rows.validator_rows(self._key, epoch.number, epoch.height, epoch.at, selected)

    async def _check_agreed(self, last: Block | None) -> None:
        """Check the last block of a span again, with all nodes; None is not checked.

        Nodes that do not answer or lack the block are ignored.

        Raises:
            Unavailable: The chain changed while it was read.
            NoQuorum: A node has another final block.
        """
        if last is None:
            return
        if not self._slots.is_final(last.height) and not await self._has_block(last):
            raise Unavailable(self._key, CHANGED)
        for node in self._nodes.endpoints[1:]:
            try:
                root = (await node.read(f"/eth/v1/beacon/headers/{last.height}", Header)).root.lower()
            except (Unavailable, ResourceNotFound):
                continue
            if root != last.hash and self._slots.is_final(last.height):
                raise NoQuorum(self._key, f"{node.name} has another final block at slot {last.height} than the others")

    async def _has_block(self, block: Block) -> bool:
        """Return True if the chain still has a block."""
        try:
            return (await self._slots.block(block.height)).hash == block.hash
        except NoBlock:
            return False
