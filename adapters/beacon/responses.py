"""The responses of the Beacon API as structs, with the fields that are used.

Blocks are in `block_responses.py`.

Numbers come as text from most nodes and as numbers from some; both are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from chainfolio.errors import BadAnswer

T = TypeVar("T")
FAR_FUTURE: Final = 2**64 - 1
FORKS: Final = ("phase0", "altair", "bellatrix", "capella", "deneb", "electra", "fulu")

Epoch = Annotated[int, Meta(ge=0)]  # FAR_FUTURE if it is not scheduled
Number = Annotated[int, Meta(ge=0, le=2**62)]
Gwei = Number
SignedNumber = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Root = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{64}$", max_length=66)]
Key = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{96}$", max_length=98)]
LongRoot = Annotated[str, Meta(min_length=66, max_length=66)]
LongKey = Annotated[str, Meta(min_length=98, max_length=98)]
Address = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$", max_length=42)]
Bits = Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})*$", max_length=2**16)]


class StateResponse(Struct, Generic[T], frozen=True, gc=False):
    """A response about a state. `execution_optimistic`: the node has not verified the block's payload yet."""

    data: T
    execution_optimistic: bool = False
    finalized: bool | None = None
    version: str = ""


class Genesis(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/genesis`; the time is in seconds."""

    genesis_time: Number
    genesis_validators_root: Root
    genesis_fork_version: str


class HeaderMessage(Struct, frozen=True, gc=False):
    """The fields of a block's header that its root commits to."""

    slot: Number
    proposer_index: Number
    parent_root: Root
    state_root: Root
    body_root: Root


class SignedHeader(Struct, frozen=True, gc=False):
    """A header without its signature, which is not checked."""

    message: HeaderMessage


class Header(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/headers/{block}`: a header with its root."""

    root: Root
    header: SignedHeader
    canonical: bool = True


class StateRoot(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/states/{state}/root`."""

    root: Root


class Checkpoint(Struct, frozen=True, gc=False):
    """An epoch and the root of its first block."""

    epoch: Epoch
    root: Root


class Checkpoints(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/states/{state}/finality_checkpoints`."""

    finalized: Checkpoint


class Validator(Struct, frozen=True, gc=False):
    """A validator's record in a state."""

    pubkey: Key
    withdrawal_credentials: Root
    effective_balance: Gwei
    slashed: bool
    activation_eligibility_epoch: Epoch
    activation_epoch: Epoch
    exit_epoch: Epoch
    withdrawable_epoch: Epoch


class ValidatorState(Struct, frozen=True, gc=False):
    """A validator with its balance and status, as `/eth/v1/beacon/states/{state}/validators` returns it."""

    index: Number
    balance: Gwei
    status: str
    validator: Validator


class RegistryFields(Struct, frozen=True, gc=False):
    """The fields of a validator that may change. Hex digits are checked when a whole column is built."""

    withdrawal_credentials: LongRoot
    effective_balance: Gwei
    slashed: bool
    activation_eligibility_epoch: Epoch
    activation_epoch: Epoch
    exit_epoch: Epoch
    withdrawable_epoch: Epoch


class KeyedFields(RegistryFields, frozen=True, gc=False, kw_only=True):
    """The fields of a validator with its public key."""

    pubkey: LongKey


class RegistryRow(Struct, frozen=True, gc=False):
    """A validator without its public key, which never changes and is not decoded twice."""

    index: Number
    balance: Gwei
    validator: RegistryFields


class KeyedRow(Struct, frozen=True, gc=False):
    """A validator with its public key."""

    index: Number
    balance: Gwei
    validator: KeyedFields


class BalanceRow(Struct, frozen=True, gc=False):
    """A validator's balance, as `/eth/v1/beacon/states/{state}/validator_balances` returns it."""

    index: Number
    balance: Gwei


class IdealReward(Struct, frozen=True, gc=False):
    """Gwei that a perfect attester of an effective balance earns in an epoch."""

    effective_balance: Gwei
    head: SignedNumber
    target: SignedNumber
    source: SignedNumber


class TotalReward(Struct, frozen=True, gc=False):
    """Gwei that a validator's attestation earned in an epoch, negative for penalties."""

    validator_index: Number
    head: SignedNumber
    target: SignedNumber
    source: SignedNumber
    inactivity: SignedNumber = 0
    inclusion_delay: SignedNumber | None = None


class AttestationRewards(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/rewards/attestations/{epoch}`."""

    ideal_rewards: list[IdealReward]
    total_rewards: list[TotalReward]


class SyncReward(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/rewards/sync_committee/{block}`: gwei of one member, negative for penalties."""

    validator_index: Number
    reward: SignedNumber


class BlockReward(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/rewards/blocks/{block}`: what the proposer earned."""

    proposer_index: Number
    total: Gwei
    attestations: Gwei
    sync_aggregate: Gwei
    proposer_slashings: Gwei
    attester_slashings: Gwei


class SyncCommittee(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/states/{state}/sync_committees`: its members, with repetitions."""

    validators: list[Number]


class ProposerDuty(Struct, frozen=True, gc=False):
    """A slot's proposer, as `/eth/v1/validator/duties/proposer/{epoch}` returns it."""

    validator_index: Number
    slot: Number


class Randao(Struct, frozen=True, gc=False):
    """`/eth/v1/beacon/states/{state}/randao`."""

    randao: Root


class PendingDeposit(Struct, frozen=True, gc=False):
    """A deposit that the chain has not credited yet."""

    pubkey: Key
    withdrawal_credentials: Root
    amount: Gwei
    signature: str
    slot: Number


class PendingConsolidation(Struct, frozen=True, gc=False):
    """A validator whose balance is about to move to another one."""

    source_index: Number
    target_index: Number


class Committee(Struct, frozen=True, gc=False):
    """A committee of a slot, as `/eth/v1/beacon/states/{state}/committees` returns it."""

    index: Number
    slot: Number
    validators: list[Number]


class NodeVersion(Struct, frozen=True, gc=False):
    """`/eth/v1/node/version`."""

    version: Annotated[str, Meta(max_length=512)]


class SyncStatus(Struct, frozen=True, gc=False):
    """`/eth/v1/node/syncing`."""

    head_slot: Number
    is_syncing: bool
    is_optimistic: bool = False


def response_decoder(kind: type[T]) -> Callable[[str, bytes], StateResponse[T]]:
    """Return a decoder of responses with data of a type. It raises BadAnswer if a response does not fit."""
    return partial(_decode, cast("msgspec.json.Decoder[StateResponse[T]]", _json_decoder(cast("Hashable", kind))))


@lru_cache(maxsize=64)
def _json_decoder(kind: Hashable) -> object:
    response: Any = StateResponse
    return msgspec.json.Decoder(response[kind], strict=False)


def _decode(decoder: msgspec.json.Decoder[StateResponse[T]], source: str, body: bytes) -> StateResponse[T]:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
