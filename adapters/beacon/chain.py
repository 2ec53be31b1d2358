"""A beacon chain as `chainfolio.chains.Chain`: slots are its heights, and a missed one has no block."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.adapters.beacon import rows
from chainfolio.adapters.beacon.accounts import NONE, NoAccounts
from chainfolio.adapters.beacon.answers import (
    FAR_FUTURE,
    BlockMessage,
    Checkpoints,
    Header,
    PendingDeposit,
    Told,
    ValidatorState,
)
from chainfolio.adapters.beacon.chosen import Chosen
from chainfolio.adapters.beacon.computed import Computed
from chainfolio.adapters.beacon.datasets import DATASETS, OF_EPOCHS
from chainfolio.adapters.beacon.doctor import examined
from chainfolio.adapters.beacon.epochs import SETTLED_AFTER, Settled, before, settled_in_turn
from chainfolio.adapters.beacon.events import Announcements
from chainfolio.adapters.beacon.memo import Memo
from chainfolio.adapters.beacon.node import BeaconNode, Nodes
from chainfolio.adapters.beacon.reader import (
    LIMITS,
    MANY,
    NOT_TOLD,
    TWO_SPANS,
    WHOLE_LIMITS,
    Reader,
    gathered,
    limits_of,
)
from chainfolio.adapters.beacon.registry import Registry
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.spec import SECOND_US, Spec
from chainfolio.adapters.beacon.spec import read as read_spec
from chainfolio.adapters.beacon.stakes import stakes
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, ChainInfo, EndpointHealth, Heads, SpanTables
from chainfolio.contracts import Holding, Token
from chainfolio.datasets import Dataset
from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    BadSettings,
    NoBlock,
    NodeBehind,
    NoQuorum,
    NotFound,
    Reorged,
    SourceError,
    Unavailable,
)
from chainfolio.plans import Plan
from chainfolio.reads import ReadResult
from chainfolio.transport.http import HttpTransport, WebTransport
from chainfolio.transport.rest import Absent
from chainfolio.validators import ADDRESS, SlotClock, Stake, ValidatorNow

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.protocols import InstalledProtocols

SLIP44: Final = 60
BY_KEY: Final = ("deposits", "stake_requests")  # their rows name a validator by its public key
GWEI_DECIMALS: Final = 9
CHANGED: Final = "the chain changed while it was read"


class Facts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One beacon chain as its file describes it. `genesis` is its validators' root: empty, any network is taken.
    `execution` is the key of the chain to which validators withdraw."""

    key: str
    kind: str = "beacon"
    chain_id: int = 0
    name: str = ""
    genesis: str = ""
    execution: str = ""


class _Torn(Exception):
    """Blocks that do not follow each other, or the one before them; `found` is what is said of it."""

    def __init__(self, found: SourceError) -> None:
        super().__init__()
        self.found = found


def facts_of(key: str, settings: BeaconSettings, configs: Path) -> Facts:
    """The facts of a chain; those of no network where it has no file."""
    path = Path(settings.facts) if settings.facts else configs / "chains" / f"{key}.toml"
    if not path.exists() and not settings.facts:
        return Facts(key, name=key)
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Facts)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(str(path), f"these are no facts of a beacon chain: {error}") from None


def build(
    key: str,
    settings: BeaconSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: WebTransport | None = None,
) -> BeaconChain:
    """One chain, from its settings and its facts. Nothing is asked yet."""
    way = transport or HttpTransport(environment.answers, connections=settings.requests)
    nodes = [
        BeaconNode(
            url, way, environment, timeout_s=settings.timeout_s, concurrency=settings.requests, max_rps=settings.max_rps
        )
        for url in settings.rpc
    ]
    facts = facts_of(key, settings, configs)
    return BeaconChain(key, settings, facts, Nodes(key, nodes, environment, facts.genesis, hedge=settings.hedge))


class BeaconChain:
    """One beacon chain behind its nodes."""

    kind = "beacon"
    datasets: Mapping[str, Dataset] = DATASETS
    default_datasets = tuple(name for name in DATASETS if name != "blocks")
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, key: str, settings: BeaconSettings, facts: Facts, nodes: Nodes) -> None:
        self.key, self.settings, self.nodes, self.facts = key, settings, nodes, facts
        self.caip2 = f"beacon:{key}"
        native = Token(Asset(self.caip2, "slip44", str(SLIP44)), "ETH", "Ether", GWEI_DECIMALS)
        self.info = ChainInfo(facts.name or key, facts.chain_id, native, "none", 12_000)
        self._spec: Spec | None = None
        self._final = -1
        self._head: Block | None = None
        self.announcements: Announcements | None = None
        self._two_spans = asyncio.Semaphore(2)
        self._forget()

    @property
    def requests(self) -> int:
        """Requests to nodes so far."""
        return self.nodes.requests

    async def spec(self) -> Spec:
        """What the network is like, as its node says; WrongChain where it is another one than the facts name."""
        if self._spec is None:
            spec = await read_spec(self.nodes)
            for node in self.nodes.endpoints:  # all of them: a mistake in the settings shows at once
                with suppress(Unavailable):
                    await node.greet()
            self._spec = spec
        return self._spec

    # --- blocks ------------------------------------------------------------------------------------------------------

    async def heads(self) -> Heads:
        """The newest block, and the last slot of the last final epoch's first slot."""
        spec = await self.spec()

        async def read(node: BeaconNode) -> tuple[int, Block]:
            final = await node.data("/eth/v1/beacon/states/head/finality_checkpoints", Checkpoints)
            head = self._block_of(spec, await node.data("/eth/v1/beacon/headers/head", Header))
            node.health.height, node.health.head_us = head.height, head.time_us
            return final.finalized.epoch, head

        epoch, head = await self.nodes.with_any(read, kind="heads")
        self._head = head
        self._final = max(self._final, epoch * spec.slots)
        return Heads(head, self._final)

    def is_final(self, height: int) -> bool:
        """Whether what lies at a slot cannot change any more."""
        return height <= self._final

    def _block_of(self, spec: Spec, header: Header) -> Block:
        message = header.header.message
        return Block(message.slot, header.root.lower(), message.parent_root.lower(), spec.time_us(message.slot))

    async def block(self, height: int) -> Block:
        """The block at a slot."""
        spec = await self.spec()
        try:
            found = await self.nodes.told(f"/eth/v1/beacon/headers/{height}", Header)
        except Absent:
            await self._check_reached(height)
            raise NoBlock(self.key, height) from None
        return self._checked(spec, height, found)

    def _checked(self, spec: Spec, height: int, found: Told[Header]) -> Block:
        block = self._block_of(spec, found.data)
        if block.height != height:
            raise BadAnswer(self.key, f"the header of slot {block.height} in the place of {height}")
        if not found.data.canonical:
            raise Unavailable(self.key, f"the header of slot {height} is not on the node's own chain")
        if self.is_final(height) and found.finalized is False:
            raise Unavailable(self.key, f"the node calls slot {height} not final any more: one of its nodes is behind")
        return block

    async def _check_reached(self, height: int) -> None:
        """NodeBehind where the chain is not that far."""
        head = self._head
        if head is None or height > head.height:
            head = (await self.heads()).latest
        if height > head.height:
            raise NodeBehind(
                self.key, f"slot {height} is not there yet: the newest block is that of slot {head.height}"
            )

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """The blocks at some slots."""
        if heights:
            await self._check_reached(max(heights))

        async def one(height: int) -> Block | None:
            try:
                return await self.block(height)
            except NoBlock:
                return None

        return [block for block in await gathered(one(height) for height in heights) if block is not None]

    async def announced(self, within_s: float) -> bool:
        """Wait until a node announces something, at most as long as that; whether one did."""
        if self.announcements is None:
            spec = await self.spec()
            self.announcements = Announcements(self.nodes, spec.slot_us / SECOND_US)
        return await self.announcements.wait(within_s)

    @property
    def listener_failures(self) -> int:
        """How often listening ended by an error that is no node's, and was started again."""
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
        """The rows of some datasets in a span of slots. `contracts` are the validators that they are wanted of."""
        async with self._two_spans if self._reads_much(contracts) else nullcontext():
            return await self._collected(span, datasets, contracts, before)

    def _reads_much(self, contracts: Sequence[str]) -> bool:
        """Whether spans hold a whole network, or nearly: that of which they are, or that by which they compute what
        nodes do not say. The first span, which goes alone, shows it of chosen validators."""
        sizes = [len(indexes) for indexes in self._memos if indexes is not None]
        return not contracts or max(sizes, default=0) > MANY or any(each.is_used for each in self._computed.values())

    async def _collected(
        self, span: Span, datasets: Sequence[str], contracts: Sequence[str], before: Block | None
    ) -> SpanTables:
        spec = await self.spec()
        await self._check_reached(span.last)
        known = self._memos
        try:
            blocks, messages, linked = await self._chain_of(spec, span, before)
        except SourceError:
            if self._memos is known:
                raise
            blocks, messages, linked = await self._chain_of(spec, span, before)  # what was remembered is forgotten
        by_key, waiting = bool(set(datasets) & set(BY_KEY)), frozenset[str]()
        if by_key and any(len(each) == ADDRESS for each in contracts):
            waiting = await self._chosen.waiting(contracts, span, messages, self._queue)
        indexes = await self._chosen.indexes(contracts, messages) if contracts else None
        registry = self._registry if self.is_final(span.last) else None
        reader = Reader(self.nodes, spec, indexes, self._memo(indexes, span), blocks, registry)
        if self.is_final(span.last):
            reader.computed = self._computed.setdefault(indexes is None, reader.computing())
        keys = await self._chosen.keys(indexes, messages) if indexes and by_key else frozenset()
        found = list(zip(linked, messages, strict=True))
        tables = self._of_blocks(spec, datasets, found, reader, waiting.union(contracts, keys))
        if messages and set(datasets) & set(OF_EPOCHS):
            last = before.height if before is not None else await self._slot_of(messages[0].parent_root)
            tables |= await self._of_epochs(reader, datasets, [last, *(each.slot for each in messages)])
        await self._check_agreed(linked[-1] if linked else None)
        events_found = sum(len(table) for name, table in tables.items() if name != "blocks")
        return SpanTables(span, tables, linked[-1] if linked else None, linked, events_found, 0, True)

    async def _chain_of(
        self, spec: Spec, span: Span, before: Block | None
    ) -> tuple[Memo, list[BlockMessage], list[Block]]:
        blocks = self._memo(None, span)
        messages = await Reader(self.nodes, spec, None, blocks).blocks_of(range(span.first, span.last + 1))
        try:
            return blocks, messages, await self._linked(spec, messages, before)
        except _Torn as error:
            if self.is_final(span.last):  # final blocks may have been taken back, which a rewind has mended
                self._forget()
            raise error.found from None

    async def _queue(self) -> tuple[int, Sequence[PendingDeposit] | None]:
        """The deposits that wait after the newest slot that is known, and that slot; None where no node tells them.
        Before Electra none waits for its validator."""
        spec, head = await self.spec(), self._head or (await self.heads()).latest
        if not spec.is_at_least("electra", spec.epoch(head.height)):
            return head.height, ()
        try:
            return head.height, await Reader(self.nodes, spec, ()).pending_deposits(head.height)
        except NOT_TOLD:
            return head.height, None

    def _forget(self) -> None:
        """Remember nothing of what was read. Whoever waits for an answer still gets it."""
        self._chosen, self._registry = Chosen(self.nodes), Registry(self.nodes)
        self._memos: dict[tuple[int, ...] | None, Memo] = {}
        self._computed: dict[bool, Computed] = {}  # of all validators, or of the network that some are part of

    @property
    def _epochs_at_once(self) -> int:
        """Those of all spans that are read at once, and those around them."""
        slots = self._spec.slots if self._spec is not None else 1
        return max(TWO_SPANS, self.settings.concurrency * (self.settings.span // slots + 2) + SETTLED_AFTER)

    def _memo(self, indexes: tuple[int, ...] | None, span: Span) -> Memo:
        """What was read before: of final slots alone, for others change."""
        if not self.is_final(span.last):
            return Memo(LIMITS)
        if indexes not in self._memos:
            while len(self._memos) > 2:
                self._memos.pop(next(key for key in self._memos if key is not None)).close()
            epochs = TWO_SPANS if len(indexes or ()) > MANY else self._epochs_at_once
            self._memos[indexes] = Memo(WHOLE_LIMITS if indexes is None else limits_of(epochs))
        return self._memos[indexes]

    async def _slot_of(self, root: str) -> int:
        """The slot of a block by its root; -1 of the one before the first."""
        try:
            return (await self.nodes.data(f"/eth/v1/beacon/headers/{root}", Header)).header.message.slot
        except Absent:
            if (await self._genesis_root()) == root.lower():
                return 0
            raise Unavailable(self.key, "the node does not know the parent of a block of its own") from None

    async def _genesis_root(self) -> str | None:
        """The root of the block of slot 0, as that of slot 1 or the next one names it."""
        reader = Reader(self.nodes, await self.spec(), ())
        for slot in range(1, 2 * reader.spec.slots):
            if (block := await reader.block(slot)) is not None:
                return block.parent_root.lower()
        return None

    async def _linked(self, spec: Spec, messages: Sequence[BlockMessage], before: Block | None) -> list[Block]:
        """The blocks with their roots: each block names that of the one before. The root of the last one, and of each
        before a missed slot, is asked for: a node that has lost a block must not pass for one that missed it."""
        if not messages:
            return []
        if before is not None and messages[0].parent_root.lower() != before.hash:
            raise _Torn(Reorged(self.key, before.height, before.hash))
        ends = {messages[-1].slot} | {one.slot for one, other in pairwise(messages) if other.slot > one.slot + 1}
        try:
            headers = dict(zip(sorted(ends), await gathered(self.block(slot) for slot in sorted(ends)), strict=True))
        except NoBlock as error:  # its block was read just now
            raise _Torn(Unavailable(self.key, f"{CHANGED}: slot {error.height} has no block any more")) from None
        linked = []
        for at, each in enumerate(messages):
            root = messages[at + 1].parent_root.lower() if at + 1 < len(messages) else headers[each.slot].hash
            known = headers.get(each.slot)
            if known is not None and (known.hash != root or known.parent != each.parent_root.lower()):
                raise _Torn(
                    Unavailable(self.key, f"the blocks after slot {each.slot} do not follow it: some are missing")
                )
            linked.append(Block(each.slot, root, each.parent_root.lower(), spec.time_us(each.slot)))
        return linked

    def _of_blocks(
        self,
        spec: Spec,
        datasets: Sequence[str],
        found: Sequence[tuple[Block, BlockMessage]],
        reader: Reader,
        filters: Collection[str],
    ) -> dict[str, pa.Table]:
        """The rows that blocks say themselves."""

        def named(pubkey: str, credentials: str) -> bool:
            return not filters or pubkey in filters or f"0x{credentials[26:]}" in filters

        tables = {}
        if "blocks" in datasets:
            tables["blocks"] = rows.blocks(self.key, found)
        if "proposals" in datasets:
            tables["proposals"] = rows.proposals(self.key, spec, (each for _, each in found), reader.is_wanted)
        if "withdrawals" in datasets:
            tables["withdrawals"] = rows.withdrawals(self.key, spec, found, reader.is_wanted)
        if "deposits" in datasets:
            tables["deposits"] = rows.deposits(self.key, spec, found, named)
        if "stake_requests" in datasets:
            tables["stake_requests"] = rows.requests(self.key, spec, found, named)
        return tables

    async def _of_epochs(self, reader: Reader, datasets: Sequence[str], slots: Sequence[int]) -> dict[str, pa.Table]:
        """The rows of the epochs that some blocks settled. The first slot is that of the block before them."""
        spec, parts = reader.spec, {name: list[Any]() for name in OF_EPOCHS if name in datasets}
        wanted = [
            (begun - SETTLED_AFTER, slot)
            for last, slot in pairwise(slots)
            for begun in range(max(spec.epoch(last) + 1, SETTLED_AFTER), spec.epoch(slot) + 1)
        ]
        async for done in settled_in_turn(reader, wanted):
            if "validator_rewards" in parts:
                parts["validator_rewards"].append(rows.rewards(self.key, done))
            if "stake_changes" in parts:
                parts["stake_changes"].append(rows.changes(self.key, done))
            if "validators" in parts:
                found = [await self._changed(reader, each) for each in done]
                parts["validators"] += [each for each in found if each is not None]
            del done  # 200 MB of a million validators, which the next epoch needs
        return {name: rows.together(found, DATASETS[name].table) for name, found in parts.items()}

    async def _changed(self, reader: Reader, done: Settled) -> pa.Table | None:
        """The validators that are otherwise at the end of an epoch than before it, of the first one all; None where
        all stayed as they were."""
        is_first = done.number == max(0, -(-self.settings.start_block // reader.spec.slots) - SETTLED_AFTER)
        places = slice(None) if is_first else done.at.changed(await before(reader, done.number, done.at))
        if not len(done.at.index[places]):
            return None
        return rows.registry(self.key, done.number, done.height, done.at, places)

    async def _check_agreed(self, last: Block | None) -> None:
        """Disputed where another node that answers has another block at the last slot, Unavailable where this one has
        by now: then the chain changed while it was read."""
        if last is None:
            return
        if not self.is_final(last.height) and not await self._is_still(last):
            raise Unavailable(self.key, CHANGED)
        for other in self.nodes.endpoints[1:]:
            try:
                root = (await other.data(f"/eth/v1/beacon/headers/{last.height}", Header)).root.lower()
            except (Unavailable, Absent):
                continue
            if root != last.hash and self.is_final(last.height):
                raise NoQuorum(self.key, f"{other.name} has another final block at slot {last.height} than the others")

    async def _is_still(self, block: Block) -> bool:
        """Whether a block lies where it lay."""
        try:
            return (await self.block(block.height)).hash == block.hash
        except NoBlock:
            return False

    # --- validators --------------------------------------------------------------------------------------------------

    @property
    def settled_after(self) -> int:
        """Epochs after which the rewards of one are known."""
        return SETTLED_AFTER

    @property
    def execution(self) -> str:
        """The chain to which validators withdraw, by its key."""
        return self.settings.execution or self.facts.execution

    @property
    def shows_stake(self) -> bool:
        """Whether portfolios of that chain show what the account's validators have."""
        return self.settings.stake_in_portfolios

    async def stakes(self, owners: Collection[str], candidates: Collection[str], block: Block) -> Sequence[Stake]:
        """What the validators of some addresses have at a block of the execution chain."""
        return await stakes(Reader(self.nodes, await self.spec(), None), owners, candidates, block)

    async def slot_clock(self) -> SlotClock:
        """When slots and epochs are."""
        spec = await self.spec()
        return SlotClock(spec.genesis.genesis_time, spec.slot_us // SECOND_US, spec.slots)

    async def validator(self, which: int | str) -> ValidatorNow:
        """A validator in the newest state, by its index or its public key; NotFound where there is none."""
        await self.spec()
        # A list of one: of an index above the registry some nodes say 404, some 400, and all of them an empty list.
        asked, path = {"ids": [str(which)]}, "/eth/v1/beacon/states/head/validators"
        found = await self.nodes.data(path, list[ValidatorState], asked)
        own = [each for each in found if which in (each.index, each.validator.pubkey.lower())]
        if not own:
            raise NotFound(f"no validator {which}")
        state, fields = own[0], own[0].validator
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
        """The indexes of the validators that some filters name now."""
        await self.spec()
        return await self._chosen.indexes(filters)

    # --- accounts: there are none ------------------------------------------------------------------------------------

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """Nothing is known of accounts."""
        return [NONE] * len(reads)

    async def answer_each(self, requests: Sequence[tuple[Block, Sequence[Any]]]) -> list[list[Any] | SourceError]:
        """Nothing at any block."""
        return [[NONE] * len(reads) for _, reads in requests]

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> NoAccounts:
        """What reads nothing."""
        return NoAccounts()

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """No reads."""
        return ()

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
        """Nothing is known of accounts."""
        yield from ()
        return [NONE] * len(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
        """There are no tokens."""
        yield from ()
        return {asset: Token(asset, "", "", None) for asset in assets}

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def probe(self, first: int) -> None:
        """Every dataset is served by every node that serves the standard Beacon API."""
        await self.spec()

    async def examine(self) -> list[dict[str, Any]]:
        """What `doctor` shows of each node."""
        return [await examined(node) for node in self.nodes.endpoints]

    def health(self) -> list[EndpointHealth]:
        """How well each node does."""
        best = self.nodes.best_height
        return [node.health_report(best) for node in self.nodes.endpoints]

    async def close(self) -> None:
        """Let go of connections."""
        if self.announcements is not None:
            await self.announcements.close()
        for memo in self._memos.values():
            memo.close()
        for computed in self._computed.values():
            computed.close()
        await self.nodes.close()
