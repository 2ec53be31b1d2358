"""What the engine says about validators of the beacon chain: the API shows these as they are.

Amounts are decimal strings of wei, times are unix seconds, slots and epochs are numbers of the beacon chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, Protocol, TypeVar

import msgspec

from chainfolio.errors import NotFound, NotSupported

T = TypeVar("T")
ValidatorId = int | str  # its index, or its BLS public key: 0x and 96 lower-case hex digits
Granularity = Literal["epoch", "day", "week", "month"]
RangeType = Literal["timestamp", "epoch"]
# A JSON number with every digit of the decimal it is made of: no float comes between.
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
    """Which validator, and how it stands. `pubkey` is lower-case."""

    index: int
    pubkey: str
    slashed: bool
    status: Status


class ValidatorLifecycle(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When it entered and left; null where that is not known yet."""

    activation_epoch: int | None
    activation_timestamp: int | None
    exit_epoch: int | None
    withdrawable_epoch: int | None


class ValidatorBalance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What it holds and what its duties are weighed by, in wei."""

    actual: str
    effective: str


class WithdrawalCredentials(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may withdraw: prefix 0 is a BLS key, 1 and 2 (compounding, EIP-7251) an EVM `address`; else that is null."""

    prefix: int
    credential: str
    address: str | None


class ValidatorDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One validator now."""

    validator: ValidatorIdentity
    lifecycle: ValidatorLifecycle
    balance: ValidatorBalance
    withdrawal_credentials: WithdrawalCredentials


class ValidatorReward(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Rewards and duties of one bucket: an epoch, or a UTC day, ISO week or month clipped to the range asked for.

    `consensusEfficiency` is between 0 and 1, written digit by digit; null where it cannot be computed. An amount that
    is not known is `N/A`, a number of blocks that is not known null: it is never zero instead.
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
    """One deposit of `amount` wei; `withdrawalAddress` is null for BLS credentials (prefix 0), `depositIndex` where the
    block does not name it (before EIP-6110)."""

    slot: int
    epoch: int
    timestamp: int
    deposit_index: int | None
    amount: str
    withdrawal_credentials: str
    withdrawal_address: str | None


@dataclass(frozen=True, slots=True)
class Range:
    """Epochs or unix seconds, both ends included, cut into buckets; `all` is one."""

    type: RangeType
    first: int
    last: int
    granularity: Granularity | Literal["all"]


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows of a longer list: `limit` of them after the first `offset`."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """The rows in a window, and how many there are in all."""

    rows: Sequence[T]
    total: int


class Validators(Protocol):
    """The records of validators. One that does not exist is a NotFound (`unknown`)."""

    async def details(self, validator: ValidatorId) -> ValidatorDetails:
        """The validator now."""

    async def rewards(self, validator: ValidatorId, within: Range, window: Window) -> Rows[ValidatorReward]:
        """Its buckets within a range, the earliest first."""

    async def withdrawals(self, validator: ValidatorId, window: Window) -> Rows[ValidatorWithdrawal]:
        """Its withdrawals, the latest first."""

    async def deposits(self, validator: ValidatorId, window: Window) -> Rows[ValidatorDeposit]:
        """Its deposits, the latest first."""


def unknown(validator: ValidatorId) -> NotFound:
    """The error for a validator that the beacon chain does not have."""
    kind = "index" if isinstance(validator, int) else "pubkey"
    return NotFound(f"Validator not found for {kind} {validator}")


def unserved() -> NotSupported:
    """The error of a server without a beacon chain."""
    return NotSupported("validators", "No beacon chain is configured", remedy="add a beacon chain to the settings")
