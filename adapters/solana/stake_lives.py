"""Histories of stake accounts: lamports and withdrawer at any slot, by transactions. No I/O.

Every transaction has the lamports before and after it. The lamports that an account gains between two transactions were
paid as rewards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from chainfolio.adapters.solana.stake_calls import SPLIT, StakeCall

T = TypeVar("T")
MAX_ROUNDS: Final = 8  # of deriving a withdrawer from related stake accounts
NO_OWNER: Final = ""  # the withdrawer of an account that does not exist


class Step(NamedTuple):
    """A transaction that names a stake account: its lamports before and after, and instructions."""

    slot: int
    before: int
    after: int
    calls: tuple[StakeCall, ...] = ()


class Gap(NamedTuple):
    """The time between two transactions of a stake account.

    Attributes:
        start_lamports: After the transaction of `first_slot`; None if that is not known.
        end_lamports: Before the transaction of `last_slot`. The difference was paid as rewards.
        first_slot: The slot of the first transaction.
        last_slot: The slot of the second transaction; rewards may be paid up to this slot.
    """

    start_lamports: int | None
    end_lamports: int
    first_slot: int
    last_slot: int


@dataclass(slots=True)
class _Ownership:
    """A period that begins with the transaction of `slot`, and ends with the next one.

    Attributes:
        slot: Of the transaction.
        owner: The withdrawer; `NO_OWNER` if the account does not exist, None if it is not known yet.
        related: Stake accounts with the same withdrawer at a slot.
    """

    slot: int
    owner: str | None
    related: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class AccountStakeHistory:
    """The history of one stake account.

    Attributes:
        address: Of the stake account.
        steps: All transactions that name it, the oldest first.
        lamports: Its lamports at the slot `top`.
        top: The slot up to which `steps` is complete.
    """

    address: str
    steps: tuple[Step, ...]
    lamports: int
    top: int
    _ownerships: list[_Ownership] = field(default_factory=list)

    def gap(self, slot: int) -> Gap:
        """Return the gap in which the end of a slot lies."""
        number = bisect_right(self.steps, slot, key=lambda step: step.slot)
        after = self.steps[number] if number < len(self.steps) else Step(self.top, self.lamports, self.lamports)
        if number:
            last = self.steps[number - 1]
            return Gap(last.after, after.before, last.slot, after.slot)
        return Gap(None if after.before else 0, after.before, slot, after.slot)

    def may_have_earned(self, first: int, last: int, *, default: bool) -> bool:
        """Return True if rewards may have been paid in the slots `first` to `last`.

        Args:
            first: The first slot.
            last: The last slot.
            default: The result if the transactions do not show it.
        """
        step_slots = (step.slot for step in self.steps if first <= step.slot < last)
        gaps = [self.gap(slot) for slot in (first - 1, *step_slots)]
        complete_gaps = [gap for gap in gaps if gap.start_lamports is not None]
        is_complete = len(complete_gaps) == len(gaps) and last <= self.top
        return any(gap.start_lamports != gap.end_lamports for gap in complete_gaps) or (default and not is_complete)

    def owner(self, slot: int) -> str | None:
        """Return the withdrawer at the end of a slot; None if unknown, `NO_OWNER` without an account."""
        number = bisect_right(self._ownerships, slot, key=lambda ownership: ownership.slot)
        return self._ownerships[number - 1].owner if number else None

    def last_value(self, slot: int, value_of: Callable[[StakeCall], T | None]) -> T | None:
        """Return the value in the last instruction up to a slot that has one; None if no instruction has one."""
        calls = (call for step in reversed(self.steps) if step.slot <= slot for call in reversed(step.calls))
        values = (value_of(call) for call in calls if call.stakes[:1] == (self.address,))
        return next((value for value in values if value is not None), None)


def add_owners(histories: Sequence[AccountStakeHistory], owners: Mapping[str, str]) -> dict[str, AccountStakeHistory]:
    """Store successive withdrawers in the histories of stake accounts; return these by address.

    The withdrawers follow from instructions that set them or needed their signature, and from related accounts.

    Args:
        histories: Stake accounts, with those that were split from them or merged with them.
        owners: The current withdrawers, without the unknown ones.
    """
    by_address = {history.address: history for history in histories}
    for history in histories:
        history._ownerships[:] = _ownerships(history, owners.get(history.address))
    for _ in range(MAX_ROUNDS):
        for history in histories:
            for ownership in history._ownerships:
                if ownership.owner is None:
                    ownership.owner = next(_related_owners(history, ownership, by_address), None)
    return by_address


def _related_owners(
    history: AccountStakeHistory, ownership: _Ownership, by_address: Mapping[str, AccountStakeHistory]
) -> Iterator[str]:
    """Yield the known withdrawers of accounts that had the same withdrawer in a common transaction."""
    for address, slot in ownership.related:
        for other_ownership in by_address[address]._ownerships if address in by_address else ():
            if (history.address, slot) in other_ownership.related and other_ownership.owner:
                yield other_ownership.owner


def _correct_last_ownership(last: _Ownership, slot: int, authority: str | None) -> Iterator[_Ownership]:
    """Correct the last ownership by the withdrawer who signed, and yield a new one if they differ.

    An unknown owner becomes the signer. If another owner was known, the node left out the transaction that changed the
    withdrawer: the last owner becomes unknown and loses its related accounts, and the signer's period begins at `slot`.
    Without a signer or an existing account nothing changes.
    """
    if authority is None or last.owner in (authority, NO_OWNER):
        return
    if last.owner is None:
        last.owner = authority
        return
    last.owner = None
    last.related.clear()
    yield _Ownership(slot, authority)


def _ownerships(history: AccountStakeHistory, owner: str | None) -> list[_Ownership]:
    """Return who could withdraw from which slot on, from slot 0, with the related stakes.

    Stakes are related if a call of that time names both.

    An owner is None if unknown, and NO_OWNER while the account did not exist.

    Args:
        owner: The current one, which replaces an unknown last one; None if it is not known.
    """
    did_not_exist = history.steps and history.steps[0].before == 0
    ownerships = [_Ownership(0, NO_OWNER if did_not_exist else None)]
    for step in history.steps:
        if step.before == 0:
            ownerships.append(_Ownership(step.slot, NO_OWNER))
        for call in step.calls:
            if history.address not in call.stakes:
                continue
            if call.kind == SPLIT and call.stakes[1:] == (history.address,):
                ownerships.append(_Ownership(step.slot, None))
            ownerships += _correct_last_ownership(ownerships[-1], step.slot, call.authority)
            if call.withdrawer is not None:
                ownerships.append(_Ownership(step.slot, call.withdrawer))
            ownerships[-1].related |= {(stake, step.slot) for stake in call.stakes if stake != history.address}
    if ownerships[-1].owner is None and owner is not None:
        ownerships[-1].owner = owner
    return ownerships
