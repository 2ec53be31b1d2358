"""JSON types of answers about accounts, in the encoding `jsonParsed`. Numbers are strict."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec

T = TypeVar("T")
# Whole numbers of the chain: lamports, slots, epochs. The total supply of lamports fits into half of this.
U64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Digits = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,19})$")]
Key = Annotated[str, msgspec.Meta(min_length=32, max_length=44)]
Decimals = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Context(msgspec.Struct):
    """The slot of an answer."""

    slot: U64


class AnswerAtSlot(msgspec.Struct):
    """An answer with its slot. The value is not decoded yet."""

    context: Context
    value: msgspec.Raw


class Amount(msgspec.Struct, gc=False):
    """An amount of a token. The other fields, such as `uiAmount`, are floats and are ignored."""

    amount: Digits
    decimals: Decimals


class Extension(msgspec.Struct):
    """An extension of a token account."""

    extension: str
    state: msgspec.Raw = msgspec.Raw(b"null")


class TokenAccountData(msgspec.Struct, gc=False):
    """The data of a token account."""

    mint: Key
    owner: Key
    tokenAmount: Amount
    state: str = ""
    isNative: bool = False
    extensions: list[Extension] = []


class ParsedData(msgspec.Struct, Generic[T], gc=False):
    """The data of a program's account, parsed by the node."""

    info: T
    type: str


class Data(msgspec.Struct, Generic[T], gc=False):
    """The data of an account that the node could parse."""

    parsed: ParsedData[T]
    program: str = ""


class Account(msgspec.Struct, Generic[T], gc=False):
    """An account that the node could parse."""

    data: Data[T]
    owner: str
    lamports: U64


class AddressedAccount(msgspec.Struct, Generic[T], gc=False):
    """An account with its address."""

    pubkey: Key
    account: T


class Plain(msgspec.Struct):
    """An account with its data in base64."""

    data: tuple[str, str]
    owner: str
    lamports: U64


class Authorized(msgspec.Struct):
    """The authorities of a stake account."""

    staker: Key
    withdrawer: Key


class Lockup(msgspec.Struct):
    """The time until which nothing can be withdrawn."""

    unixTimestamp: I64 = 0


class Meta(msgspec.Struct):
    """The fields that every stake account has."""

    authorized: Authorized
    rentExemptReserve: Digits
    lockup: Lockup = msgspec.field(default_factory=Lockup)


class Delegation(msgspec.Struct):
    """A delegation to a vote account, with its first and last epoch."""

    voter: Key
    stake: Digits
    activationEpoch: Digits
    deactivationEpoch: Digits


class Stake(msgspec.Struct):
    """The fields of a delegated stake account."""

    delegation: Delegation


class StakeAccountData(msgspec.Struct):
    """The data of a stake account."""

    meta: Meta
    stake: Stake | None = None


ParsedTokenAccount = AddressedAccount[Account[TokenAccountData]]
ParsedStakeAccount = AddressedAccount[Account[StakeAccountData]]
