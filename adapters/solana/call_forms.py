"""JSON types of transactions with the instructions that programs called, in the encoding `json`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from chainfolio.adapters.solana.forms import U64, Key
from chainfolio.adapters.solana.transactions import Index, LoadedAddresses, TokenBalance


class Call(msgspec.Struct):
    """An instruction. `stackHeight` is 1 for those of the transaction itself; old nodes leave it out."""

    programIdIndex: Index
    accounts: list[Index]
    data: str
    stackHeight: int | None = None


class InnerInstructions(msgspec.Struct):
    """The inner instructions of the instruction `index`, in order of execution."""

    index: Index
    instructions: list[Call]


class CallMeta(msgspec.Struct):
    """The outcome of a transaction."""

    fee: U64
    preBalances: list[U64]
    postBalances: list[U64]
    err: Any = None
    innerInstructions: list[InnerInstructions] | None = None
    loadedAddresses: LoadedAddresses | None = None
    preTokenBalances: list[TokenBalance] | None = None
    postTokenBalances: list[TokenBalance] | None = None


class CallMessage(msgspec.Struct):
    """The signed message of a transaction."""

    accountKeys: list[Key]
    instructions: list[Call]


class SignedCalls(msgspec.Struct):
    """A message with its signatures."""

    signatures: Annotated[list[str], msgspec.Meta(min_length=1)]
    message: CallMessage


class CallEntry(msgspec.Struct):
    """A transaction by its signature. `meta` is None if the node did not record its outcome."""

    transaction: SignedCalls
    slot: U64
    meta: CallMeta | None = None
