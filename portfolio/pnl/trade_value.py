"""One value for both sides of a trade: that of the side whose prices are stronger.

The two sides of a trade are worth the same, fees apart. Their own prices rarely say so: a feed moves in steps, a pool
has a spread. If each side kept its own price, the difference would be a gain or a loss that no trade made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Final, NamedTuple

from chainfolio.portfolio.pnl.entries import share


class PriceKind(IntEnum):
    """The kinds of prices, the weakest first."""

    MARKET = 0  # a pool that could pay a limited sum
    FEED = 1  # a feed, or a price of the settings
    STABLE = 2  # an asset that the settings count as stable, or peg


class Strength(NamedTuple):
    """The rank of a price as the value of a trade, with the depth of its market in USD."""

    kind: PriceKind = PriceKind.FEED
    depth_usd: Decimal = Decimal(0)


PriceKey = tuple[str, int, str]  # chain, height, contract as documents show it
Strengths = Mapping[PriceKey, Strength]  # of the prices that differ from `FEED_STRENGTH`
FEED_STRENGTH: Final = Strength()


@dataclass(slots=True)
class Side:
    """A net movement of one asset in one transaction.

    `strength` is that of its price. `wallet` is the own wallet whose lots move, if not that of the transaction.
    """

    asset: str
    quantity: int
    value: int | None
    strength: Strength = FEED_STRENGTH
    wallet: str = ""

    def without_value(self) -> Side:
        """Return the movement of the same quantity without a value."""
        return Side(self.asset, self.quantity, None, wallet=self.wallet)

    def part(self, quantity: int) -> Side:
        """Return a movement of another quantity at the same price."""
        value = None if self.value is None else share(self.value, quantity, self.quantity)
        return Side(self.asset, quantity, value, self.strength)

    def without(self, quantity: int) -> Side:
        """Return the movement without a part of it, so that no unit of value is lost."""
        value, taken = self.value, self.part(quantity).value
        remaining_value = None if value is None or taken is None else value - taken
        return Side(self.asset, self.quantity - quantity, remaining_value, self.strength)


def equalise(incoming: Sequence[Side], outgoing: Sequence[Side], rule: str) -> None:
    """Set the values of both sides of a trade to the same total.

    A side whose assets all have a value decides if the other side lacks one. If both have all values, `rule` chooses:
    `received` or `given` names the side, `market` takes the side whose weakest price is stronger, and `received` if
    they are equal. The other side shares that total in proportion to its own values. If a value stays unknown, so that
    no total is known for both sides, the values do not change.
    """
    if not incoming or not outgoing:
        return
    unknown = [side for side in (*incoming, *outgoing) if side.value is None]
    if not unknown:
        deciding, following = _ordered(incoming, outgoing, rule)
        _share_total(sum(side.value or 0 for side in deciding), following)
    elif len(unknown) == 1:
        _fill(unknown[0], incoming, outgoing)


def _ordered(incoming: Sequence[Side], outgoing: Sequence[Side], rule: str) -> tuple[Sequence[Side], Sequence[Side]]:
    """Return the side that decides the value, and the other one."""
    weakest_in, weakest_out = (min(side.strength for side in sides) for sides in (incoming, outgoing))
    outgoing_decides = weakest_out > weakest_in if rule == "market" else rule == "given"
    return (outgoing, incoming) if outgoing_decides else (incoming, outgoing)


def _share_total(total: int, sides: Sequence[Side]) -> None:
    """Share a total among assets in proportion to their values; unknown if several have no value at all."""
    remaining = sum(side.value or 0 for side in sides)
    if not remaining and len(sides) > 1 and total:
        for side in sides:
            side.value = None
        return
    for side in sides:
        own_value = side.value or 0
        side.value = share(total, own_value, remaining) if remaining else total
        total, remaining = total - side.value, remaining - own_value


def _fill(unknown: Side, incoming: Sequence[Side], outgoing: Sequence[Side]) -> None:
    """Set the only unknown value, so that both sides are equal; unchanged if it would be negative."""
    value_in, value_out = (sum(side.value or 0 for side in sides) for sides in (incoming, outgoing))
    difference = value_out - value_in if any(unknown is side for side in incoming) else value_in - value_out
    if difference >= 0:
        unknown.value = difference


def net_off(incoming: dict[str, Side], outgoing: dict[str, Side], asset: str) -> None:
    """Replace the incoming and outgoing movement of one asset by their difference, in place.

    The larger one stays with its part of the value; both go if they are equal.
    """
    gain, loss = incoming.pop(asset), outgoing.pop(asset)
    quantity = gain.quantity - loss.quantity
    if quantity:
        larger = gain if quantity > 0 else loss
        value = None if larger.value is None else share(larger.value, abs(quantity), larger.quantity)
        (incoming if quantity > 0 else outgoing)[asset] = Side(asset, abs(quantity), value, larger.strength)


def net_of(asset: str, incoming: Mapping[str, Side], outgoing: Mapping[str, Side]) -> int:
    """Return what came of an asset, or (negative) left."""
    return incoming[asset].quantity if asset in incoming else -outgoing[asset].quantity if asset in outgoing else 0


def leave_unexplained(
    incoming: dict[str, Side],
    outgoing: dict[str, Side],
    explained: Mapping[str, int],
    value_at: Callable[[str, int], Side],
) -> None:
    """Replace the movements of assets by those that are not explained, in place."""
    for asset, raw in explained.items():
        net = net_of(asset, incoming, outgoing)
        side = incoming.pop(asset, None) or outgoing.pop(asset, None)
        if net != raw:
            unexplained = value_at(asset, abs(net - raw)) if side is None else side.part(abs(net - raw))
            (incoming if net > raw else outgoing)[asset] = unexplained
