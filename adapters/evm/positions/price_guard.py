"""Protect valuations from prices that were moved within one block, for example with a flash loan.

A pool is compared with itself at the parent block. If its price moved by more than `MAX_MOVE`, the parent's state
counts, unless the grandparent agrees with the current price: then it was the parent that was manipulated. Liquidity
that was added within the block counts at the current price, because it never had another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol, Self, TypeVar

from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, DecoderRead
from chainfolio.adapters.evm.reads import AbiValue, Call
from chainfolio.plans import Rounds, Unknown

MAX_MOVE: Final = Fraction(105, 100)  # ordinary trades of one block move a price by less than this factor
UNMOVED: Final = Fraction(1)
MAX_SHOWN_PERCENT: Final = Fraction(10**6)


class PoolState(Protocol):
    """The part of a pool that determines its price, at one block."""

    def price_ratio(self, earlier: Self) -> Fraction:
        """Return the higher of both prices divided by the lower; 1 if no trade moved the price."""


State = TypeVar("State", bound=PoolState)


def guard_price(
    calls: Sequence[Call], parse: Callable[..., State | None], current: State, parent_values: Sequence[AbiValue]
) -> Rounds[DecoderRead, AbiValue, tuple[State, str]]:
    """Return the state whose price counts; one more round is read if it moved by more than MAX_MOVE.

    Args:
        calls: The calls that read the state.
        parse: Makes a state of the values of `calls`; None if there was no pool yet.
        current: The state at the block that is read.
        parent_values: The values of `calls` at the parent block.

    Returns:
        The state, and a remark if it is not the current one or could not be compared; empty otherwise.
    """
    parent = _parse_past(parse, parent_values)
    if isinstance(parent, Unknown):
        return current, f"its pool could not be compared with the block before, so who moved it counts: {parent.reason}"
    if parent is None or (move := current.price_ratio(parent)) <= MAX_MOVE:
        return current, ""
    grandparent = _parse_past(parse, (yield [AtEarlierBlock(call, 2) for call in calls]))
    if not isinstance(grandparent, Unknown | None) and current.price_ratio(grandparent) <= MAX_MOVE:
        return current, ""
    percent = min(100 * (move - 1), MAX_SHOWN_PERCENT).__ceil__()
    return parent, f"the price in its pool moved by {percent} % within the block: it is shown at the price before that"


def _parse_past(parse: Callable[..., State | None], values: Sequence[AbiValue]) -> State | Unknown | None:
    """Return the state of an earlier block, None if there was no pool yet, Unknown if a read failed."""
    failed = next((value for value in values if isinstance(value, Unknown)), None)
    return failed or (None if any(value is None for value in values) else parse(*values))


@dataclass(frozen=True, slots=True)
class Reserves:
    """The amounts of each token in a pool and the number of its shares, none of them zero.

    `tokens`: the tokens, if the pool can change them; reserves of different tokens are not compared.
    """

    amounts: tuple[int, ...]
    supply: int
    tokens: tuple[str, ...] = ()

    def price_ratio(self, earlier: Reserves) -> Fraction:
        """Return by which factor a trade moved the price; 1 after a gift or a loss, which are no trades."""
        if len(self.amounts) != len(earlier.amounts) or self.tokens != earlier.tokens:
            return UNMOVED
        per_share = [
            Fraction(amount * earlier.supply, earlier_amount * self.supply)
            for amount, earlier_amount in zip(self.amounts, earlier.amounts, strict=True)
        ]
        return max(per_share) / min(per_share) if max(per_share) > UNMOVED > min(per_share) else UNMOVED

    def amounts_at(self, earlier: Reserves) -> tuple[int, ...]:
        """Return the amounts at an earlier price; shares that were added since count at the current one."""
        old_shares = min(self.supply, earlier.supply)
        new_shares = self.supply - old_shares
        return tuple(
            earlier_amount * old_shares // earlier.supply + amount * new_shares // self.supply
            for amount, earlier_amount in zip(self.amounts, earlier.amounts, strict=True)
        )


def reserves(*amounts_and_supply: int, tokens: tuple[str, ...] = ()) -> Reserves | None:
    """Return reserves from the amounts and, last, the number of shares; None if one of them is zero."""
    *amounts, supply = amounts_and_supply
    return Reserves(tuple(amounts), supply, tokens) if amounts and min(amounts_and_supply) > 0 else None


def guard_reserves(
    calls: Sequence[Call], parse: Callable[..., Reserves | None], values: Sequence[AbiValue]
) -> DecoderPlan:
    """Return a pool's amounts at the price that counts, and a remark; None if the pool is empty.

    `values` are the values of `calls` at the block that is read, then those at its parent.
    """
    current = parse(*values[: len(calls)])
    if current is None:
        return None
    guarded, remark = yield from guard_price(calls, parse, current, values[len(calls) :])
    return current.amounts if guarded is current else current.amounts_at(guarded), remark
