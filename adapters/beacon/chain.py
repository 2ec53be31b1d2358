"""A beacon chain as `chainfolio.chains.Chain`: heights are slots, and a missed slot has no block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from chainfolio.adapters.beacon import rows
from chainfolio.adapters.beacon.accounts import NO_ACCOUNTS, NoAccounts
from chainfolio.adapters.beacon.computed import ComputedRewards
from chainfolio.adapters.beacon.datasets import DATASETS, EPOCH_DATASETS
from chainfolio.adapters.beacon.doctor import examine
from chainfolio.adapters.beacon.epochs import SETTLEMENT_DELAY, SettledEpoch, settle_epochs, validators_before
from chainfolio.adapters.beacon.events import Announcements
from chainfolio.adapters.beacon.facts import Facts, read_facts
from chainfolio.adapters.beacon.memo import Memo
from chainfolio.adapters.beacon.node import BeaconNode, Nodes
from chainfolio.adapters.beacon.reader import (
    LARGE_SELECTION,
    LIMITS,
    MIN_CACHED_EPOCHS,
    NOT_SERVED,
    WHOLE_LIMITS,
    Reader,
    gather_all,
    memo_limits,
)
from chainfolio.adapters.beacon.registry import Registry
from chainfolio.adapters.beacon.responses import (
    FAR_FUTURE,
    BlockMessage,
    Checkpoints,
    Header,
    PendingDeposit,
    StateResponse,
    ValidatorState,
)
from chainfolio.adapters.beacon.selection import ValidatorSelector
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.spec import SECOND_US, Spec, read_spec
from chainfolio.adapters.beacon.stakes import stakes
from chainfolio.adapters.beacon.validator_table import Array
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import ChainInfo, EndpointHealth, Heads, SpanTables
from chainfolio.contracts import Holding, Token
from chainfolio.datasets import Dataset
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, NoBlock, NodeBehind, NoQuorum, NotFound, Reorged, SourceError, Unavailable
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult, Value
from chainfolio.transport.http import HttpTransport, WebTransport
from chainfolio.transport.rest import ResourceNotFound
from chainfolio.validators import ADDRESS, SlotClock, Stake, ValidatorNow

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.protocols import InstalledProtocols

SLIP44: Final = 60
KEY_DATASETS: Final = ("deposits", "stake_requests")  # rows name a validator by its public key
GWEI_DECIMALS: Final = 9
CHANGED: Final = "the chain changed while it was read"


class _BrokenLink(Exception):
    """Blocks do not follow each other, or the block before them. `error` is raised to the caller."""

    def __init__(self, error: SourceError) -> None:
        super().__init__()
        self.error = error


def build(
    key: str,
    settings: BeaconSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: WebTransport | None = None,
) -> BeaconChain:
    """Build one chain from its settings and its facts. No request is sent yet."""
    transport = transport or HttpTransport(environment.answers, connections=settings.requests)
    nodes = [
        BeaconNode(
            url,
            transport,
            environment,
            timeout_s=settings.timeout_s,
            concurrency=settings.requests,
            max_rps=settings.max_rps,
        )
        for url in settings.rpc
    ]
    facts = read_facts(key, settings, configs)
    return BeaconChain(key, settings, facts, Nodes(key, nodes, environment, facts.genesis, hedge=settings.hedge))


class BeaconChain:
    """One beacon chain behind its nodes.

    Its methods raise SourceError if no node answers. `announcements` is None until the first wait for one.
    """

    kind = "beacon"
    datasets: Mapping[str, Dataset] = DATASETS
    default_datasets = tuple(name for name in DATASETS if name != "blocks")
    capabilities = frozenset([Capability.HEAD_EVENTS, Capability.VALIDATORS])

    def __init__(self, key: str, settings: BeaconSettings, facts: Facts, nodes: Nodes) -> None:
        self.key, self.settings, self.nodes, self.facts = key, settings, nodes, facts
        self.caip2 = f"beacon:{key}"
        native = Token(Asset(self.caip2, "slip44", str(SLIP44)), "ETH", "Ether", GWEI_DECIMALS)
        self.info = ChainInfo(facts.name or key, facts.chain_id, native, "none", 12_000)
        self._spec: Spec | None = None
        self._final = -1
        self._head: Block | None = None
        self.announcements: Announcements | None = None
        self._large_spans = asyncio.Semaphore(2)
        self._reset()

    @property
    def requests(self) -> int:
        """Number of requests to nodes so far."""
        return self.nodes.requests

    async def spec(self) -> Spec:
        """Return the specification of the network, read on the first call.

        Raises:
            WrongChain: A node is of another network than the facts.
        """
        if self._spec is None:
            spec = await read_spec(self.nodes)
            for node in self.nodes.endpoints:  # all are checked, to report a wrong setting at once
                with suppress(Unavailable):
                    await node.ensure_handshake()
            self._spec = spec
        return self._spec

    # --- blocks ------------------------------------------------------------------------------------------------------

    async def heads(self) -> Heads:
        """Return the newest block and the first slot of the newest final epoch."""
        spec = await self.spec()

        async def read(node: BeaconNode) -> tuple[int, Block]:
            checkpoints = await node.read("/eth/v1/beacon/states/head/finality_checkpoints", Checkpoints)
            head = self._block_of(spec, await node.read("/eth/v1/beacon/headers/head", Header))
            node.health.height, node.health.head_us = head.height, head.time_us
            return checkpoints.finalized.epoch, head

        epoch, head = await self.nodes.with_any(read, kind="heads")
        self._head = head
        self._final = max(self._final, epoch * spec.slots_per_epoch)
        return Heads(head, self._final)

    def is_final(self, height: int) -> bool:
        """Return True if a slot is final according to the last `heads`."""
        return height <= self._final

    def _block_of(self, spec: Spec, header: Header) -> Block:
        message = header.header.message
        return Block(message.slot, header.root.lower(), message.parent_root.lower(), spec.time_us(message.slot))

    async def block(self, height: int) -> Block:
        """Return the block at a slot.

        Raises:
            NoBlock: The slot was missed.
            NodeBehind: The chain has not reached the slot.
            Unavailable: The node's answer is not final or not canonical, although the slot is.
        """
        spec = await self.spec()
        try:
            response = await self.nodes.fetch(f"/eth/v1/beacon/headers/{height}", Header)
        except ResourceNotFound:
            await self._check_reached(height)
            raise NoBlock(self.key, height) from None
        return self._checked_block(spec, height, response)

    def _checked_block(self, spec: Spec, height: int, response: StateResponse[Header]) -> Block:
        block = self._block_of(spec, response.data)
        if block.height != height:
            raise BadAnswer(self.key, f"the header of slot {block.height} in the place of {height}")
        if not response.data.canonical:
            raise Unavailable(self.key, f"the header of slot {height} is not on the node's own chain")
        if self.is_final(height) and response.finalized is False:
            raise Unavailable(self.key, f"the node calls slot {height} not final any more: one of its nodes is behind")
        return block

    async def _check_reached(self, height: int) -> None:
        """Raise NodeBehind if the chain has not reached a slot."""
        head = self._head
        if head is None or height > head.height:
            head = (await self.heads()).latest
        if height > head.height:
            reason = f"slot {height} is not there yet: the newest block is that of slot {head.height}"
            raise NodeBehind(self.key, reason)

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some slots, without missed ones. All errors of `block` but NoBlock are raised."""
        if heights:
            await self._check_reached(max(heights))

        async def read(height: int) -> Block | None:
            try:
                return await self.block(height)
            except NoBlock:
                return None

        return [block for block in await gather_all(read(height) for height in heights) if block is not None]

    async def announced(self, within_s: float) -> bool:
        """Wait for an announcement of a node, at most `within_s` seconds. Return True if there was one."""
        if self.announcements is None:
            spec = await self.spec()
            self.announcements = Announcements(self.nodes, spec.slot_us / SECOND_US)
        return await self.announcements.wait(within_s)

    @property
    def listener_failures(self) -> int:
        """Number of restarts of the listener after an error that is not a node's."""
        return self.announcements.failures if self.announcements is not None else 0

    # --- rows --------------------------------------------------------------------------------------------------------

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Return the rows of datasets in a span of slots.

        Args:
            span: Slots, both ends included.
            datasets: Names of datasets.
            contracts: Indexes, public keys and withdrawal addresses of validators; all if empty.
            before: The block before the span, None if the first link is not checked.
            events: Not used.

        Raises:
            Reorged: The first block does not follow `before`.
            Unavailable: The chain changed meanwhile.
            NoQuorum: Nodes disagree about a final block.
        """
        async with self._large_spans if self._is_large(contracts) else nullcontext():
            return await self._collect(span, datasets, contracts, before)

    def _is_large(self, contracts: Sequence[str]) -> bool:
        """Return True if spans need a whole network or nearly: for its rows, or to compute rewards.

        The first span, which is collected alone, shows this for selected validators.
        """
        sizes = [len(indexes) for indexes in self._memos if indexes is not None]
        is_computed = any(each.is_used for each in self._computed.values())
        return not contracts or max(sizes, default=0) > LARGE_SELECTION or is_computed

    async def _collect(
        self, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
    ) -> SpanTables:
        spec = await self.spec()
        await self._check_reached(span.last)
        memos = self._memos
        try:
            block_memo, messages, blocks = await self._read_span(spec, span, before)
        except SourceError:
            if self._memos is memos:
                raise
            block_memo, messages, blocks = await self._read_span(spec, span, before)  # the cache was cleared
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
        """Return a reader of the selected validators, and the filters of rows that have public keys."""
        needs_keys, pending = bool(set(datasets) & set(KEY_DATASETS)), frozenset[str]()
        if needs_keys and any(len(each) == ADDRESS for each in contracts):
            pending = await self._selector.pending_keys(contracts, span, messages, self._read_queue)
        indexes = await self._selector.indexes(contracts, messages) if contracts else None
        registry = self._registry if self.is_final(span.last) else None
        reader = Reader(self.nodes, spec, indexes, self._memo(indexes, span), block_memo, registry)
        if self.is_final(span.last):
            reader.computed = self._computed.setdefault(indexes is None, reader.computed_rewards())
        keys = await self._selector.keys(indexes, messages) if indexes and needs_keys else frozenset()
        return reader, pending.union(contracts, keys)

    async def _read_span(
        self, spec: Spec, span: Span, before: Block | None
    ) -> tuple[Memo, list[BlockMessage], list[Block]]:
        """Return the cache of blocks, and the blocks of a span twice: as messages, and with their roots."""
        block_memo = self._memo(None, span)
        messages = await Reader(self.nodes, spec, None, block_memo).read_blocks(range(span.first, span.last + 1))
        try:
            return block_memo, messages, await self._link(spec, messages, before)
        except _BrokenLink as broken:
            if self.is_final(span.last):  # final blocks may have been reverted, and the cache has the old ones
                self._reset()
            raise broken.error from None

    async def _read_queue(self) -> tuple[int, Sequence[PendingDeposit] | None]:
        """Return the newest known slot and the deposits that are queued after it, None if no node serves them.

        Before Electra, no deposit is queued for a validator.
        """
        spec, head = await self.spec(), self._head or (await self.heads()).latest
        if not spec.is_at_least("electra", spec.epoch(head.height)):
            return head.height, ()
        try:
            return head.height, await Reader(self.nodes, spec, ()).pending_deposits(head.height)
        except NOT_SERVED:
            return head.height, None

    def _reset(self) -> None:
        """Clear all caches. Running requests still get their results."""
        self._selector, self._registry = ValidatorSelector(self.nodes), Registry(self.nodes)
        self._memos: dict[tuple[int, ...] | None, Memo] = {}
        self._computed: dict[bool, ComputedRewards] = {}  # by whether all validators are selected

    @property
    def _cached_epochs(self) -> int:
        """Number of epochs in and around all spans that are read at once."""
        slots = self._spec.slots_per_epoch if self._spec is not None else 1
        return max(MIN_CACHED_EPOCHS, self.settings.concurrency * (self.settings.span // slots + 2) + SETTLEMENT_DELAY)

    def _memo(self, indexes: tuple[int, ...] | None, span: Span) -> Memo:
        """Return the cache for selected validators, an empty one if the span is not final."""
        if not self.is_final(span.last):  # its blocks may change
            return Memo(LIMITS)
        if indexes not in self._memos:
            while len(self._memos) > 2:
                self._memos.pop(next(key for key in self._memos if key is not None)).close()
            epochs = MIN_CACHED_EPOCHS if len(indexes or ()) > LARGE_SELECTION else self._cached_epochs
            self._memos[indexes] = Memo(WHOLE_LIMITS if indexes is None else memo_limits(epochs))
        return self._memos[indexes]

    async def _slot_of(self, root: str) -> int:
        """Return the slot of a block by its root. The genesis block, which nodes may lack, has slot 0."""
        try:
            return (await self.nodes.read(f"/eth/v1/beacon/headers/{root}", Header)).header.message.slot
        except ResourceNotFound:
            if (await self._genesis_root()) == root.lower():
                return 0
            raise Unavailable(self.key, "the node does not know the parent of a block of its own") from None

    async def _genesis_root(self) -> str | None:
        """Return the root of the genesis block, from the first block after it; None after two empty epochs."""
        reader = Reader(self.nodes, await self.spec(), ())
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
            raise _BrokenLink(Reorged(self.key, before.height, before.hash))
        ends = {messages[-1].slot} | {a.slot for a, b in pairwise(messages) if b.slot > a.slot + 1}
        try:
            headers = dict(zip(sorted(ends), await gather_all(self.block(slot) for slot in sorted(ends)), strict=True))
        except NoBlock as error:  # the block was read a moment ago
            raise _BrokenLink(Unavailable(self.key, f"{CHANGED}: slot {error.height} has no block any more")) from None
        blocks = []
        for i, each in enumerate(messages):
            root = messages[i + 1].parent_root.lower() if i + 1 < len(messages) else headers[each.slot].hash
            header = headers.get(each.slot)
            if header is not None and (header.hash != root or header.parent != each.parent_root.lower()):
                reason = f"the blocks after slot {each.slot} do not follow it: some are missing"
                raise _BrokenLink(Unavailable(self.key, reason))
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
        """Return the tables whose rows are made from blocks alone."""

        def includes_key(pubkey: str, credentials: str) -> bool:
            return not filters or pubkey in filters or f"0x{credentials[26:]}" in filters

        tables = {}
        if "blocks" in datasets:
            tables["blocks"] = rows.blocks(self.key, pairs)
        if "proposals" in datasets:
            tables["proposals"] = rows.proposals(self.key, spec, (each for _, each in pairs), reader.includes)
        if "withdrawals" in datasets:
            tables["withdrawals"] = rows.withdrawals(self.key, spec, pairs, reader.includes)
        if "deposits" in datasets:
            tables["deposits"] = rows.deposits(self.key, spec, pairs, includes_key)
        if "stake_requests" in datasets:
            tables["stake_requests"] = rows.stake_requests(self.key, spec, pairs, includes_key)
        return tables

    async def _epoch_tables(self, reader: Reader, datasets: Sequence[str], slots: Sequence[int]) -> dict[str, pa.Table]:
        """Return the rows of the epochs that blocks at `slots` settle; the first is the block before them."""
        spec = reader.spec
        parts: dict[str, list[pa.Table]] = {name: [] for name in EPOCH_DATASETS if name in datasets}
        epochs = [
            (epoch - SETTLEMENT_DELAY, slot)
            for last, slot in pairwise(slots)
            for epoch in range(max(spec.epoch(last) + 1, SETTLEMENT_DELAY), spec.epoch(slot) + 1)
        ]
        async for settled_epochs in settle_epochs(reader, epochs):
            if "validator_rewards" in parts:
                parts["validator_rewards"].append(rows.rewards(self.key, settled_epochs))
            if "stake_changes" in parts:
                parts["stake_changes"].append(rows.changes(self.key, settled_epochs))
            if "validators" in parts:
                tables = [await self._changed_validators(reader, epoch) for epoch in settled_epochs]
                parts["validators"] += [table for table in tables if table is not None]
            del settled_epochs  # 200 MB for a million validators, which the next epoch needs
        return {name: rows.concatenate(tables, DATASETS[name].table) for name, tables in parts.items()}

    async def _changed_validators(self, reader: Reader, epoch: SettledEpoch) -> pa.Table | None:
        """Return the validators that an epoch changed, all of the first indexed epoch; None if there is none."""
        first = max(0, -(-self.settings.start_block // reader.spec.slots_per_epoch) - SETTLEMENT_DELAY)
        if epoch.number == first:
            selected: Array | slice = slice(None)
        else:
            selected = epoch.at.changed_rows(await validators_before(reader, epoch.number, epoch.at))
        if not len(epoch.at.index[selected]):
            return None
        return rows.validators(self.key, epoch.number, epoch.height, epoch.at, selected)

    async def _check_agreed(self, last: Block | None) -> None:
        """Check the last block of a span again, with all nodes.

        Raises:
            Unavailable: The chain changed while it was read.
            NoQuorum: A node has another final block.
        """
        if last is None:
            return
        if not self.is_final(last.height) and not await self._has_block(last):
            raise Unavailable(self.key, CHANGED)
        for node in self.nodes.endpoints[1:]:
            try:
                root = (await node.read(f"/eth/v1/beacon/headers/{last.height}", Header)).root.lower()
            except (Unavailable, ResourceNotFound):
                continue
            if root != last.hash and self.is_final(last.height):
                raise NoQuorum(self.key, f"{node.name} has another final block at slot {last.height} than the others")

    async def _has_block(self, block: Block) -> bool:
        """Return True if the chain still has a block."""
        try:
            return (await self.block(block.height)).hash == block.hash
        except NoBlock:
            return False

    # --- validators --------------------------------------------------------------------------------------------------

    settled_after = SETTLEMENT_DELAY  # epochs after which the rewards of one are known

    @property
    def execution(self) -> str:
        """Key of the chain to which validators withdraw; empty if unknown."""
        return self.settings.execution or self.facts.execution

    @property
    def shows_stake(self) -> bool:
        """True if portfolios of the execution chain show the stake of the account's validators."""
        return self.settings.stake_in_portfolios

    async def stakes(self, owners: Collection[str], candidates: Collection[str], block: Block) -> Sequence[Stake]:
        """Return the stake of validators by withdrawal address, at a block of the execution chain."""
        return await stakes(Reader(self.nodes, await self.spec(), None), owners, candidates, block)

    async def slot_clock(self) -> SlotClock:
        """Return the clock of slots and epochs."""
        spec = await self.spec()
        return SlotClock(spec.genesis.genesis_time, spec.slot_us // SECOND_US, spec.slots_per_epoch)

    async def validator(self, name: int | str) -> ValidatorNow:
        """Return a validator in the newest state, by its index or its public key.

        Raises:
            NotFound: There is none.
        """
        await self.spec()
        # A list with one id: for an index that does not exist, the request of a single one gives 404 or 400.
        body, path = {"ids": [str(name)]}, "/eth/v1/beacon/states/head/validators"
        states = await self.nodes.read(path, list[ValidatorState], body)
        state = next((each for each in states if name in (each.index, each.validator.pubkey.lower())), None)
        if state is None:
            raise NotFound(f"no validator {name}")
        fields = state.validator
        return ValidatorNow(
            state.index,
            fields.pubkey.lower(),
            state.status,
            fields.slashed,
            state.balance,
            fields.effective_balance,
            fields.withdrawal_credentials.lower(),
            *(
                None if each == FAR_FUTURE else each
                for each in (fields.activation_epoch, fields.exit_epoch, fields.withdrawable_epoch)
            ),
        )

    async def validators_of(self, filters: Sequence[str]) -> tuple[int, ...]:
        """Return the indexes of the validators that filters select now."""
        await self.spec()
        return await self._selector.indexes(filters)

    # --- accounts, which do not exist --------------------------------------------------------------------------------

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return Unknown for every read."""
        return cast(list[Value], [NO_ACCOUNTS] * len(reads))

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return Unknown for every read at every block."""
        return [await self.answer(reads, block) for block, reads in requests]

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> NoAccounts:
        """Return a reader without results."""
        return NoAccounts()

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return no reads."""
        return ()

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[Unknown]]:
        """Return Unknown for every pair."""
        yield from ()
        return [NO_ACCOUNTS] * len(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Return tokens without names: there are none."""
        yield from ()
        return {asset: Token(asset, "", "", None) for asset in assets}

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def probe(self, first: int) -> None:
        """Check that the nodes are of the right network."""
        await self.spec()

    async def examine(self) -> list[dict[str, Any]]:
        """Return a row of `doctor` per node."""
        return [await examine(node) for node in self.nodes.endpoints]

    def health(self) -> list[EndpointHealth]:
        """Return the health of each node."""
        best = self.nodes.best_height
        return [node.health_report(best) for node in self.nodes.endpoints]

    async def close(self) -> None:
        """Stop the listener and all requests, and close connections."""
        if self.announcements is not None:
            await self.announcements.close()
        for memo in self._memos.values():
            memo.close()
        for computed in self._computed.values():
            computed.close()
        await self.nodes.close()
