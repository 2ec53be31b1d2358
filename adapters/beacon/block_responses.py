"""Blocks of the Beacon API as structs, with the fields that are used."""

from __future__ import annotations

from msgspec import Struct

from chainfolio.adapters.beacon.responses import Address, Bits, Checkpoint, Gwei, Key, Number, Root


class Withdrawal(Struct, frozen=True, gc=False):
    """A withdrawal to an account of the execution chain."""

    index: Number
    validator_index: Number
    address: Address
    amount: Gwei


class ExecutionPayload(Struct, frozen=True, gc=False):
    """The execution block in a block."""

    block_number: Number
    block_hash: Root
    fee_recipient: Address
    withdrawals: list[Withdrawal] = []


class SyncAggregate(Struct, frozen=True, gc=False):
    """The members of the sync committee that signed the parent block, as bits."""

    sync_committee_bits: Bits


class DepositData(Struct, frozen=True, gc=False):
    """A deposit as its contract logged it."""

    pubkey: Key
    withdrawal_credentials: Root
    amount: Gwei


class Deposit(Struct, frozen=True, gc=False):
    """A deposit that a proposer carried over, as was done before Electra."""

    data: DepositData


class DepositRequest(Struct, frozen=True, gc=False):
    """A deposit that the execution block carries, since Electra."""

    pubkey: Key
    withdrawal_credentials: Root
    amount: Gwei
    index: Number


class WithdrawalRequest(Struct, frozen=True, gc=False):
    """A withdrawal or exit that the validator's withdrawal account requested; an amount of 0 is an exit."""

    source_address: Address
    validator_pubkey: Key
    amount: Gwei


class ConsolidationRequest(Struct, frozen=True, gc=False):
    """A consolidation that the source's withdrawal account requested; equal keys switch to compounding."""

    source_address: Address
    source_pubkey: Key
    target_pubkey: Key


class ExecutionRequests(Struct, frozen=True, gc=False):
    """The requests that the execution block carries, since Electra."""

    deposits: list[DepositRequest] = []
    withdrawals: list[WithdrawalRequest] = []
    consolidations: list[ConsolidationRequest] = []


class SlashedHeader(Struct, frozen=True, gc=False):
    """The field of a slashing's header that names the accused."""

    proposer_index: Number


class SlashedSigned(Struct, frozen=True, gc=False):
    """A slashing's signed header."""

    message: SlashedHeader


class ProposerSlashing(Struct, frozen=True, gc=False):
    """Proof that a validator signed two blocks of one slot; the first header is enough to know it."""

    signed_header_1: SlashedSigned


class IndexedAttestation(Struct, frozen=True, gc=False):
    """A slashing's attestation with the validators that signed it."""

    attesting_indices: list[Number]


class AttesterSlashing(Struct, frozen=True, gc=False):
    """Proof that the validators in both attestations contradicted themselves."""

    attestation_1: IndexedAttestation
    attestation_2: IndexedAttestation


class CredentialsChange(Struct, frozen=True, gc=False):
    """A validator's change to withdrawals to an account."""

    validator_index: Number
    to_execution_address: Address


class SignedCredentialsChange(Struct, frozen=True, gc=False):
    """A change of credentials without its signature."""

    message: CredentialsChange


class BlockBody(Struct, frozen=True, gc=False):
    """A block's body without its attestations."""

    proposer_slashings: list[ProposerSlashing] = []
    attester_slashings: list[AttesterSlashing] = []
    deposits: list[Deposit] = []
    sync_aggregate: SyncAggregate | None = None
    execution_payload: ExecutionPayload | None = None
    bls_to_execution_changes: list[SignedCredentialsChange] = []
    execution_requests: ExecutionRequests = ExecutionRequests()


class BlockMessage(Struct, frozen=True, gc=False):
    """A block without its attestations."""

    slot: Number
    proposer_index: Number
    parent_root: Root
    state_root: Root
    body: BlockBody

    @property
    def accused_validators(self) -> list[int]:
        """The validators in its slashings, in the order of the block."""
        accused = [each.signed_header_1.message.proposer_index for each in self.body.proposer_slashings]
        for pair in self.body.attester_slashings:
            accused += sorted(set(pair.attestation_1.attesting_indices) & set(pair.attestation_2.attesting_indices))
        return accused


class SignedBlock(Struct, frozen=True, gc=False):
    """`/eth/v2/beacon/blocks/{block}`."""

    message: BlockMessage


class VoteData(Struct, frozen=True, gc=False):
    """The block and the target checkpoint that an attestation votes for."""

    slot: Number
    index: Number
    beacon_block_root: Root
    target: Checkpoint


class Attestation(Struct, frozen=True, gc=False):
    """An attestation of one committee, or since Electra of those in `committee_bits`."""

    aggregation_bits: Bits
    data: VoteData
    committee_bits: Bits | None = None


class AttestedBody(Struct, frozen=True, gc=False):
    """A block's body with its attestations alone."""

    attestations: list[Attestation]


class AttestedBlock(Struct, frozen=True, gc=False):
    """A block with its attestations, which are only read if no node serves rewards."""

    slot: Number
    parent_root: Root
    body: AttestedBody


class SignedAttestedBlock(Struct, frozen=True, gc=False):
    """`/eth/v2/beacon/blocks/{block}` with the attestations."""

    message: AttestedBlock
