"""Values that chains return: heads, tables of a span, facts, the state of endpoints, forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.contracts import Token
from chainfolio.errors import HistoryUnavailable

if TYPE_CHECKING:
    import pyarrow as pa


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

    def require_datasets(self, source: str, datasets: Iterable[str]) -> None:
        """Raise HistoryUnavailable if no node provided one of some datasets, which have no rows then.

        `source` names the chain in the error.
        """
        if unread := [name for name in datasets if name not in self.read_methods]:
            reason = f"no node has {', '.join(unread)} of blocks {self.span.first}..{self.span.last}"
            raise HistoryUnavailable(source, self.span.first, reason)


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """The facts about a chain that documents and other parts need.

    `chain_id` is the number that answers show. `wrapped` is the token that wraps the native coin, `also_at` the token
    as which the chain shows its native coin a second time. `token_namespace` is the CAIP-19 namespace of fungible
    tokens. `unproven` names the parts of blocks whose hashes cannot be recomputed. `fee_collectors` are accounts that
    receive fees which are token transfers. `has_collectible_tokens` is True if collectibles are tokens without
    decimals.
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
    has_collectible_tokens: bool = False

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
