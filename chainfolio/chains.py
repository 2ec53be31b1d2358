"""The contract of a chain: what every kind of chain offers to the parts that index it and answer about it.

It is structural: a class that has these members is a chain, and inherits nothing. A height need not have a block
(slots are skipped, proposals are missed), and a chain may know nothing of logs, receipts or approvals. What a chain
may lack is a `Capability`: the chain declares those that it has, `doctor` and `status` show them, and `having` gives
the methods behind one, or raises one typed error. No method exists only to raise.
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
from chainfolio.errors import HistoryUnavailable, Incapable, NoBlock, SourceError
from chainfolio.plans import Plan
from chainfolio.proofs import Findings
from chainfolio.reads import ReadResult

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.approvals import (
        AllowanceState,
        Approved,
        ApprovedInside,
        ApprovedOperator,
        OperatorState,
        PermissionState,
    )
    from chainfolio.datasets import Dataset
    from chainfolio.positions import AccountReader, OpenPosition
    from chainfolio.protocols import InstalledProtocols

LOOK_BACK = 16  # heights that are looked at for a block at first; each next piece has twice as many
MAX_SKIPPED = 4096  # heights without a block that one search believes in: half an hour of Solana
ReadBlocks = Callable[[Sequence[int]], Awaitable[Sequence[Block]]]


class Capability(StrEnum):
    """What a chain may have or lack.

    `approvals`: accounts can allow others to spend. `past_balances`: its nodes can serve the state of past blocks.
    `proofs`: balances can be proven against the hash of a block. `transactions`: single transactions can be looked up.
    `restore`: stored rows can be decoded again without a node. `cross_check`: its endpoints can be asked one by one for
    the hash of a block. `account_history`: what concerns some accounts can be read alone.
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
    """Where the chain stands: its newest block, and the newest height that will not change any more."""

    latest: Block
    finalized: int


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A change of an account's balance at a height that no row explains; an amount of zero where it is only known that
    there may be some. `reason` is a sentence for people."""

    account: str
    height: int
    asset: Asset
    amount: int
    reason: str


@dataclass(slots=True)
class Collected:
    """What one span holds, as tables.

    `chain` has the blocks of the span in order, where their headers were read: `is_linked` says so, for a span can
    also be one without any block. `last` is the last of them: the next span links to it. `also`: datasets that were not
    asked for, of which there are rows that earlier answers may have lacked.
    """

    span: Span
    tables: dict[str, pa.Table]
    last: Block | None
    chain: list[Block] = field(default_factory=list)
    events: int = 0
    restored: int = 0
    is_linked: bool = False
    ways: Mapping[str, str] = field(default_factory=dict)
    unexplained: tuple[Unexplained, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """What a chain is like, for documents and for every part that needs to know it.

    `chain_id` is the number that answers show. `wrapped` is the token that wraps the native coin, `also_at` the one
    as which the chain shows its native coin once more. `token_namespace` is the CAIP-19 namespace of its fungible
    tokens. `unproven`: parts of its blocks whose hashes nobody can compute again. `fee_collectors`: accounts that take
    fees which are movements of a token.
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
        """The CAIP-19 name of what a row of transfers moved: the native coin where the row names no token, one of a
        collection where it has a number, by the collection's standard."""
        if reference is None:
            return self.native.asset
        if token_id is None:
            return self.token_asset(reference)
        return Asset(self.native.asset.chain, standard, reference, str(token_id))

    def blocks_in(self, seconds: int) -> int:
        """How many blocks the chain makes in some seconds, at least one."""
        return max(1, seconds * 1000 // self.block_time_ms)

    def token_asset(self, reference: str) -> Asset:
        """The CAIP-19 name of a fungible token of the chain."""
        return Asset(self.native.asset.chain, self.token_namespace, reference)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an endpoint was asked so far: bytes in both directions, calls by method, and reads of contracts by function
    (many of which share one call)."""

    sent_bytes: int = 0
    received_bytes: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """How well an endpoint does, without its address: the name is safe to show. `height` is the newest block that it
    claimed, `head_us` the time of that block; None is not known."""

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
    max_batch: int | None = None  # calls that it takes at once; None where it has refused no batch
    rate: float | None = None  # float: requests that it takes in a second, or calls; None where it has refused none
    counts_calls: bool = False  # True: its rate counts each call of a batch

    @property
    def latency_ms(self) -> int | None:
        """The average latency in milliseconds."""
        return None if self.latency_s is None else round(self.latency_s * 1000)


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """Where the index has a transaction. `block_hash` is None where no header of its block is kept; `final` says
    whether that block may still go."""

    tx_hash: str
    height: int
    tx_index: int
    time_s: int
    block_hash: str | None
    final: bool


class Chain(Protocol):
    """One chain behind its nodes. Its errors are those of `chainfolio.errors`; none shows more of an endpoint than its
    name."""

    @property
    def key(self) -> str:
        """The key in the settings: `ethereum`."""

    @property
    def kind(self) -> str:
        """The kind of chain, which is the kind of its accounts too: `evm`."""

    @property
    def caip2(self) -> str:
        """The CAIP-2 name: `eip155:1`."""

    @property
    def info(self) -> ChainInfo:
        """What the chain is like."""

    @property
    def settings(self) -> ChainSettings:
        """The settings of the chain: those that all kinds share, and its kind's own."""

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that the chain has, by name, in the order of dependence."""

    @property
    def usual(self) -> tuple[str, ...]:
        """The datasets that are indexed where nobody names any."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the chain has of what a chain may lack."""

    @property
    def requests(self) -> int:
        """Requests to nodes so far."""

    async def heads(self) -> Heads:
        """The newest block and the newest final height."""

    def is_final(self, height: int) -> bool:
        """Whether what lies at a height cannot change any more, by what `heads` said so far."""

    async def block(self, height: int) -> Block:
        """The block at a height. NodeBehind where the chain is not that far, NoBlock where the height has none."""

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """The blocks at some heights, in order, in few requests; heights without a block are left out."""

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> Collected:
        """The rows of some datasets in a span, checked. `before` is the block that the first one must follow;
        `contracts` and `events` are filters of the datasets that know them."""

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, all at the hash of that block. What cannot be read is Unknown, never zero."""

    async def answer_each(self, asked: Sequence[tuple[Block, Sequence[Any]]]) -> list[list[Any] | SourceError]:
        """The results of some reads at each of several blocks, together; an error in the place of a block that
        cannot be read."""

    def account_reader(self, installed: InstalledProtocols, listed: Collection[Asset] = ()) -> AccountReader:
        """What reads the balances and positions of accounts, with these protocols; `listed` are the tokens that are
        what they say, and whose transfers nobody has to doubt. BadSettings where a protocol cannot be read."""

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """The reads that say how much of something lies loose in a wallet, each with the name of its number."""

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
        """How much accounts have of assets, in one round and in this order: an int, or what came in its place. Of a
        collectible it is how many of this one."""

    def describe(self, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
        """What some tokens say of themselves: symbol, name, decimals."""

    async def probe(self, first: int) -> None:
        """Find out which of the datasets that not every node serves these nodes serve, from a height on."""

    async def examine(self) -> list[dict[str, Any]]:
        """What `doctor` shows of each endpoint; every row has `endpoint`, `ok` and `problem`."""

    def health(self) -> list[EndpointHealth]:
        """How well each endpoint does, in the order of the settings."""

    async def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class ForgetsBlocks(Protocol):
    """A chain whose nodes drop their oldest blocks."""

    async def first_served(self) -> int:
        """The lowest height of which a node still has the block."""


@runtime_checkable
class ReadsReceipts(Protocol):
    """A chain whose receipts hold the events of a block, also those that a node leaves out of answers about events."""

    async def collect_receipts(self, height: int, datasets: Sequence[str]) -> Collected:
        """Return the rows of some datasets of events in one block, made from the receipts of all of its transactions.

        Raises:
            SourceError: no endpoint gives receipts that belong to the block; Contradicted if its receipts root or its
                bloom denies them.
        """


@runtime_checkable
class KeepsCoins(Protocol):
    """A chain whose nodes answer about now alone, some of which keep what accounts had of the native coin."""

    async def coins_at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """What accounts had at a block, by its hash; those of which no node tells are left out."""


@runtime_checkable
class KeepsPositions(Protocol):
    """A chain whose nodes answer about now alone, where some positions of the past can be told by what was done."""

    @property
    def past_positions(self) -> Collection[str]:
        """The protocols of which positions are told whole, or an issue says which are not."""

    async def positions_at(
        self, accounts: Collection[str], block: Block
    ) -> Mapping[str, tuple[Sequence[OpenPosition], Sequence[Issue]]]:
        """The positions of accounts at a block, and what of them is not known."""


@runtime_checkable
class Announces(Protocol):
    """A chain whose nodes tell of themselves that something is new."""

    async def announced(self, within_s: float) -> bool:
        """Wait until a node announces a block, a reorganisation or finality, at most as long as that; whether one did.
        Nothing rests on it but when the chain is looked at next."""

    @property
    def listener_failures(self) -> int:
        """How often listening ended by an error that is no node's, and was started again: a metric."""


@runtime_checkable
class Approves(Protocol):
    """Behind `Capability.APPROVALS`."""

    @property
    def edition_standards(self) -> Collection[str]:
        """The standards of collections of which an account can hold several of one id."""

    def allowances(self, approvals: Sequence[Approved]) -> Plan[Any, Any, Sequence[AllowanceState]]:
        """What is left of approvals, in their order."""

    def operators(
        self, operators: Sequence[ApprovedOperator], ids: Mapping[str, Mapping[str, Collection[int]]]
    ) -> Plan[Any, Any, Sequence[OperatorState | None]]:
        """What operators may move, in their order; None where one may no more. `ids` are those of editions that owners
        met, by owner and collection."""

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """The filters of events by which these contracts, such as Permit2, say whom they let spend."""

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """The token and the spender of such an event, from a row of `account_events`; None where its account is not the
        owner."""

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Any, Any, Sequence[PermissionState]]:
        """What is left inside such contracts, in this order."""


@runtime_checkable
class Proves(Protocol):
    """Behind `Capability.PROOFS`."""

    async def prove(self, block: Block, account: str, balances: Mapping[Asset, int | None]) -> Findings:
        """What proofs under the hash of a block say of balances that were read; None where one could not be read."""


@runtime_checkable
class LooksUp(Protocol):
    """Behind `Capability.TRANSACTIONS`."""

    async def look_up(self, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows, in order. BadAnswer where the node has one elsewhere than the index,
        Reorged where its block may still go, NodeBehind where the node does not have it."""


@runtime_checkable
class Restores(Protocol):
    """Behind `Capability.RESTORE`."""

    def decoded_again(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Stored rows by the decoder of today. A KeyError names a column that an older release did not store."""


@runtime_checkable
class CrossChecks(Protocol):
    """Behind `Capability.CROSS_CHECK`."""

    async def agreed_hash(self, block: Block) -> str:
        """The hash that all endpoints have at the height of a block that was final; ours where most of them still have
        it. Unavailable while they do not agree."""


@runtime_checkable
class ReadsAccounts(Protocol):
    """Behind `Capability.ACCOUNT_HISTORY`. A dataset's `by_account` says whether it can be read like this."""

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> Collected:
        """The rows of some datasets that concern some accounts, in a span.

        What comes back begins where the span begins and may end earlier: at what goes in one batch, where the budget
        ends, where blocks begin that are not final. The caller goes on behind it. With `before`, which the first block
        must follow, all blocks are read and linked; without, the last one alone. OverBudget where the budget ends
        before anything was read. A dataset that no node can give is absent from `ways`. Rows of other datasets may come
        with them (`Collected.also`): the caller stores each row once.
        """


@dataclass(frozen=True, slots=True)
class Forecast:
    """What reading some accounts would cost: `sampled` blocks were read for it, `unread` datasets no node gives. The
    cost will be between each figure divided by `factor`, and the figure times it."""

    rows: int
    requests: int
    calls: int
    units: int
    bytes: int
    sampled: int
    factor: float  # float: a ratio, nothing of a chain
    unread: tuple[str, ...] = ()


@runtime_checkable
class ForecastsAccounts(Protocol):
    """What a chain may have beside `ReadsAccounts`: others are forecast from parts that are read."""

    async def forecast_accounts(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None = None
    ) -> Forecast:
        """What reading some datasets of some accounts in a span of final blocks would cost, in at most 20 requests.

        Raises:
            OverBudget: the budget ends before.
            SourceError: no node answers.
        """


@runtime_checkable
class NamesAccounts(Protocol):
    """A chain on which accounts have names that people can write instead of an address."""

    async def address_of(self, name: str) -> str:
        """The account that a name stands for. BadRequest where it is no name; NotFound where it stands for none, and
        where it has expired."""

    async def name_of(self, address: str) -> str | None:
        """The name that an account gives itself, where the name stands for this account."""


PROTOCOLS: Mapping[Capability, type] = {
    Capability.PROOFS: Proves,
    Capability.TRANSACTIONS: LooksUp,
    Capability.RESTORE: Restores,
    Capability.CROSS_CHECK: CrossChecks,
    Capability.ACCOUNT_HISTORY: ReadsAccounts,
}


@overload
def having(chain: Chain, capability: Literal[Capability.PROOFS]) -> Proves: ...
@overload
def having(chain: Chain, capability: Literal[Capability.TRANSACTIONS]) -> LooksUp: ...
@overload
def having(chain: Chain, capability: Literal[Capability.RESTORE]) -> Restores: ...
@overload
def having(chain: Chain, capability: Literal[Capability.CROSS_CHECK]) -> CrossChecks: ...
@overload
def having(chain: Chain, capability: Literal[Capability.APPROVALS]) -> Approves: ...
@overload
def having(chain: Chain, capability: Literal[Capability.ACCOUNT_HISTORY]) -> ReadsAccounts: ...
@overload
def having(chain: Chain, capability: Literal[Capability.PAST_BALANCES]) -> Chain: ...
def having(chain: Chain, capability: Capability) -> Any:
    """The chain, as one that has a capability; Incapable where it lacks it."""
    if capability not in chain.capabilities:
        raise Incapable(chain.key, capability.value)
    return chain


def lacking(chain: Chain) -> list[str]:
    """What a chain lacks of what a chain may have, by name."""
    return [each.value for each in Capability if each not in chain.capabilities]


def error_counts(chain: Chain) -> dict[str, dict[str, int]]:
    """What went wrong so far, by endpoint and kind of error."""
    return {each.endpoint: dict(each.errors) for each in chain.health() if each.errors}


async def hash_at(chain: Chain, height: int) -> str:
    """The hash of the block at a height; empty where the height has none."""
    try:
        return (await chain.block(height)).hash
    except NoBlock:
        return ""


async def times_at(chain: Chain, heights: Collection[int]) -> dict[int, int]:
    """The time (in microseconds) of the newest block at or below each of some heights; 0 where there is none yet."""
    found = {block.height: block.time_us for block in await chain.blocks(sorted(heights))}
    for height in sorted(set(heights) - found.keys()):
        below = await newest_in(chain, Span(0, height))
        found[height] = below.time_us if below else 0
    return found


async def newest_in(chain: Chain, span: Span) -> Block | None:
    """Return the highest block of a span; None if no height of it has one.

    Raises:
        HistoryUnavailable: more than MAX_SKIPPED heights have none.
    """
    blocks = few_skipped(chain.key, chain.blocks)
    last, size = span.last, 1
    while last >= span.first:
        first = max(span.first, last - size + 1)
        if found := await blocks(range(first, last + 1)):
            return found[-1]
        last, size = first - 1, min(MAX_SKIPPED // 4, max(LOOK_BACK, 2 * size))
    return None


def few_skipped(source: str, blocks: ReadBlocks, most: int = MAX_SKIPPED) -> ReadBlocks:
    """Return `blocks` for one search; it raises HistoryUnavailable once more than `most` heights had no block.

    Nodes without old storage say of old heights that they were skipped. A search that believes them never ends.
    """
    skipped = 0

    async def read(heights: Sequence[int]) -> Sequence[Block]:
        nonlocal skipped
        found = await blocks(heights)
        skipped += len(heights) - len(found)
        if skipped > most:
            reason = (
                f"{skipped:,} heights from {heights[0]} on are said to have no block; nodes that lost blocks say so too"
            )
            raise HistoryUnavailable(source, heights[0], reason)
        return found

    return read
