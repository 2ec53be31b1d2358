"""What a stake account was, transaction by transaction: what lay in it, and who could withdraw that. No I/O.

Every transaction says what an account had before and after. What it has more before the next one was paid as rewards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from adapters.solana.stake_calls import SPLIT, StakeCall

T = TypeVar("T")
ROUNDS: Final = 8  # of stake accounts that were split from or merged with others whose owner is known


class Step(NamedTuple):
    """One transaction that named a stake account: its lamports before and after, and what was done with it."""

    slot: int
    before: int
    after: int
    calls: tuple[StakeCall, ...] = ()


class Gap(NamedTuple):
    """Between two transactions: what an account had behind the one of slot `since`, where that is known, and before the
    one of slot `until`. What differs was paid as rewards, in the slots behind `since` up to `until`."""

    had: int | None
    has: int
    since: int
    until: int


@dataclass(slots=True)
class _Reign:
    """From the slot of a transaction on somebody could withdraw: "" is nobody, None is not known yet. `kin` are stake
    accounts that had the same withdrawer in the transaction of a slot."""

    slot: int
    owner: str | None
    kin: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Life:
    """A stake account: the transactions that name it, the oldest first, and what it has at the slot `top`."""

    address: str
    steps: tuple[Step, ...]
    lamports: int
    top: int
    _reigns: list[_Reign] = field(default_factory=list)

    def gap(self, slot: int) -> Gap:
        """The time between two transactions in which a slot lies, at its end."""
        number = bisect_right(self.steps, slot, key=lambda each: each.slot)
        behind = self.steps[number] if number < len(self.steps) else Step(self.top, self.lamports, self.lamports)
        if number:
            last = self.steps[number - 1]
            return Gap(last.after, behind.before, last.slot, behind.slot)
        return Gap(None if behind.before else 0, behind.before, slot, behind.slot)

    def may_have_earned(self, first: int, last: int, *, otherwise: bool) -> bool:
        """Whether anything may have been paid as rewards in some slots; `otherwise`, where transactions do not say."""
        within = (each.slot for each in self.steps if first <= each.slot < last)
        gaps = [self.gap(slot) for slot in (first - 1, *within)]
        told = [each for each in gaps if each.had is not None]
        is_told = len(told) == len(gaps) and last <= self.top
        return any(each.had != each.has for each in told) or (otherwise and not is_told)

    def owner(self, slot: int) -> str | None:
        """Who could withdraw from it at the end of a slot: "" is nobody, None where that is not known."""
        number = bisect_right(self._reigns, slot, key=lambda each: each.slot)
        return self._reigns[number - 1].owner if number else None

    def last(self, slot: int, said: Callable[[StakeCall], T | None]) -> T | None:
        """What instructions about it said last, up to a slot."""
        calls = (call for step in reversed(self.steps) if step.slot <= slot for call in reversed(step.calls))
        told = (said(call) for call in calls if call.stakes[:1] == (self.address,))
        return next((each for each in told if each is not None), None)


def lives(lived: Sequence[Life], owners: Mapping[str, str]) -> dict[str, Life]:
    """Stake accounts with who could withdraw when: as instructions say it, and as those that needed the withdrawer bear
    it out. `owners` are those of now."""
    found = {each.address: each for each in lived}
    for each in lived:
        each._reigns[:] = _reigns(each, owners.get(each.address))
    for _ in range(ROUNDS):
        for each in lived:
            for reign in each._reigns:
                if reign.owner is None:
                    reign.owner = next(_of_kin(each, reign, found), None)
    return found


def _of_kin(life: Life, reign: _Reign, found: Mapping[str, Life]) -> Iterator[str]:
    """Who could withdraw from those that had the same withdrawer then."""
    for address, slot in reign.kin:
        for each in found[address]._reigns if address in found else ():
            if (life.address, slot) in each.kin and each.owner:
                yield each.owner


def _signed(last: _Reign, slot: int, authority: str | None) -> Iterator[_Reign]:
    """What follows from who had to be the withdrawer. If that was somebody else before, it was changed at a time that
    no transaction tells: a node has left one out."""
    if authority is None or last.owner in (authority, ""):
        return
    if last.owner is None:
        last.owner = authority
        return
    last.owner = None
    last.kin.clear()
    yield _Reign(slot, authority)


def _reigns(life: Life, owner: str | None) -> list[_Reign]:
    """Who could withdraw, one after the other."""
    found = [_Reign(0, "" if life.steps and life.steps[0].before == 0 else None)]
    for step in life.steps:
        if step.before == 0:
            found.append(_Reign(step.slot, ""))
        for call in step.calls:
            if life.address not in call.stakes:
                continue
            if call.kind == SPLIT and call.stakes[1:] == (life.address,):
                found.append(_Reign(step.slot, None))
            found += _signed(found[-1], step.slot, call.authority)
            if call.withdrawer is not None:
                found.append(_Reign(step.slot, call.withdrawer))
            found[-1].kin |= {(each, step.slot) for each in call.stakes if each != life.address}
    if found[-1].owner is None and owner is not None:
        found[-1].owner = owner
    return found
