"""Result types of the engine, except portfolios; the API shows them unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price, Token
from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.facts import Options

if TYPE_CHECKING:
    from chainfolio.portfolio.pnl.trade_value import Strengths
    from chainfolio.portfolio.transactions import Transactions


# Transactions that one answer reads from the node: one that filters by more needs `transactions` in the index.
MAX_LOOKUPS: Final = 1000
MAX_PAGE: Final = 250  # transactions of a page, over HTTP, in Python, by commands and tools
MAX_DAYS: Final = 366  # days of a performance, over HTTP, in Python, by commands and tools


class ChainFact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names, images and links of one chain, and which requests it supports."""

    chain_id: int
    key: str
    name: str
    symbol: str
    color: str = ""
    img_small: str = ""
    img_large: str = ""
    explorer_token_url: str | None = None
    explorer_transaction_url: str | None = None
    explorer_address_url: str | None = None
    blockscout_explorer_token_url: str | None = None
    blockscout_explorer_transaction_url: str | None = None
    blockscout_explorer_address_url: str | None = None
    is_portfolio_supported: bool
    is_transactions_supported: bool


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """Freshness of the stored data of one account; a time is None if never read.

    `issues` say why the account cannot be read.
    """

    address: str
    portfolio_us: int | None
    transactions_us: int | None
    in_progress: bool
    issues: tuple[IssueDocument, ...] = ()


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Health of one endpoint of a chain, by its index in the settings; null if it was not asked yet.

    A quarantined endpoint gave a wrong answer and gets no requests.
    """

    endpoint: str
    height: int | None
    lag_blocks: int | None
    latency_ms: int | None
    faults: int
    quarantined: bool


class ChainReadiness(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Indexing progress of one chain. `reason` is for users: why it is not healthy, without secrets."""

    key: str
    healthy: bool
    head: int | None = None
    indexed: int | None = None
    lag_blocks: int | None = None
    reason: str | None = None
    endpoints: list[EndpointHealth] = []


class TaskHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Health of one background task: its failed runs, and the reason while it is unhealthy."""

    task: str
    chain: str | None
    healthy: bool
    failures: int
    reason: str | None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Readiness of the server and of each of its chains and background tasks.

    A halted chain need not make the server unready; a task without a chain must be healthy. A server that is
    `stopping` will soon close its port.
    """

    ready: bool
    stopping: bool = False
    chains: list[ChainReadiness]
    tasks: list[TaskHealth] = []


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Position of an event on its chain. `tx_hash` shows whether it is still the same chain."""

    height: int
    log_index: int
    tx_hash: str


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval event of a fungible token, as mined. A `raw` of 2^256-1 is unlimited."""

    position: EventPosition
    time_us: int
    token: str
    owner: str
    spender: str
    raw: int


@dataclass(frozen=True, slots=True)
class ApprovedAsset:
    """The owner's current holding of an approved token, in amounts and USD."""

    symbol: str
    name: str
    decimals: int
    balance: Decimal
    price: Decimal
    value: Decimal


@dataclass(frozen=True, slots=True)
class Allowance:
    """The allowance that is left of an approval at a block.

    Attributes:
        raw: None if the contract does not return it.
        balance: The owner's balance; None if the contract does not return it.
        at_risk: USD of the smaller of the two; None if not known.
        label: Name of the spender; None if not known.
    """

    approval: Approval
    token: Token
    raw: int | None
    unlimited: bool
    balance: int | None
    price: Price | None
    at_risk: Decimal | None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that may move collectibles: all of a collection, or the one with `token_id`.

    Attributes:
        standard: erc721 or erc1155; None if the contract does not return it.
        movable_count: Collectibles (for erc1155: ids) that the operator could move now; None if not known.
    """

    position: EventPosition
    time_us: int
    token: str
    owner: str
    spender: str
    token_id: int | None = None
    standard: str | None = None
    movable_count: int | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Permit2Allowance:
    """A spender that Permit2 (at `contract`) allows to take a token; None is not known.

    Attributes:
        raw: The amount that is left.
        expires_s: Last second of the allowance, in Unix seconds.
        takeable: The amount that the spender could take now.
        at_risk: USD of `takeable`.
    """

    position: EventPosition
    time_us: int
    contract: str
    token: str
    owner: str
    spender: str
    raw: int | None = None
    expires_s: int | None = None
    balance: int | None = None
    takeable: int | None = None
    at_risk: Decimal | None = None

    @property
    def unlimited(self) -> bool:
        """Return True if spending does not reduce the allowance."""
        return self.raw == 2**160 - 1


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    """A page of approvals, newest first.

    Attributes:
        next_position: Where the next page begins; None on the last one.
        assets: Holdings by (owner, token), if known.
        block: The block of the included state; None if nothing was included.
        allowances: What is left of the approvals that no later one replaced.
        operators: On a first page, if included.
        permit2_allowances: On a first page, if included.
        labels: Names of known spenders.
        issues: What could not be read, and the age of the page if the node does not answer.
    """

    items: tuple[Approval, ...]
    next_position: EventPosition | None
    assets: Mapping[tuple[str, str], ApprovedAsset] = field(default_factory=dict)
    block: Block | None = None
    allowances: Mapping[EventPosition, Allowance] = field(default_factory=dict)
    operators: tuple[Operator, ...] | None = None
    permit2_allowances: tuple[Permit2Allowance, ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPosition:
    """The end of a page in a list of transactions. Stored in bookmarks: its field names stay.

    Attributes:
        count: Number of records up to here.
        place: Sort key of the last record: time in microseconds, height, index in the block, hash, chain, account.
        shown: Names of the rows up to here whose blocks could still be replaced.
        pending: Names of such rows behind this position.
    """

    count: int
    place: tuple[int, int, int, str, str, str]
    shown: frozenset[bytes] = frozenset()
    pending: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Filter, order and window of a list of transactions; empty or None does not filter.

    Both ends of the time (microseconds) are included. With `after` the list continues behind an earlier page, and
    `offset` still counts from the beginning. `options` select the images and links of the records.
    """

    limit: int
    offset: int
    newest_first: bool = True
    search: str = ""
    counterparties: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    hide_spam: bool = False
    hide_dust: bool = False
    since_us: int | None = None
    until_us: int | None = None
    token_id: int | None = None
    after: ListPosition | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """One page of transactions, and the position of its end; None on the last page.

    `strengths` are those of the page's prices, for the values of trades.
    """

    document: Transactions
    end: ListPosition | None
    strengths: Strengths = field(default_factory=dict)
