"""Instructions of the stake program in a transaction, including inner instructions. No I/O.

Numbers and account orders are those of the program. Source: https://github.com/solana-program/stake
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import base58
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.call_forms import CallEntry, CallMessage, CallMeta
from chainfolio.adapters.solana.layouts import STAKE, SYSTEM, TOKEN
from chainfolio.adapters.solana.transactions import COMPUTE_BUDGET, LoadedAddresses
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed

INITIALIZE, AUTHORIZE, DELEGATE, SPLIT, WITHDRAW, LOCK, MERGE = 0, 1, 2, 3, 4, 6, 7
AUTHORIZE_SEEDED, INITIALIZE_CHECKED, AUTHORIZE_CHECKED, AUTHORIZE_CHECKED_SEEDED = 8, 9, 10, 11
LOCK_CHECKED, MOVE_STAKE, MOVE_LAMPORTS = 12, 16, 17
TWO_STAKES: Final = (SPLIT, MERGE, MOVE_STAKE, MOVE_LAMPORTS)  # their first two accounts are stake accounts
WITHDRAWER: Final = 1  # the role of the withdraw authority
KEY_SIZE: Final = 32
LEAF_PROGRAMS: Final = frozenset([STAKE, SYSTEM, TOKEN, COMPUTE_BUDGET])  # programs that call no others
NOT_KEPT: Final = "the node does not keep what programs called, so that what was done with stake is not known"


class StakeCall(NamedTuple):
    """An instruction of the stake program: number, accounts in order, and data after the number."""

    kind: int
    accounts: tuple[str, ...]
    content: bytes

    @property
    def stakes(self) -> tuple[str, ...]:
        """The stake accounts of the instruction."""
        return self.accounts[: 2 if self.kind in TWO_STAKES else 1]

    @property
    def authority(self) -> str | None:
        """The withdraw authority that signed the instruction; None if it needs none."""
        if self.kind == WITHDRAW:
            return self._account(4)
        return self._account(2) if self.kind in (AUTHORIZE, AUTHORIZE_CHECKED) and self.withdrawer else None

    @property
    def withdrawer(self) -> str | None:
        """The new withdraw authority; None if the instruction does not change it."""
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
        """The new time of the lockup; None if the instruction does not change it."""
        if self.kind == INITIALIZE:
            return int.from_bytes(self.content[2 * KEY_SIZE :][:8], "little", signed=True)
        if self.kind in (LOCK, LOCK_CHECKED) and self.content[:1] == b"\1":
            return int.from_bytes(self.content[1:9], "little", signed=True)
        return None

    @property
    def voter(self) -> str | None:
        """The vote account of the new delegation; None if the instruction does not delegate."""
        return self._account(1) if self.kind == DELEGATE else None

    def is_by(self, account: str) -> bool:
        """Return True if an account is an authority of the instruction, or becomes one. Recipients are not."""
        authorities = self.accounts[2 if self.kind == WITHDRAW else len(self.stakes) :]
        return account in authorities or account in (self._key(0), self._key(KEY_SIZE), self.withdrawer)

    def _account(self, index: int) -> str | None:
        return self.accounts[index] if index < len(self.accounts) else None

    def _key(self, at: int) -> str | None:
        """Return an address in the data of an instruction that has one there; None for others."""
        if self.kind not in (INITIALIZE, AUTHORIZE, AUTHORIZE_SEEDED) or len(self.content) < at + KEY_SIZE:
            return None
        return str(Pubkey.from_bytes(self.content[at : at + KEY_SIZE]))

    def _role(self, at: int) -> int:
        return int.from_bytes(self.content[at : at + 4], "little")


class StakeTransaction(NamedTuple):
    """The part of a transaction that concerns stake accounts.

    Attributes:
        signature: The first signature of the transaction.
        slot: Its slot.
        calls: Its instructions of the stake program; None if the node did not record inner instructions.
        lamports: The lamports before and after, by account.
    """

    signature: str
    slot: int
    calls: tuple[StakeCall, ...] | None
    lamports: dict[str, tuple[int, int]]


def account_keys(source: str, entry: CallEntry, meta: CallMeta) -> list[str]:
    """Return the accounts of a transaction in the order of its instructions' indexes, loaded ones last.

    Raises:
        BadAnswer: The number of balances is not the number of accounts.
    """
    loaded = meta.loadedAddresses or LoadedAddresses()
    keys = [*entry.transaction.message.accountKeys, *loaded.writable, *loaded.readonly]
    if not len(keys) == len(meta.preBalances) == len(meta.postBalances):
        raise BadAnswer(source, f"a transaction of slot {entry.slot} with {len(keys)} accounts and other balances")
    return keys


def parse_stake_transaction(source: str, content: bytes) -> StakeTransaction | None:
    """Return the part of a transaction that concerns stake accounts.

    Returns:
        None if the node did not record the outcome of the transaction. A failed one has no calls; `calls` are None if
        inner calls are not recorded, and there may be some.

    Raises:
        BadAnswer: The transaction contradicts itself.
    """
    entry = typed(source, content, CallEntry)
    meta, message = entry.meta, entry.transaction.message
    if meta is None:
        return None
    keys = account_keys(source, entry, meta)
    lamports = dict(zip(keys, zip(meta.preBalances, meta.postBalances, strict=True), strict=True))
    if meta.err is not None or STAKE not in keys:
        return StakeTransaction(entry.transaction.signatures[0], entry.slot, (), lamports)
    calls = list(_calls(source, keys, message, meta))
    programs = {keys[each.programIdIndex] for each in message.instructions}
    is_whole = meta.innerInstructions is not None or programs <= LEAF_PROGRAMS
    return StakeTransaction(entry.transaction.signatures[0], entry.slot, tuple(calls) if is_whole else None, lamports)


def _calls(source: str, keys: Sequence[str], message: CallMessage, meta: CallMeta) -> Iterator[StakeCall]:
    """Yield the stake program's instructions in order of execution; raise BadAnswer if malformed."""
    inner_instructions = {each.index: each.instructions for each in meta.innerInstructions or ()}
    for number, outer in enumerate(message.instructions):
        for each in (outer, *inner_instructions.get(number, ())):
            if max([each.programIdIndex, *each.accounts]) >= len(keys):
                raise BadAnswer(source, "an instruction with an account that the transaction does not name")
            if keys[each.programIdIndex] == STAKE:
                content = instruction_data(source, each.data)
                accounts = tuple(keys[index] for index in each.accounts)
                yield StakeCall(int.from_bytes(content[:4], "little"), accounts, content[4:])


def instruction_data(source: str, text: str) -> bytes:
    """Return the data of an instruction; raise BadAnswer if it is not in base58."""
    try:
        return base58.b58decode(text)
    except ValueError:
        raise BadAnswer(source, "data of an instruction that is not in base58") from None


def stakes_of_authority(calls: Iterable[StakeCall], account: str) -> set[str]:
    """Return the stake accounts in those instructions that an account authorised."""
    return {stake for each in calls if each.is_by(account) for stake in each.stakes}
