"""What a transaction had the stake program do: its instructions, those inside of others included. No I/O.

The numbers and the order of accounts are those of the program: https://github.com/solana-program/stake
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from solders.pubkey import Pubkey

from adapters.solana.forms import U64, Key
from adapters.solana.layouts import STAKE, SYSTEM, TOKEN
from adapters.solana.transactions import COMPUTE_BUDGET, Index, Loaded
from chainfolio.errors import BadAnswer
from transport.wire import typed

INITIALIZE, AUTHORIZE, DELEGATE, SPLIT, WITHDRAW, LOCK, MERGE = 0, 1, 2, 3, 4, 6, 7
AUTHORIZE_SEEDED, INITIALIZE_CHECKED, AUTHORIZE_CHECKED, AUTHORIZE_CHECKED_SEEDED = 8, 9, 10, 11
LOCK_CHECKED, MOVE_STAKE, MOVE_LAMPORTS = 12, 16, 17
OF_TWO: Final = (SPLIT, MERGE, MOVE_STAKE, MOVE_LAMPORTS)  # they begin with two stake accounts
WITHDRAWER: Final = 1  # the role
KEY_SIZE: Final = 32
SILENT: Final = frozenset([STAKE, SYSTEM, TOKEN, COMPUTE_BUDGET])  # programs that call none
NOT_KEPT: Final = "the node does not keep what programs called, so that what was done with stake is not known"


class StakeCall(NamedTuple):
    """One instruction of the stake program: which, the accounts in their order, and what is behind its number."""

    kind: int
    accounts: tuple[str, ...]
    content: bytes

    @property
    def stakes(self) -> tuple[str, ...]:
        """The stake accounts that it is about."""
        return self.accounts[: 2 if self.kind in OF_TWO else 1]

    @property
    def authority(self) -> str | None:
        """Who had to be the withdrawer for it to succeed; None where it takes none."""
        if self.kind == WITHDRAW:
            return self._account(4)
        return self._account(2) if self.kind in (AUTHORIZE, AUTHORIZE_CHECKED) and self.withdrawer else None

    @property
    def withdrawer(self) -> str | None:
        """Who may withdraw from then on; None where that does not change."""
        if self.kind == INITIALIZE:
            return self._key(KEY_SIZE)
        if self.kind == INITIALIZE_CHECKED:
            return self._account(3)
        if self.kind in (AUTHORIZE, AUTHORIZE_SEEDED):
            return self._key(0) if self._role(KEY_SIZE) == WITHDRAWER else None
        if self.kind in (AUTHORIZE_CHECKED, AUTHORIZE_CHECKED_SEEDED):
            return self._account(3) if self._role(0) == WITHDRAWER else None
        return None

    @property
    def unlock_s(self) -> int | None:
        """Until when nothing may be withdrawn from then on; None where that does not change."""
        if self.kind == INITIALIZE:
            return int.from_bytes(self.content[2 * KEY_SIZE :][:8], "little", signed=True)
        if self.kind in (LOCK, LOCK_CHECKED) and self.content[:1] == b"\1":
            return int.from_bytes(self.content[1:9], "little", signed=True)
        return None

    @property
    def voter(self) -> str | None:
        """To whom it is delegated from then on; None where that does not change."""
        return self._account(1) if self.kind == DELEGATE else None

    def is_by(self, account: str) -> bool:
        """Whether an account had a say in it, or was given one; who is paid by it had none."""
        others = self.accounts[len(self.stakes) :]
        if self.kind == WITHDRAW:
            others = self.accounts[2:]
        return account in others or account in (self._key(0), self._key(KEY_SIZE), self.withdrawer)

    def _account(self, place: int) -> str | None:
        return self.accounts[place] if place < len(self.accounts) else None

    def _key(self, at: int) -> str | None:
        """An address in the data of those that name one there."""
        if self.kind not in (INITIALIZE, AUTHORIZE, AUTHORIZE_SEEDED) or len(self.content) < at + KEY_SIZE:
            return None
        return str(Pubkey.from_bytes(self.content[at : at + KEY_SIZE]))

    def _role(self, at: int) -> int:
        return int.from_bytes(self.content[at : at + 4], "little")


class _Call(msgspec.Struct):
    programIdIndex: Index
    accounts: list[Index]
    data: str


class _Inside(msgspec.Struct):
    """What the instruction of that number called itself."""

    index: Index
    instructions: list[_Call]


class _Meta(msgspec.Struct):
    preBalances: list[U64]
    postBalances: list[U64]
    err: Any = None
    innerInstructions: list[_Inside] | None = None
    loadedAddresses: Loaded | None = None


class _Message(msgspec.Struct):
    accountKeys: list[Key]
    instructions: list[_Call]


class _Signed(msgspec.Struct):
    signatures: Annotated[list[str], msgspec.Meta(min_length=1)]
    message: _Message


class _Entry(msgspec.Struct):
    transaction: _Signed
    slot: U64
    meta: _Meta | None = None


class Staked(NamedTuple):
    """What a transaction had the stake program do, None where the node does not keep what programs called; and what
    each of its accounts had in lamports before and after."""

    signature: str
    slot: int
    calls: tuple[StakeCall, ...] | None
    lamports: dict[str, tuple[int, int]]


def staked(source: str, content: bytes) -> Staked | None:
    """The part of a transaction that is about stake; None where what came of it is not kept."""
    entry = typed(source, content, _Entry)
    meta, message = entry.meta, entry.transaction.message
    if meta is None:
        return None
    loaded = meta.loadedAddresses or Loaded()
    keys = [*message.accountKeys, *loaded.writable, *loaded.readonly]
    if not len(keys) == len(meta.preBalances) == len(meta.postBalances):
        raise BadAnswer(source, f"a transaction of slot {entry.slot} with {len(keys)} accounts and other balances")
    lamports = dict(zip(keys, zip(meta.preBalances, meta.postBalances, strict=True), strict=True))
    if meta.err is not None or STAKE not in keys:
        return Staked(entry.transaction.signatures[0], entry.slot, (), lamports)
    calls = list(_calls(source, keys, message, meta))
    programs = {keys[each.programIdIndex] for each in message.instructions}
    is_whole = meta.innerInstructions is not None or programs <= SILENT
    return Staked(entry.transaction.signatures[0], entry.slot, tuple(calls) if is_whole else None, lamports)


def _calls(source: str, keys: Sequence[str], message: _Message, meta: _Meta) -> Iterator[StakeCall]:
    """In the order in which they were carried out."""
    inside = {each.index: each.instructions for each in meta.innerInstructions or ()}
    for number, outer in enumerate(message.instructions):
        for each in (outer, *inside.get(number, ())):
            if max([each.programIdIndex, *each.accounts]) >= len(keys):
                raise BadAnswer(source, "an instruction with an account that the transaction does not name")
            if keys[each.programIdIndex] == STAKE:
                content = _decoded(source, each.data)
                accounts = tuple(keys[place] for place in each.accounts)
                yield StakeCall(int.from_bytes(content[:4], "little"), accounts, content[4:])


def _decoded(source: str, text: str) -> bytes:
    import base58

    try:
        return base58.b58decode(text)
    except ValueError:
        raise BadAnswer(source, "data of an instruction that is not in base58") from None


def named_by(calls: Iterable[StakeCall], account: str) -> set[str]:
    """The stake accounts in which an account had a say, by some instructions."""
    return {stake for each in calls if each.is_by(account) for stake in each.stakes}
