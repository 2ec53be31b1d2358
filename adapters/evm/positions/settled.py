"""What a pool consists of where a block moved its price: who has a flash loan moves a pool for one block, and what its
liquidity consists of with it.

A pool is compared with itself at the parent of the block. Where its price moved by more than trades of a block move it,
the state before it counts, unless the block before that bears out the one that is read: then it was the parent that was
moved. What was put in within the block counts as it is, for it was never worth anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol, TypeVar

from adapters.evm.positions.rules import Before, DecoderPlan
from adapters.evm.reads import Call
from chainfolio.plans import Plan, Unknown

MOST: Final = Fraction(105, 100)  # by how much a price may move within a block
STOOD: Final = Fraction(1)


class State(Protocol):
    """What a pool was at one block."""

    def moved(self, before: Any) -> Fraction:
        """By how many times a trade changed its price since; 1 where it did not."""


AState = TypeVar("AState", bound=State)


def settled(
    calls: Sequence[Call], of: Callable[..., AState | None], now: AState, before: Sequence[Any]
) -> Plan[Any, Any, tuple[AState, str]]:
    """The state that counts, and a remark where it is not the one of the block, or could not be compared.

    `of` makes a state of the answers to `calls` (None: there was no pool yet); `before` are those at the parent. One
    more round where the price moved.
    """
    parent = _state(of, before)
    if isinstance(parent, Unknown):
        return now, f"its pool could not be compared with the block before, so who moved it counts: {parent.reason}"
    if parent is None or (move := now.moved(parent)) <= MOST:
        return now, ""
    earlier = _state(of, (yield [Before(call, 2) for call in calls]))
    if earlier is not None and not isinstance(earlier, Unknown) and now.moved(earlier) <= MOST:
        return now, ""
    percent = min(100 * (move - 1), Fraction(10**6)).__ceil__()
    return parent, f"the price in its pool moved by {percent} % within the block: it is shown at the price before that"


def _state(of: Callable[..., AState | None], answers: Sequence[Any]) -> AState | Unknown | None:
    gone = next((each for each in answers if isinstance(each, Unknown)), None)
    return gone or (None if any(each is None for each in answers) else of(*answers))


@dataclass(frozen=True, slots=True)
class Reserves:
    """What a pool holds of each token, and how many shares share it: none of it is zero. `tokens` if they may change:
    what a pool held of others is not compared."""

    held: tuple[int, ...]
    supply: int
    tokens: tuple[str, ...] = ()

    def moved(self, before: Reserves) -> Fraction:
        """As State has it. A trade puts something in and takes something out: a gift or a loss is no trade."""
        if len(self.held) != len(before.held) or self.tokens != before.tokens:
            return STOOD
        each = [
            Fraction(now * before.supply, then * self.supply)
            for now, then in zip(self.held, before.held, strict=True)
        ]  # fmt: skip
        return max(each) / min(each) if max(each) > STOOD > min(each) else STOOD

    def at(self, other: Reserves) -> tuple[int, ...]:
        """What there would be of each token as it was: shares that came since have what they have now."""
        old = min(self.supply, other.supply)
        new = self.supply - old
        return tuple(
            then * old // other.supply + now * new // self.supply
            for now, then in zip(self.held, other.held, strict=True)
        )


def reserves(*answers: int, tokens: tuple[str, ...] = ()) -> Reserves | None:
    """Reserves by the amounts and, last, the number of shares; None where there are none."""
    *held, supply = answers
    return Reserves(tuple(held), supply, tokens) if held and min(answers) > 0 else None


def fair(calls: Sequence[Call], of: Callable[..., Reserves | None], given: Sequence[Any]) -> DecoderPlan:
    """What a pool of shares holds of each token, at the price that counts, and a remark; `given` are the answers to
    `calls` now and before. None where the pool is empty."""
    now = of(*given[: len(calls)])
    if now is None:
        return None
    counted, remark = yield from settled(calls, of, now, given[len(calls) :])
    return now.held if counted is now else now.at(counted), remark
