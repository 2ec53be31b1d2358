"""The shapes of what Tron nodes answer. Fields that are zero or empty are left out by them, as protocol buffers do."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from adapters.tron.addresses import of_hex
from adapters.tron.protobuf import written
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer

MAX_TIME_MS = 2**47
HALF = 16  # digits of a block's id that are its height
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Anything = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Height = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Word = Annotated[str, msgspec.Meta(max_length=100)]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class RawHeader(msgspec.Struct, gc=False):
    """What the witness of a block signed."""

    parentHash: Hash
    txTrieRoot: Hash
    witness_address: str = ""
    number: Height = 0
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME_MS)] = 0
    witness_id: Number = 0
    version: Number = 0
    accountStateRoot: str = ""

    def id(self) -> str:
        """The id of the block with this header: its height, then the rest of its hash."""
        packed = b"".join((
            written(1, self.timestamp), written(2, bytes.fromhex(self.txTrieRoot)),
            written(3, bytes.fromhex(self.parentHash)), written(7, self.number), written(8, self.witness_id),
            written(9, bytes.fromhex(self.witness_address)), written(10, self.version),
            written(11, bytes.fromhex(self.accountStateRoot)),
        ))  # fmt: skip
        return f"{self.number:016x}{hashlib.sha256(packed).hexdigest()[HALF:]}"


class Signed(msgspec.Struct, gc=False):
    """A header with what nobody needs here."""

    raw_data: RawHeader


class Header(msgspec.Struct):
    """A block without its transactions."""

    blockID: Hash
    block_header: Signed

    def block(self, source: str, height: int | None = None) -> Block:
        """As everything else knows a block; BadAnswer where it is another one than was asked for, or where its id is
        not that of its header."""
        raw = self.block_header.raw_data
        if height is not None and raw.number != height:
            raise BadAnswer(source, f"gives block {raw.number} for block {height}")
        try:
            found = raw.id()
        except ValueError:
            raise BadAnswer(source, f"block {raw.number} has a header that is no hexadecimal") from None
        # The first block's header has an address that is text, and is hashed in another way.
        if raw.number and found != self.blockID:
            raise BadAnswer(source, f"block {raw.number} has the id {self.blockID}, and its header has {found}")
        return Block(raw.number, self.blockID, raw.parentHash, raw.timestamp * 1_000)


class Ret(msgspec.Struct, gc=False):
    """How a transaction ended: the chain says the last. The others are there where whoever sent it wrote them."""

    fee: Anything = 0
    ret: Word = ""
    contractRet: Word = ""


class Transaction(msgspec.Struct, gc=False):
    """What was asked of the chain: `raw_data_hex` is all of it, as it was signed."""

    txID: Hash
    raw_data_hex: str
    ret: list[Ret] = []
    signature: list[str] = []


class Log(msgspec.Struct, gc=False):
    """What a contract said. Its address has no prefix."""

    address: str
    topics: list[str] = []
    data: str = ""


class Receipt(msgspec.Struct, gc=False):
    """What a transaction used up: of what its sender or the contract's owner has staked for, and what was burnt."""

    energy_usage: Number = 0
    energy_fee: Number = 0
    origin_energy_usage: Number = 0
    energy_usage_total: Number = 0
    net_usage: Number = 0
    net_fee: Number = 0
    energy_penalty_total: Number = 0
    result: str = ""


class Value(msgspec.Struct, gc=False):
    """What a call of a contract carried: coins, or a token of the chain."""

    callValue: Number = 0
    tokenId: str = ""


class Internal(msgspec.Struct, gc=False):
    """A call that a contract made. `note` is what kind of one, in hexadecimal."""

    caller_address: str
    transferTo_address: str = ""
    callValueInfo: list[Value] = []
    note: str = ""
    rejected: bool = False

    def kind(self, source: str) -> str:
        """The note as text."""
        try:
            return bytes.fromhex(self.note).decode()
        except ValueError:
            raise BadAnswer(source, f"an internal transaction of a kind that is no text, {self.note[:60]!r}") from None


class Info(msgspec.Struct):
    """What a transaction did."""

    id: Hash
    fee: Number = 0
    blockNumber: Height = 0
    contract_address: str = ""
    receipt: Receipt = msgspec.field(default_factory=Receipt)
    log: list[Log] = []
    result: str = ""
    internal_transactions: list[Internal] = []
    assetIssueID: str = ""
    withdraw_amount: Number = 0
    unfreeze_amount: Number = 0
    withdraw_expire_amount: Number = 0
    exchange_received_amount: Number = 0
    exchange_inject_another_amount: Number = 0
    exchange_withdraw_another_amount: Number = 0
    exchange_id: Number = 0


class Whole(Header, kw_only=True):
    """A block with its transactions."""

    transactions: list[Transaction] = []


class Amount(msgspec.Struct, gc=False):
    """So much of a token of the chain, by its number."""

    key: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    value: Number = 0


class Frozen(msgspec.Struct, gc=False):
    """Coins that are staked. Without a type they are for bandwidth."""

    amount: Number = 0
    type: str = "BANDWIDTH"


class Unfreezing(msgspec.Struct, gc=False):
    """Coins that come back at a time."""

    unfreeze_amount: Number = 0
    unfreeze_expire_time: Number = 0
    type: str = "BANDWIDTH"


class OldFrozen(msgspec.Struct, gc=False):
    """Coins that are staked in the first version."""

    frozen_balance: Number = 0
    expire_time: Number = 0


class Resource(msgspec.Struct):
    """What an account has to do with energy."""

    frozen_balance_for_energy: OldFrozen | None = None
    delegated_frozen_balance_for_energy: Number = 0
    delegated_frozenV2_balance_for_energy: Number = 0
    acquired_delegated_frozen_balance_for_energy: Number = 0
    acquired_delegated_frozenV2_balance_for_energy: Number = 0


class Vote(msgspec.Struct, gc=False):
    """Votes for a witness."""

    vote_address: str
    vote_count: Number = 0


class Key(msgspec.Struct, gc=False):
    """An address that may sign."""

    address: str
    weight: Number = 0


class Permission(msgspec.Struct):
    """Who may sign for an account."""

    id: Number = 0
    keys: list[Key] = []
    threshold: Number = 1


class Wallet(msgspec.Struct):
    """An account. One that was never activated has nothing, not even an address."""

    address: str = ""
    balance: Number = 0
    assetV2: list[Amount] = []
    frozen: list[OldFrozen] = []
    frozenV2: list[Frozen] = []
    unfrozenV2: list[Unfreezing] = []
    delegated_frozen_balance_for_bandwidth: Number = 0
    delegated_frozenV2_balance_for_bandwidth: Number = 0
    acquired_delegated_frozen_balance_for_bandwidth: Number = 0
    acquired_delegated_frozenV2_balance_for_bandwidth: Number = 0
    account_resource: Resource = msgspec.field(default_factory=Resource)
    votes: list[Vote] = []
    allowance: Number = 0
    owner_permission: Permission | None = None
    active_permission: list[Permission] = []

    def check(self, source: str, account: str) -> None:
        """Whether it is the account that was asked for; BadAnswer where it is another one."""
        if self.address and of_hex(source, self.address) != account:
            raise BadAnswer(source, f"gives account {self.address[:60]} for {account}")
