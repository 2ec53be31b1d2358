"""Address poisoning: transfers that place a look-alike address in a wallet's history to be copied.

Wallets show four hex digits of either end, so the attacker takes an address that begins and ends like a counterparty of
the wallet. It sends dust or a worthless token, or its token logs a transfer of nothing in the wallet's name. The
address that the wallet dealt with first is the real one: it cannot imitate a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from chainfolio.addresses import AddressRules
from chainfolio.assets import Asset
from chainfolio.portfolio.activity import Activity, Movement
from chainfolio.portfolio.transactions import Flag

DUST: Final = 100  # next to nothing is less than a hundredth of the most that was exchanged with the real one,
NATIVE_DUST: Final = 4  # and less than the fourth decimal place of a native coin, whatever else was exchanged

BlockPosition = tuple[int, int]  # height, and position in the block


@dataclass(frozen=True, slots=True)
class Interaction:
    """A counterparty with which the account truly exchanged an asset (any of a collection).

    `position` is the first exchange, `raw` the largest amount of one exchange.
    """

    address: str
    asset: Asset
    position: BlockPosition
    raw: int


@dataclass(slots=True)
class Counterparties:
    """The counterparties of one account, on a chain whose native coin has `native_decimals`."""

    rules: AddressRules
    native_decimals: int
    _first: dict[str, tuple[BlockPosition, str]] = field(default_factory=dict)
    _max_raw: dict[tuple[str, Asset], int] = field(default_factory=dict)

    @classmethod
    def of(cls, interactions: Iterable[Interaction], rules: AddressRules, native_decimals: int) -> Counterparties:
        """Return the counterparties of interactions in any order, without burn addresses."""
        counterparties = cls(rules, native_decimals)
        for each in interactions:
            if each.address in rules.burn_addresses:
                continue
            first, visible = (each.position, each.address), rules.visible_part(each.address)
            counterparties._first[visible] = min(first, counterparties._first.get(visible, first))
            key = each.address, each.asset
            counterparties._max_raw[key] = max(each.raw, counterparties._max_raw.get(key, 0))
        return counterparties

    def resembled(self, address: str, position: BlockPosition) -> str | None:
        """Return the counterparty met before `position` that an address resembles; None if there is no other."""
        first = self._first.get(self.rules.visible_part(address))
        return None if first is None or first[1] == address or first[0] >= position else first[1]

    def is_dust(self, move: Movement, real: str) -> bool:
        """Return True if a movement is negligible compared with the exchanges with the real address."""
        dust = move.raw * DUST < self._max_raw.get((real, move.asset.collection), 0)
        return dust or (move.asset.is_native and move.raw < 10 ** max(self.native_decimals - NATIVE_DUST, 0))


@dataclass(frozen=True, slots=True)
class Poisoning:
    """Look-alikes among an activity's counterparties, with the address that each resembles.

    `only` is True if look-alikes made the whole activity.
    """

    resembled: dict[str, str]
    only: bool


def poisoning(activity: Activity, counterparties: Counterparties | None, trusted: Collection[Asset]) -> Poisoning:
    """Return the part of an activity that look-alikes made; empty if `counterparties` is None.

    Look-alikes made all of it if another account sent it, and every movement is with a look-alike and is dust, or of a
    token that is not trusted.
    """
    if counterparties is None:
        return Poisoning({}, only=False)
    position = activity.height, activity.tx_index
    resembled = {
        counterparty: real
        for counterparty in sorted(activity.counterparties)
        if (real := counterparties.resembled(counterparty, position)) is not None
    }
    is_sender = activity.details is not None and activity.details.sender == activity.account
    only = (
        bool(resembled)
        and not is_sender
        and bool(activity.movements)
        and all(
            move.counterparty in resembled
            and (_is_worthless(move, trusted) or counterparties.is_dust(move, resembled[move.counterparty]))
            for move in activity.movements
        )
    )
    return Poisoning(resembled, only)


def _is_worthless(move: Movement, trusted: Collection[Asset]) -> bool:
    return move.raw == 0 or not (move.asset.is_native or move.asset.collection in trusted)


def flags(
    activity: Activity, poisoning: Poisoning, signs: Collection[str], spam: Collection[Asset]
) -> tuple[Flag, ...]:
    """Return the warnings of an activity, the most certain first: poisoning, then spam.

    () if there are none.

    Args:
        signs: Those of `activity.signs`.
        spam: Assets that are spam.
    """
    warnings = [
        Flag("POISONING", "begins and ends like an address met before", address=address, resembles=real)
        for address, real in poisoning.resembled.items()
    ]
    if "poison" in signs:
        counterparties = sorted({move.counterparty for move in activity.movements} - poisoning.resembled.keys())
        warnings += [
            Flag("POISONING", "another account transferred nothing in this wallet's name", address=o)
            for o in counterparties
        ]
    warnings += [
        Flag("SPAM", "the token is taken for spam: by what it is called, or by how it came", address=token)
        for token in sorted(
            {asset.reference for asset in {move.asset.collection for move in activity.movements} & set(spam)}
        )
    ]
    return tuple(warnings)
