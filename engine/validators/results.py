"""Result types for validators of the beacon chain; the API returns them unchanged.

Amounts are decimal strings of wei, times are Unix seconds, slots and epochs are numbers of the beacon chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, Protocol, TypeVar

import msgspec

from chainfolio.errors import NotFound, NotSupported

T = TypeVar("T")
ValidatorId = int | str  # an index, or a BLS public key: 0x and 96 lower-case hex digits
Granularity = Literal["epoch", "day", "week", "month"]
RangeType = Literal["timestamp", "epoch"]
# A JSON number with every digit of its decimal: no float comes between.
Ratio = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "number", "minimum": 0, "maximum": 1})]
Status = Literal[
    "pending",
    "active_ongoing",
    "active_exiting",
    "active_slashed",
    "exited_unslashed",
    "exited_slashed",
    "withdrawal_possible",
    "withdrawal_done",
]


class ValidatorIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Identity and status of a validator. `pubkey` is lower-case."""

    index: int
    pubkey: str
    slashed: bool
    status: Status


class ValidatorLifecycle(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Epochs at which a validator entered and left; null if not known yet."""

    activation_epoch: int | None
    activation_timestamp: int | None
    exit_epoch: int | None
    withdrawable_epoch: int | None


class ValidatorBalance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Actual balance and effective balance (which weighs the duties), in wei."""

    actual: str
    effective: str


class WithdrawalCredentials(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Withdrawal credentials of a validator.

    Prefix 0 is a BLS key; 1 and 2 (compounding, EIP-7251) hold an EVM `address`, which is null otherwise.
    """

    prefix: int
    credential: str
    address: str | None


class ValidatorDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The current state of one validator."""

    validator: ValidatorIdentity
    lifecycle: ValidatorLifecycle
    balance: ValidatorBalance
    withdrawal_credentials: WithdrawalCredentials


class ValidatorReward(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Rewards and duties of one bucket: an epoch, or a UTC day, ISO week or month clipped to the range.

    `consensusEfficiency` is between 0 and 1, written digit by digit; null if it cannot be computed. An unknown amount
    is `N/A` and an unknown number of blocks is null: they are never zero.
    """

    epoch_start: int
    epoch_end: int
    timestamp_start: int
    timestamp_end: int
    date_start: str
    date_end: str
    consensus_reward: str
    consensus_potential_reward: str
    consensus_efficiency: Ratio | None
    execution_reward: str
    end_effective_balance: str
    attestations_included: int
    attestations_missed: int
    sync_participations: int
    sync_missed: int
    proposed_blocks: int
    missed_blocks: int | None
    mev_blocks: int | None


class ValidatorWithdrawal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One withdrawal of `amount` wei to an EVM `address`; `index` counts all withdrawals of the chain."""

    slot: int
    epoch: int
    timestamp: int
    index: int
    amount: str
    address: str


class ValidatorDeposit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One deposit of `amount` wei. `withdrawalAddress` is null for BLS credentials (prefix 0).

    `depositIndex` is null if the block does not have it (before EIP-6110).
    """

    slot: int
    epoch: int
    timestamp: int
    deposit_index: int | None
    amount: str
    withdrawal_credentials: str
    withdrawal_address: str | None


@dataclass(frozen=True, slots=True)
class Range:
    """Epochs or Unix seconds, both ends included, cut into buckets; `all` is one bucket."""

    type: RangeType
    first: int
    last: int
    granularity: Granularity | Literal["all"]


@dataclass(frozen=True, slots=True)
class Window:
    """A page of a list: `limit` rows after the first `offset`."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """The rows of a window, and the total number of rows."""

    rows: Sequence[T]
    total: int


class Validators(Protocol):
    """Reads records of validators. A validator that does not exist raises `validator_not_found`."""

    async def details(self, validator: ValidatorId) -> ValidatorDetails:
        """Return the current state of the validator."""

    async def rewards(self, validator: ValidatorId, epochs: Range, window: Window) -> Rows[ValidatorReward]:
        """Return the buckets of a range, earliest first."""

    async def withdrawals(self, validator: ValidatorId, window: Window) -> Rows[ValidatorWithdrawal]:
        """Return the withdrawals, latest first."""

    async def deposits(self, validator: ValidatorId, window: Window) -> Rows[ValidatorDeposit]:
        """Return the deposits, latest first."""


def validator_not_found(validator: ValidatorId) -> NotFound:
    """Return the error for a validator that the beacon chain does not have."""
    kind = "index" if isinstance(validator, int) else "pubkey"
    return NotFound(f"Validator not found for {kind} {validator}")


def no_beacon_chain() -> NotSupported:
    """Return the error for a server without a beacon chain."""
    return NotSupported("validators", "No beacon chain is configured", remedy="add a beacon chain to the settings")
