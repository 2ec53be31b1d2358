"""Abilities that not every chain has, and the methods behind each.

A chain declares its capabilities; that is the only way. `doctor` and `status` show them. `require_capability` returns
the methods behind one, or raises MissingCapability; `find_capability` returns None for a chain that lacks it. No method
exists only to raise. Wrappers that delegate to a chain have its capabilities too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol, overload

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import Forecast, IndexedTransaction, SpanTables
from chainfolio.contracts import Issue, TransactionDetails
from chainfolio.errors import MissingCapability
from chainfolio.plans import Plan
from chainfolio.position_changes import CallChange, EventLog
from chainfolio.proofs import BlockProofs
from chainfolio.validators import HasValidators

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
    from chainfolio.interactions import EventRow
    from chainfolio.positions import OpenPosition
    from chainfolio.protocols import InstalledProtocol


class Capability(StrEnum):
    """An ability that not every chain has.

    Attributes:
        APPROVALS: Accounts can allow others to spend.
        PAST_BALANCES: Nodes serve the state of past blocks.
        PROOFS: Balances can be proven against a block's hash.
        TRANSACTIONS: Single transactions can be read.
        RESTORE: Stored rows can be decoded again without a node.
        CROSS_CHECK: Each endpoint can be asked for the hash of a block.
        ACCOUNT_HISTORY: The rows of some accounts can be read without those of others.
        FORECASTS: The cost of an account history can be estimated by its own method, not from a sample of reads.
        RECEIPTS: Receipts have all events of a block, also those that are missing from event queries.
        EVENT_LOGS: Single transactions can be read with all their logs.
        PROGRAM_CALLS: Single transactions can be read with all calls of programs.
        PAST_COINS: Some nodes serve past balances of the native coin, although they serve no other past state.
        PAST_POSITIONS: Some past positions follow from transactions, although nodes serve no past state.
        OLDEST_BLOCK: Nodes drop their oldest blocks, and show the lowest height that they still have.
        HEAD_EVENTS: Nodes push notifications of new blocks.
        NAMES: Accounts can have readable names.
        VALIDATORS: The chain has validators.
    """

    APPROVALS = "approvals"
    PAST_BALANCES = "past_balances"
    PROOFS = "proofs"
    TRANSACTIONS = "transactions"
    RESTORE = "restore"
    CROSS_CHECK = "cross_check"
    ACCOUNT_HISTORY = "account_history"
    FORECASTS = "forecasts"
    RECEIPTS = "receipts"
    EVENT_LOGS = "event_logs"
    PROGRAM_CALLS = "program_calls"
    PAST_COINS = "past_coins"
    PAST_POSITIONS = "past_positions"
    OLDEST_BLOCK = "oldest_block"
    HEAD_EVENTS = "head_events"
    NAMES = "names"
    VALIDATORS = "validators"


# Requests fail without these. The others only add to an answer, or make it cheaper.
REQUESTED_CAPABILITIES: Final = (
    Capability.APPROVALS,
    Capability.PAST_BALANCES,
    Capability.PROOFS,
    Capability.TRANSACTIONS,
    Capability.RESTORE,
    Capability.CROSS_CHECK,
    Capability.ACCOUNT_HISTORY,
)


class CapableChain(Protocol):
    """The part of a chain that names its capabilities."""

    @property
    def key(self) -> str:
        """The key in the settings."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the chain has."""


class PruningChain(Protocol):
    """The methods behind `Capability.OLDEST_BLOCK`."""

    async def first_served(self) -> int:
        """Return the lowest height whose block a node still has."""


class ReceiptReader(Protocol):
    """The methods behind `Capability.RECEIPTS`."""

    async def collect_receipts(self, height: int, datasets: Sequence[str]) -> SpanTables:
        """Return the rows of some event datasets in one block, made from the receipts of all its transactions.

        Raises:
            SourceError: no endpoint gives receipts that belong to the block.
            Contradiction: the block's receipts root or bloom denies them.
        """


class EventLogReader(Protocol):
    """The methods behind `Capability.EVENT_LOGS`."""

    async def event_logs(self, transactions: Sequence[tuple[str, int]]) -> list[tuple[EventLog, ...]]:
        """Return the logs of transactions (hash and height), in order.

        Raises:
            NodeBehind: the node lacks one.
            Reorged: the node has one in another block.
        """


class CallChangeReader(Protocol):
    """The methods behind `Capability.PROGRAM_CALLS`."""

    async def call_changes(
        self, transactions: Sequence[tuple[str, int]], protocols: Sequence[InstalledProtocol]
    ) -> list[tuple[CallChange, ...] | None]:
        """Return what calls of protocols changed in transactions (hash and height), in order.

        None if the node did not record all calls of a transaction.

        Raises:
            NodeBehind: the node lacks one.
            BadAnswer: one contradicts itself.
        """


class PastCoinReader(Protocol):
    """The methods behind `Capability.PAST_COINS`."""

    async def coins_at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """Return native balances at a block, by its hash; accounts that no node can answer are left out."""


class PastPositionReader(Protocol):
    """The methods behind `Capability.PAST_POSITIONS`."""

    @property
    def past_positions(self) -> Collection[str]:
        """The protocols whose past positions are complete, or reported as missing by an issue."""

    async def positions_at(
        self, accounts: Collection[str], block: Block
    ) -> Mapping[str, tuple[Sequence[OpenPosition], Sequence[Issue]]]:
        """Return the positions of accounts at a block, and issues about unknown ones."""


class HeadListener(Protocol):
    """The methods behind `Capability.HEAD_EVENTS`."""

    async def announced(self, within_s: float) -> bool:
        """Wait at most `within_s` seconds for news of a block, a reorg or finality; True if some came."""

    @property
    def listener_failures(self) -> int:
        """The number of restarts of the listener after an error that is not a node's: a metric."""


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


class BalanceProver(Protocol):
    """The methods behind `Capability.PROOFS`."""

    async def prove(self, block: Block, account: str, balances: Mapping[Asset, int | None]) -> BlockProofs:
        """Prove balances against the hash of a block; a balance of None could not be read."""


class TransactionReader(Protocol):
    """The methods behind `Capability.TRANSACTIONS`."""

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Read indexed transactions, in order.

        Raises:
            BadAnswer: the node has one at another position than the index.
            Reorged: its block may still be reorged.
            NodeBehind: the node does not have it.
        """


class RowDecoder(Protocol):
    """The methods behind `Capability.RESTORE`."""

    def decode_again(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Decode stored rows with the current decoder; KeyError if a stored table lacks a column."""


class HashQuorum(Protocol):
    """The methods behind `Capability.CROSS_CHECK`."""

    async def agreed_hash(self, block: Block) -> str:
        """Return the hash that all endpoints, or most of them ours, have at a final height; else Unavailable."""


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


class AccountForecaster(Protocol):
    """The methods behind `Capability.FORECASTS`."""

    async def forecast_accounts(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None = None
    ) -> Forecast:
        """Estimate the cost of reading accounts in a span of final blocks, with at most 20 requests.

        Raises:
            OverBudget: the budget ends before.
            SourceError: no node answers.
        """


class NameResolver(Protocol):
    """The methods behind `Capability.NAMES`."""

    async def address_of(self, name: str) -> str:
        """Return the account of a name; BadRequest if it is no name, NotFound if it has none or expired."""

    async def name_of(self, address: str) -> str | None:
        """Return the primary name of an account if the name resolves to it, else None."""


CAPABILITY_PROTOCOLS: Final[Mapping[Capability, type]] = {
    Capability.APPROVALS: ApprovalReader,
    Capability.PROOFS: BalanceProver,
    Capability.TRANSACTIONS: TransactionReader,
    Capability.RESTORE: RowDecoder,
    Capability.CROSS_CHECK: HashQuorum,
    Capability.ACCOUNT_HISTORY: AccountHistoryReader,
    Capability.FORECASTS: AccountForecaster,
    Capability.RECEIPTS: ReceiptReader,
    Capability.EVENT_LOGS: EventLogReader,
    Capability.PROGRAM_CALLS: CallChangeReader,
    Capability.PAST_COINS: PastCoinReader,
    Capability.PAST_POSITIONS: PastPositionReader,
    Capability.OLDEST_BLOCK: PruningChain,
    Capability.HEAD_EVENTS: HeadListener,
    Capability.NAMES: NameResolver,
    Capability.VALIDATORS: HasValidators,
}


@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.APPROVALS]) -> ApprovalReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.PROOFS]) -> BalanceProver: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.TRANSACTIONS]) -> TransactionReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.RESTORE]) -> RowDecoder: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.CROSS_CHECK]) -> HashQuorum: ...
@overload
def require_capability(
    chain: CapableChain, capability: Literal[Capability.ACCOUNT_HISTORY]
) -> AccountHistoryReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.FORECASTS]) -> AccountForecaster: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.RECEIPTS]) -> ReceiptReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.EVENT_LOGS]) -> EventLogReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.PROGRAM_CALLS]) -> CallChangeReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.PAST_COINS]) -> PastCoinReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.PAST_POSITIONS]) -> PastPositionReader: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.OLDEST_BLOCK]) -> PruningChain: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.HEAD_EVENTS]) -> HeadListener: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.NAMES]) -> NameResolver: ...
@overload
def require_capability(chain: CapableChain, capability: Literal[Capability.VALIDATORS]) -> HasValidators: ...
def require_capability(chain: CapableChain, capability: Capability) -> object:
    """Return the chain, typed by one of its capabilities.

    Raises:
        MissingCapability: the chain lacks it.
    """
    if capability not in chain.capabilities:
        raise MissingCapability(chain.key, capability.value)
    return chain


@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.APPROVALS]) -> ApprovalReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.PROOFS]) -> BalanceProver | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.TRANSACTIONS]) -> TransactionReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.RESTORE]) -> RowDecoder | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.CROSS_CHECK]) -> HashQuorum | None: ...
@overload
def find_capability(
    chain: CapableChain, capability: Literal[Capability.ACCOUNT_HISTORY]
) -> AccountHistoryReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.FORECASTS]) -> AccountForecaster | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.RECEIPTS]) -> ReceiptReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.EVENT_LOGS]) -> EventLogReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.PROGRAM_CALLS]) -> CallChangeReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.PAST_COINS]) -> PastCoinReader | None: ...
@overload
def find_capability(
    chain: CapableChain, capability: Literal[Capability.PAST_POSITIONS]
) -> PastPositionReader | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.OLDEST_BLOCK]) -> PruningChain | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.HEAD_EVENTS]) -> HeadListener | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.NAMES]) -> NameResolver | None: ...
@overload
def find_capability(chain: CapableChain, capability: Literal[Capability.VALIDATORS]) -> HasValidators | None: ...
def find_capability(chain: CapableChain, capability: Capability) -> object | None:
    """Return the chain, typed by one of its capabilities; None if it lacks it."""
    return chain if capability in chain.capabilities else None


def missing_capabilities(chain: CapableChain) -> list[str]:
    """Return the names of capabilities that a chain lacks, except those that only change its reads."""
    return [each.value for each in REQUESTED_CAPABILITIES if each not in chain.capabilities]
