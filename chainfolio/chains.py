"""The contract of a chain: the methods by which any kind of chain is indexed and queried.

The contract is structural: a class that has these members is a chain, and inherits nothing. A height need not have a
block (slots are skipped, proposals are missed). Abilities that not every chain has are a `Capability`: a chain declares
those that it has, `doctor` and `status` show them, and `require_capability` returns the methods behind one, or raises
MissingCapability. No method exists only to raise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload, runtime_checkable

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_settings import ChainSettings
from chainfolio.contracts import Holding, Issue, Token, TransactionDetails
from chainfolio.errors import HistoryUnavailable, MissingCapability, NoBlock, SourceError
from chainfolio.plans import Plan
from chainfolio.proofs import BlockProofs
from chainfolio.reads import Read, ReadResult, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.approvals import (
        AllowanceState,
        IndirectApproval,
        OperatorApproval,
        OperatorState,
        PermissionState,
        TokenApproval,
    )
    from chainfolio.datasets import Dataset
    from chainfolio.interactions import EventRow
    from chainfolio.positions import AccountReader, BalanceResult, OpenPosition
    from chainfolio.protocols import InstalledProtocols

LOOK_BACK = 16  # heights that are looked at for a block at first; each next piece has twice as many
MAX_SKIPPED = 4096  # heights without a block that one search believes in: half an hour of Solana
ReadBlocks = Callable[[Sequence[int]], Awaitable[Sequence[Block]]]


class Capability(StrEnum):
    """An ability that not every chain has.

    `approvals`: accounts can allow others to spend. `past_balances`: nodes serve the state of past blocks. `proofs`:
    balances can be proven against a block's hash. `transactions`: single transactions can be read. `restore`: stored
    rows can be decoded again without a node. `cross_check`: each endpoint can be asked for the hash of a block.
    `account_history`: the rows of some accounts can be read without those of others.
    """

    APPROVALS = "approvals"
    PAST_BALANCES = "past_balances"
    PROOFS = "proofs"
    TRANSACTIONS = "transactions"
    RESTORE = "restore"
    CROSS_CHECK = "cross_check"
    ACCOUNT_HISTORY = "account_history"


@dataclass(frozen=True, slots=True)
class Heads:
    """The newest block of a chain, and the newest height that is final."""

    latest: Block
    finalized: int


@dataclass(frozen=True, slots=True)
class UnexplainedChange:
    """A balance change that no row explains; `amount` is 0 if not known, `reason` is a sentence for users."""

    account: str
    height: int
    asset: Asset
    amount: int
    reason: str


@dataclass(slots=True)
class SpanTables:
    """The rows of one span, by table.

    `blocks` are the blocks of the span in order, if their headers were read; `is_linked` tells whether they were (a
    span may have no block at all). `last` is the last block: the next span must link to it. `read_methods` tells by
    dataset how it was read. `extra_datasets` were not requested, but have rows that earlier results may have lacked.
    """

    span: Span
    tables: dict[str, pa.Table]
    last: Block | None
    blocks: list[Block] = field(default_factory=list)
    event_count: int = 0
    restored_count: int = 0
    is_linked: bool = False
    read_methods: Mapping[str, str] = field(default_factory=dict)
    unexplained: tuple[UnexplainedChange, ...] = ()
    extra_datasets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """The facts about a chain that documents and other parts need.

    `chain_id` is the number that answers show. `wrapped` is the token that wraps the native coin, `also_at` the token
    as which the chain shows its native coin a second time. `token_namespace` is the CAIP-19 namespace of fungible
    tokens. `unproven` names the parts of blocks whose hashes cannot be recomputed. `fee_collectors` are accounts that
    receive fees which are token transfers.
    """

    name: str
    chain_id: int
    native: Token
    token_namespace: str
    block_time_ms: int
    wrapped: Asset | None = None
    also_at: Asset | None = None
    color: str = ""
    explorer: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    native_images: Mapping[str, str] = field(default_factory=dict)
    unproven: tuple[str, ...] = ()
    fee_collectors: frozenset[str] = frozenset()

    def asset(self, standard: str, reference: str | None, token_id: int | None = None) -> Asset:
        """Return the asset of a row of transfers: the native coin if `reference` is None."""
        if reference is None:
            return self.native.asset
        if token_id is None:
            return self.token_asset(reference)
        return Asset(self.native.asset.chain, standard, reference, str(token_id))

    def blocks_in(self, seconds: int) -> int:
        """Return the number of blocks that the chain makes in some seconds, at least 1."""
        return max(1, seconds * 1000 // self.block_time_ms)

    def token_asset(self, reference: str) -> Asset:
        """Return the asset of a fungible token by its contract."""
        return Asset(self.native.asset.chain, self.token_namespace, reference)


@dataclass(frozen=True, slots=True)
class Cost:
    """The traffic of an endpoint: bytes, calls by method, and contract reads by function."""

    sent_bytes: int = 0
    received_bytes: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """The state of an endpoint, without its URL: its name is safe to show.

    `height` is the newest block that it claimed, `head_us` the time of that block; None if not known.
    """

    endpoint: str
    height: int | None = None
    head_us: int | None = None
    lag_blocks: int | None = None
    latency_s: float | None = None  # float: seconds
    faults: int = 0
    quarantined: bool = False
    requests: int = 0
    hedged: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    max_batch: int | None = None  # calls per request; None if it has refused no batch
    rate: float | None = None  # float: requests or calls per second; None if it has refused none
    counts_calls: bool = False  # True: its rate counts each call of a batch

    @property
    def latency_ms(self) -> int | None:
        """The average latency in milliseconds."""
        return None if self.latency_s is None else round(self.latency_s * 1000)


@dataclass(frozen=True, slots=True)
class IndexedTransaction:
    """The position of a transaction in the index.

    `block_hash` is None if the header of its block is not stored. `final` is False if that block may still be
    reorged.
    """

    tx_hash: str
    height: int
    tx_index: int
    time_s: int
    block_hash: str | None
    final: bool


class Chain(Protocol):
    """One chain behind its nodes. Errors are those of `chainfolio.errors`, without URLs of endpoints."""

    @property
    def key(self) -> str:
        """The key in the settings: `ethereum`."""

    @property
    def kind(self) -> str:
        """The kind of chain and of its accounts: `evm`."""

    @property
    def caip2(self) -> str:
        """The CAIP-2 name: `eip155:1`."""

    @property
    def info(self) -> ChainInfo:
        """The facts about the chain."""

    @property
    def settings(self) -> ChainSettings:
        """The settings of the chain: the keys of all kinds, and those of its kind."""

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that the chain has, by name, in the order of dependence."""

    @property
    def default_datasets(self) -> tuple[str, ...]:
        """The datasets that are indexed if the settings name none."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the chain has."""

    @property
    def requests(self) -> int:
        """The number of requests to nodes so far."""

    async def heads(self) -> Heads:
        """Read the newest block and the newest final height."""

    def is_final(self, height: int) -> bool:
        """Return True if `height` is final according to the last `heads`."""

    async def block(self, height: int) -> Block:
        """Read the block at a height; NodeBehind if the chain has not reached it, NoBlock if it was skipped."""

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Read the blocks at some heights, in order and in few requests; heights without a block are left out."""

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Read and check the rows of some datasets in a span.

        Args:
            span: The heights.
            datasets: Names of datasets.
            contracts: Filter of datasets that support one; empty for all contracts.
            before: The block that the first one must link to.
            events: Filter of the dataset `events`.
        """

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads, all at the hash of one block. A failed read is Unknown, never zero."""

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return the results of reads at several blocks; a SourceError in place of a failed block."""

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> AccountReader:
        """Return a reader of accounts; `trusted` tokens need no check. BadSettings if a protocol is invalid."""

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the reads that prove a wallet's balance, each with the name of its number."""

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[BalanceResult]]:
        """Read balances in one round, in order: an int (for a collectible its count), Unknown or Reverted."""

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Read symbol, name and decimals of tokens from their contracts."""

    async def probe(self, first: int) -> None:
        """Check which of the optional datasets the nodes serve from a height on."""

    async def examine(self) -> list[dict[str, object]]:
        """Return one row per endpoint for `doctor`; each has `endpoint`, `ok` and `problem`."""

    def health(self) -> list[EndpointHealth]:
        """Return the state of each endpoint, in the order of the settings."""

    async def close(self) -> None:
        """Close all connections."""


@runtime_checkable
class PruningChain(Protocol):
    """A chain whose nodes drop their oldest blocks."""

    async def first_served(self) -> int:
        """Return the lowest height whose block a node still has."""


@runtime_checkable
class ReceiptReader(Protocol):
    """A chain whose receipts hold all events of a block, also those missing from event queries."""

    async def collect_receipts(self, height: int, datasets: Sequence[str]) -> SpanTables:
        """Return the rows of some event datasets in one block, made from the receipts of all its transactions.

        Raises:
            SourceError: no endpoint gives receipts that belong to the block.
            Contradiction: the block's receipts root or bloom denies them.
        """


@runtime_checkable
class PastCoinReader(Protocol):
    """A chain whose nodes serve the newest state only, but some of them past balances of the native coin."""

    async def coins_at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """Return native balances at a block, by its hash; accounts that no node can answer are left out."""


@runtime_checkable
class PastPositionReader(Protocol):
    """A chain whose nodes serve only the newest state; transactions yield some past positions."""

    @property
    def past_positions(self) -> Collection[str]:
        """The protocols whose past positions are complete, or reported as missing by an issue."""

    async def positions_at(
        self, accounts: Collection[str], block: Block
    ) -> Mapping[str, tuple[Sequence[OpenPosition], Sequence[Issue]]]:
        """Return the positions of accounts at a block, and issues about unknown ones."""


@runtime_checkable
class HeadListener(Protocol):
    """A chain whose nodes push notifications of new blocks."""

    async def announced(self, within_s: float) -> bool:
        """Wait at most `within_s` seconds for news of a block, a reorg or finality; True if some came."""

    @property
    def listener_failures(self) -> int:
        """The number of restarts of the listener after an error that is not a node's: a metric."""


@runtime_checkable
class ApprovalReader(Protocol):
    """The methods behind `Capability.APPROVALS`."""

    @property
    def edition_standards(self) -> Collection[str]:
        """The collection standards that allow an account to hold several items of one id."""

    def allowances(self, approvals: Sequence[TokenApproval]) -> Plan[Sequence[AllowanceState]]:
        """Read the remaining amounts of approvals, in order."""

    def operators(
        self, operators: Sequence[OperatorApproval], ids: Mapping[str, Mapping[str, Collection[int]]]
    ) -> Plan[Sequence[OperatorState | None]]:
        """Read what operators may move, in order; None if not approved. `ids` are by owner and collection."""

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """Return the event filters by which contracts such as Permit2 announce permissions."""

    def permission_of(self, row: EventRow) -> tuple[str, str] | None:
        """Return token and spender of a row of `account_events`; None if its account is not the owner."""

    def permissions(self, permissions: Sequence[IndirectApproval]) -> Plan[Sequence[PermissionState]]:
        """Read the remaining permissions inside contracts such as Permit2, in order."""


@runtime_checkable
class BalanceProver(Protocol):
    """The methods behind `Capability.PROOFS`."""

    async def prove(self, block: Block, account: str, balances: Mapping[Asset, int | None]) -> BlockProofs:
        """Prove balances against the hash of a block; a balance of None could not be read."""


@runtime_checkable
class TransactionReader(Protocol):
    """The methods behind `Capability.TRANSACTIONS`."""

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Read indexed transactions, in order.

        Raises:
            BadAnswer: the node has one at another position than the index.
            Reorged: its block may still be reorged.
            NodeBehind: the node does not have it.
        """


@runtime_checkable
class RowDecoder(Protocol):
    """The methods behind `Capability.RESTORE`."""

    def decode_again(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Decode stored rows with the current decoder; KeyError if an older release did not store a column."""


@runtime_checkable
class HashQuorum(Protocol):
    """The methods behind `Capability.CROSS_CHECK`."""

    async def agreed_hash(self, block: Block) -> str:
        """Return the hash that all endpoints, or most of them ours, have at a final height; else Unavailable."""


@runtime_checkable
class AccountHistoryReader(Protocol):
    """The methods behind `Capability.ACCOUNT_HISTORY`; `Dataset.by_account` marks the datasets with it."""

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """Read the rows of some accounts in a span.

        The result begins with the span and may end earlier: at the size of a batch, at the end of the budget, or
        before blocks that are not final. The caller continues after it. With `before`, which the first block must
        link to, all blocks are read and linked; without it only the last one. A dataset that no node serves is absent
        from `read_methods`. Rows of other datasets may be included (`extra_datasets`): the caller stores each row
        once.

        Raises:
            OverBudget: the budget ended before anything was read.
        """


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimated cost of reading some accounts.

    `sampled` blocks were read for it; no node serves the `unread` datasets. The real cost lies between each figure
    divided by `factor` and the figure times `factor`.
    """

    rows: int
    requests: int
    calls: int
    units: int
    bytes: int
    sampled: int
    factor: float  # float: a ratio, nothing of a chain
    unread: tuple[str, ...] = ()


@runtime_checkable
class AccountForecaster(Protocol):
    """An optional addition to `AccountHistoryReader`; other chains are estimated from a sample of reads."""

    async def forecast_accounts(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None = None
    ) -> Forecast:
        """Estimate the cost of reading accounts in a span of final blocks, with at most 20 requests.

        Raises:
            OverBudget: the budget ends before.
            SourceError: no node answers.
        """


@runtime_checkable
class NameResolver(Protocol):
    """A chain whose accounts can have readable names."""

    async def address_of(self, name: str) -> str:
        """Return the account of a name; BadRequest if it is no name, NotFound if it has none or expired."""

    async def name_of(self, address: str) -> str | None:
        """Return the primary name of an account if the name resolves to it, else None."""


CAPABILITY_PROTOCOLS: Mapping[Capability, type] = {
    Capability.PROOFS: BalanceProver,
    Capability.TRANSACTIONS: TransactionReader,
    Capability.RESTORE: RowDecoder,
    Capability.CROSS_CHECK: HashQuorum,
    Capability.ACCOUNT_HISTORY: AccountHistoryReader,
}


@overload
def require_capability(chain: Chain, capability: Literal[Capability.PROOFS]) -> BalanceProver: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.TRANSACTIONS]) -> TransactionReader: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.RESTORE]) -> RowDecoder: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.CROSS_CHECK]) -> HashQuorum: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.APPROVALS]) -> ApprovalReader: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.ACCOUNT_HISTORY]) -> AccountHistoryReader: ...
@overload
def require_capability(chain: Chain, capability: Literal[Capability.PAST_BALANCES]) -> Chain: ...
def require_capability(chain: Chain, capability: Capability) -> Any:
    """Return the chain, typed by one of its capabilities.

    Raises:
        MissingCapability: the chain lacks it.
    """
    if capability not in chain.capabilities:
        raise MissingCapability(chain.key, capability.value)
    return chain


def missing_capabilities(chain: Chain) -> list[str]:
    """Return the names of the capabilities that a chain lacks."""
    return [each.value for each in Capability if each not in chain.capabilities]


def errors_by_endpoint(chain: Chain) -> dict[str, dict[str, int]]:
    """Return the number of errors so far, by endpoint and kind of error."""
    return {each.endpoint: dict(each.errors) for each in chain.health() if each.errors}


async def hash_at(chain: Chain, height: int) -> str:
    """Return the hash of the block at a height; an empty text if the height has none."""
    try:
        return (await chain.block(height)).hash
    except NoBlock:
        return ""


async def times_at(chain: Chain, heights: Collection[int]) -> dict[int, int]:
    """Return the time (microseconds) of the newest block at or below each height; 0 if there is none."""
    times = {block.height: block.time_us for block in await chain.blocks(sorted(heights))}
    for height in sorted(set(heights) - times.keys()):
        below = await newest_block_in(chain, Span(0, height))
        times[height] = below.time_us if below else 0
    return times


async def newest_block_in(chain: Chain, span: Span) -> Block | None:
    """Return the highest block of a span; None if no height of it has one.

    Raises:
        HistoryUnavailable: more than MAX_SKIPPED heights have none.
    """
    blocks = limit_skipped(chain.key, chain.blocks)
    last, size = span.last, 1
    while last >= span.first:
        first = max(span.first, last - size + 1)
        if present := await blocks(range(first, last + 1)):
            return present[-1]
        last, size = first - 1, min(MAX_SKIPPED // 4, max(LOOK_BACK, 2 * size))
    return None


def limit_skipped(source: str, blocks: ReadBlocks, max_skipped: int = MAX_SKIPPED) -> ReadBlocks:
    """Return `blocks` for one search, limited to `max_skipped` heights without a block.

    Nodes without old storage report old heights as skipped. A search that believes them never ends.

    Raises:
        HistoryUnavailable: by the returned function, if more heights have no block.
    """
    skipped = 0

    async def read(heights: Sequence[int]) -> Sequence[Block]:
        """Read blocks; HistoryUnavailable if too many are missing by now."""
        nonlocal skipped
        present = await blocks(heights)
        skipped += len(heights) - len(present)
        if skipped > max_skipped:
            reason = (
                f"{skipped:,} heights from {heights[0]} on are said to have no block; nodes that lost blocks say so too"
            )
            raise HistoryUnavailable(source, heights[0], reason)
        return present

    return read
