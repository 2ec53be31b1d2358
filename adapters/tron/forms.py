"""The JSON of Tron nodes as structs. Nodes leave out fields that are zero or empty."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from chainfolio.adapters.tron.addresses import parse_address
from chainfolio.adapters.tron.protobuf import encode_field
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer

MAX_TIME_MS = 2**47
HEIGHT_DIGITS = 16  # the first digits of a block's id are its height
Uint63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Height = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
EnumName = Annotated[str, msgspec.Meta(max_length=100)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class RawHeader(msgspec.Struct, gc=False):
    """The part of a block's header that its witness signed."""

    parentHash: Hash
    txTrieRoot: Hash
    witness_address: str = ""
    number: Height = 0
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME_MS)] = 0
    witness_id: Uint63 = 0
    version: Uint63 = 0
    accountStateRoot: str = ""

    def id(self) -> str:
        """Return the id of the block with this header: its height, then the rest of the header's hash.

        Raises:
            ValueError: A field is no hexadecimal.
        """
        encoded = b"".join(
            (
                encode_field(1, self.timestamp),
                encode_field(2, bytes.fromhex(self.txTrieRoot)),
                encode_field(3, bytes.fromhex(self.parentHash)),
                encode_field(7, self.number),
                encode_field(8, self.witness_id),
                encode_field(9, bytes.fromhex(self.witness_address)),
                encode_field(10, self.version),
                encode_field(11, bytes.fromhex(self.accountStateRoot)),
            )
        )
        return f"{self.number:016x}{hashlib.sha256(encoded).hexdigest()[HEIGHT_DIGITS:]}"


class SignedHeader(msgspec.Struct, gc=False):
    """A header with its signature. Only the signed part is decoded."""

    raw_data: RawHeader


class Header(msgspec.Struct):
    """A block without its transactions."""

    blockID: Hash
    block_header: SignedHeader

    def block(self, source: str, height: int | None = None) -> Block:
        """Return the block after a check of its id against its header. The first block's id cannot be checked.

        Args:
            source: The node, for errors.
            height: The requested height, if one was requested.

        Raises:
            BadAnswer: The height is another one, or the id is not that of the header.
        """
        raw = self.block_header.raw_data
        if height is not None and raw.number != height:
            raise BadAnswer(source, f"gives block {raw.number} for block {height}")
        try:
            block_id = raw.id()
        except ValueError:
            raise BadAnswer(source, f"block {raw.number} has a header that is no hexadecimal") from None
        # The first block's header has an address that is text, and is hashed in another way.
        if raw.number and block_id != self.blockID:
            raise BadAnswer(source, f"block {raw.number} has the id {self.blockID}, and its header has {block_id}")
        return Block(raw.number, self.blockID, raw.parentHash, raw.timestamp * 1_000)


class TransactionResult(msgspec.Struct, gc=False):
    """A result of a transaction. The chain writes the first; further ones come from its sender."""

    fee: Int64 = 0
    ret: EnumName = ""
    contractRet: EnumName = ""


class Transaction(msgspec.Struct, gc=False):
    """A transaction. `raw_data_hex` is the signed message; the JSON form of the same is not decoded."""

    txID: Hash
    raw_data_hex: str
    ret: list[TransactionResult] = []
    signature: list[str] = []


class Log(msgspec.Struct, gc=False):
    """An event of a contract. Its address has no prefix."""

    address: str
    topics: list[str] = []
    data: str = ""


class ResourceReceipt(msgspec.Struct, gc=False):
    """Energy and bandwidth of a transaction, paid by stakes or by burnt coins (`…_fee`, in sun)."""

    energy_usage: Uint63 = 0
    energy_fee: Uint63 = 0
    origin_energy_usage: Uint63 = 0
    energy_usage_total: Uint63 = 0
    net_usage: Uint63 = 0
    net_fee: Uint63 = 0
    energy_penalty_total: Uint63 = 0
    result: str = ""


class CallValue(msgspec.Struct, gc=False):
    """An amount that an internal call carries: coins, or a TRC-10 token."""

    callValue: Uint63 = 0
    tokenId: str = ""


class InternalTransaction(msgspec.Struct, gc=False):
    """A call that a contract made. `note` is its kind, in hexadecimal."""

    caller_address: str
    transferTo_address: str = ""
    callValueInfo: list[CallValue] = []
    note: str = ""
    rejected: bool = False

    def kind(self, source: str) -> str:
        """Return the note as text.

        Raises:
            BadAnswer: The note is no hexadecimal text.
        """
        try:
            return bytes.fromhex(self.note).decode()
        except ValueError:
            raise BadAnswer(source, f"an internal transaction of a kind that is no text, {self.note[:60]!r}") from None


class TransactionInfo(msgspec.Struct):
    """A transaction's receipt: fee, resources, events, internal calls, and amounts paid by the chain."""

    id: Hash
    fee: Uint63 = 0
    blockNumber: Height = 0
    contract_address: str = ""
    receipt: ResourceReceipt = msgspec.field(default_factory=ResourceReceipt)
    log: list[Log] = []
    result: str = ""
    internal_transactions: list[InternalTransaction] = []
    assetIssueID: str = ""
    withdraw_amount: Uint63 = 0
    unfreeze_amount: Uint63 = 0
    withdraw_expire_amount: Uint63 = 0
    exchange_received_amount: Uint63 = 0
    exchange_inject_another_amount: Uint63 = 0
    exchange_withdraw_another_amount: Uint63 = 0
    exchange_id: Uint63 = 0


class FullBlock(Header, kw_only=True):
    """A block with its transactions."""

    transactions: list[Transaction] = []


class Trc10Balance(msgspec.Struct, gc=False):
    """An amount of a TRC-10 token, by its number."""

    key: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    value: Uint63 = 0


class FrozenV2(msgspec.Struct, gc=False):
    """Staked coins (Stake 2.0). Without a type they are for bandwidth."""

    amount: Uint63 = 0
    type: str = "BANDWIDTH"


class UnfrozenV2(msgspec.Struct, gc=False):
    """Unfreezing coins (Stake 2.0), which can be withdrawn from a time on (milliseconds)."""

    unfreeze_amount: Uint63 = 0
    unfreeze_expire_time: Uint63 = 0
    type: str = "BANDWIDTH"


class FrozenV1(msgspec.Struct, gc=False):
    """Staked coins (Stake 1.0), which can be unfrozen from a time on (milliseconds)."""

    frozen_balance: Uint63 = 0
    expire_time: Uint63 = 0


class AccountResource(msgspec.Struct):
    """Stakes of an account for energy: its own, lent to others, and lent to it."""

    frozen_balance_for_energy: FrozenV1 | None = None
    delegated_frozen_balance_for_energy: Uint63 = 0
    delegated_frozenV2_balance_for_energy: Uint63 = 0
    acquired_delegated_frozen_balance_for_energy: Uint63 = 0
    acquired_delegated_frozenV2_balance_for_energy: Uint63 = 0


class Vote(msgspec.Struct, gc=False):
    """Votes for a witness."""

    vote_address: str
    vote_count: Uint63 = 0


class Key(msgspec.Struct, gc=False):
    """An address that may sign, with its weight."""

    address: str
    weight: Uint63 = 0


class Permission(msgspec.Struct):
    """The keys that may sign for an account."""

    id: Uint63 = 0
    keys: list[Key] = []
    threshold: Uint63 = 1


class Wallet(msgspec.Struct):
    """An account. One that was never activated has all fields empty, also the address."""

    address: str = ""
    balance: Uint63 = 0
    assetV2: list[Trc10Balance] = []
    frozen: list[FrozenV1] = []
    frozenV2: list[FrozenV2] = []
    unfrozenV2: list[UnfrozenV2] = []
    delegated_frozen_balance_for_bandwidth: Uint63 = 0
    delegated_frozenV2_balance_for_bandwidth: Uint63 = 0
    acquired_delegated_frozen_balance_for_bandwidth: Uint63 = 0
    acquired_delegated_frozenV2_balance_for_bandwidth: Uint63 = 0
    account_resource: AccountResource = msgspec.field(default_factory=AccountResource)
    votes: list[Vote] = []
    allowance: Uint63 = 0
    owner_permission: Permission | None = None
    active_permission: list[Permission] = []

    def check(self, source: str, account: str) -> None:
        """Check that this is the requested account.

        Raises:
            BadAnswer: It is another one.
        """
        if self.address and parse_address(source, self.address) != account:
            raise BadAnswer(source, f"gives account {self.address[:60]} for {account}")
