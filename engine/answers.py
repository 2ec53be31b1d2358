"""What the engine says about chains and accounts, beside portfolios: the API shows these as they are."""

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
    from chainfolio.engine.transactions.page_positions import Reached
    from chainfolio.portfolio.transactions import Transactions


# Transactions that one answer reads from the node: one that filters by more needs `transactions` in the index.
MAX_LOOKUPS: Final = 1000


class ChainFact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One chain as clients know it: how it is named, drawn and linked, and what is answered about it."""

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
    """How fresh what is kept of one account is; a time is None where it was never read. `issues` say why nobody can
    read it."""

    address: str
    portfolio_us: int | None
    transactions_us: int | None
    in_progress: bool
    issues: tuple[IssueDocument, ...] = ()


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One endpoint of a chain by its place in the settings; null if it was not asked yet. A quarantined endpoint gave a
    wrong answer and gets no requests."""

    endpoint: str
    height: int | None
    lag_blocks: int | None
    latency_ms: int | None
    faults: int
    quarantined: bool


class ChainReadiness(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far one chain is indexed. `reason` says in a user's words why it is not healthy, and holds no secret."""

    key: str
    healthy: bool
    head: int | None = None
    indexed: int | None = None
    lag_blocks: int | None = None
    reason: str | None = None
    endpoints: list[EndpointHealth] = []


class TaskHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One background task: how many of its runs failed, and the reason while it is unhealthy."""

    task: str
    chain: str | None
    healthy: bool
    failures: int
    reason: str | None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests should be sent here, the chains one by one (one that halted need not close the others), and the
    background tasks: one that works for no single chain has to be healthy."""

    ready: bool
    chains: list[ChainReadiness]
    tasks: list[TaskHealth] = []


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event lies on its chain, and in which transaction: another one there means another chain."""

    height: int
    log_index: int
    tx_hash: str


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval event of a fungible token, as mined; `raw` 2^256-1 is unlimited."""

    place: Place
    time_us: int
    token: str
    owner: str
    spender: str
    raw: int


@dataclass(frozen=True, slots=True)
class ApprovedAsset:
    """What the owner of an approval holds of the token now, in amounts and USD."""

    symbol: str
    name: str
    decimals: int
    balance: Decimal
    price: Decimal
    value: Decimal


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of an approval at a block. `raw` and `balance` are None where the contract does not say; `at_risk`
    is the USD of the smaller of the two, None where it is not known; `label` is the spender's, None of an unknown."""

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
    """Who may move collectibles: all of a collection, or the one with `token_id`.

    `standard` is erc721 or erc1155, None where the contract does not say. `held`: how many could be moved now (ids, of
    erc1155), None where that is not known.
    """

    place: Place
    time_us: int
    token: str
    owner: str
    spender: str
    token_id: int | None = None
    standard: str | None = None
    held: int | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Permitted:
    """Whom Permit2 (at `contract`) lets take a token from its owner. At a block: `raw` is what is left, until
    `expires_s` (Unix seconds) included; `takes` is how much of it could be taken, `at_risk` the USD of that. None is
    not known."""

    place: Place
    time_us: int
    contract: str
    token: str
    owner: str
    spender: str
    raw: int | None = None
    expires_s: int | None = None
    balance: int | None = None
    takes: int | None = None
    at_risk: Decimal | None = None

    @property
    def unlimited(self) -> bool:
        """Whether it is not used up by what is taken."""
        return self.raw == 2**160 - 1


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    """Approvals, the newest first; the place to go on from (None: no more); assets by (owner, token) where known.

    With `block`, what was included is of that block: what is left of the approvals that no later one replaced, and, on
    a first page, who may move collectibles and whom Permit2 lets take tokens. `labels` are those of the spenders that
    are known. `issues`: what could not be read, and how old the page is if the node does not answer.
    """

    items: tuple[Approval, ...]
    more: Place | None
    assets: Mapping[tuple[str, str], ApprovedAsset] = field(default_factory=dict)
    block: Block | None = None
    allowances: Mapping[Place, Allowance] = field(default_factory=dict)
    operators: tuple[Operator, ...] | None = None
    permitted: tuple[Permitted, ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions to show. Empty or None does not filter; both ends of the time (microseconds) are included.
    With `after` the list goes on behind what was read of it before, and `offset` still counts from its beginning.
    `options` are the pictures and links that records show."""

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
    after: Reached | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """One page, and how far its reader is with it: None where the list ends on it."""

    document: Transactions
    reached: Reached | None
