"""Answers about accounts as nodes write them (`jsonParsed`), strictly: whole numbers, amounts as texts."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec

T = TypeVar("T")
# Whole numbers of the chain: lamports, slots, epochs. All lamports that there are fit into half of this.
U64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Digits = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,19})$")]
Key = Annotated[str, msgspec.Meta(min_length=32, max_length=44)]
Decimals = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Context(msgspec.Struct):
    """At which slot something was read."""

    slot: U64


class ReadAt(msgspec.Struct):
    """A value of which nothing is decoded yet, and at which slot it was read."""

    context: Context
    value: msgspec.Raw


class Amount(msgspec.Struct, gc=False):
    """So much of a token. What else is there (`uiAmount`) is a float, and not looked at."""

    amount: Digits
    decimals: Decimals


class Extension(msgspec.Struct):
    """An extension of a token account."""

    extension: str
    state: msgspec.Raw = msgspec.Raw(b"null")


class Holder(msgspec.Struct, gc=False):
    """What a token account says."""

    mint: Key
    owner: Key
    tokenAmount: Amount
    state: str = ""
    isNative: bool = False
    extensions: list[Extension] = []


class Parsed(msgspec.Struct, Generic[T], gc=False):
    """What a program's account says, as the node has parsed it."""

    info: T
    type: str


class Data(msgspec.Struct, Generic[T], gc=False):
    """The data of an account that the node could parse."""

    parsed: Parsed[T]
    program: str = ""


class Account(msgspec.Struct, Generic[T], gc=False):
    """An account whose data the node could parse."""

    data: Data[T]
    owner: str
    lamports: U64


class Keyed(msgspec.Struct, Generic[T], gc=False):
    """An account with its address."""

    pubkey: Key
    account: T


class Plain(msgspec.Struct):
    """An account of which nothing is parsed: the bytes in base64."""

    data: tuple[str, str]
    owner: str
    lamports: U64


class Authorized(msgspec.Struct):
    """Who decides over a stake account."""

    staker: Key
    withdrawer: Key


class Lockup(msgspec.Struct):
    """Until when nothing can be withdrawn."""

    unixTimestamp: I64 = 0


class Meta(msgspec.Struct):
    """What every stake account says."""

    authorized: Authorized
    rentExemptReserve: Digits
    lockup: Lockup = msgspec.field(default_factory=Lockup)


class Delegation(msgspec.Struct):
    """What is delegated to a validator, and from which epoch to which."""

    voter: Key
    stake: Digits
    activationEpoch: Digits
    deactivationEpoch: Digits


class Stake(msgspec.Struct):
    """The part of a stake account that is there once it is delegated."""

    delegation: Delegation


class Staked(msgspec.Struct):
    """What a stake account says."""

    meta: Meta
    stake: Stake | None = None


TokenAccount = Keyed[Account[Holder]]
StakeAccount = Keyed[Account[Staked]]
