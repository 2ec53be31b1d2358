"""Address poisoning: transfers made so that a wrong address stands in a wallet's history, to be copied from there.

Who does it takes an address that begins and ends like one the wallet dealt with before, for wallets show four hex
digits of either end; and sends next to nothing from there, or a worthless token, or lets a token say that the wallet
had sent nothing to it. Whoever was met first is the real one, for nobody can imitate whom nobody has met yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from chainfolio.addresses import AddressRules
from chainfolio.assets import Asset
from portfolio.activity import Activity, Movement
from portfolio.transactions import Flag

DUST: Final = 100  # next to nothing is less than a hundredth of the most that was exchanged with the real one,
NATIVE_DUST: Final = 4  # and less than the fourth decimal place of a native coin, whatever else was exchanged

Place = tuple[int, int]  # height, and position in the block


@dataclass(frozen=True, slots=True)
class Interaction:
    """Somebody with whom the account truly exchanged an asset (any of a collection): for the first time at `place`, and
    at most `raw` units of it at once."""

    address: str
    asset: Asset
    place: Place
    raw: int


@dataclass(slots=True)
class Counterparties:
    """Whom one account dealt with, on a chain whose native coin has so many decimals."""

    rules: AddressRules
    native_decimals: int
    _first: dict[str, tuple[Place, str]] = field(default_factory=dict)
    _most: dict[tuple[str, Asset], int] = field(default_factory=dict)

    @classmethod
    def of(cls, dealings: Iterable[Interaction], rules: AddressRules, native_decimals: int) -> Counterparties:
        """From dealings in any order."""
        counterparties = cls(rules, native_decimals)
        for each in dealings:
            if each.address in rules.nobody:
                continue
            found, look = (each.place, each.address), rules.look(each.address)
            counterparties._first[look] = min(found, counterparties._first.get(look, found))
            key = each.address, each.asset
            counterparties._most[key] = max(each.raw, counterparties._most.get(key, 0))
        return counterparties

    def resembled(self, address: str, place: Place) -> str | None:
        """The address met before `place` that this one looks like; None where there is none, or it is that one."""
        known = self._first.get(self.rules.look(address))
        return None if known is None or known[1] == address or known[0] >= place else known[1]

    def is_dust(self, move: Movement, real: str) -> bool:
        """Whether a movement is next to nothing beside what was exchanged with the real one."""
        dust = move.raw * DUST < self._most.get((real, move.asset.collection), 0)
        return dust or (move.asset.is_native and move.raw < 10 ** max(self.native_decimals - NATIVE_DUST, 0))


@dataclass(frozen=True, slots=True)
class Poisoning:
    """Look-alikes among an activity's counterparties, by the address that each resembles; whether nothing else is."""

    resembled: dict[str, str]
    only: bool


def poisoning(activity: Activity, counterparties: Counterparties | None, listed: Collection[Asset]) -> Poisoning:
    """What of an activity was made by look-alikes: nothing where nobody knows whom the account dealt with.

    It is nothing else where somebody else sent it and every movement is one with a look-alike, of next to nothing or of
    a token that is not listed."""
    if counterparties is None:
        return Poisoning({}, only=False)
    place = activity.height, activity.tx_index
    found = {
        other: real
        for other in sorted(activity.counterparties)
        if (real := counterparties.resembled(other, place)) is not None
    }
    own = activity.details is not None and activity.details.sender == activity.account
    only = bool(found) and not own and bool(activity.movements) and all(
        move.counterparty in found
        and (_is_worthless(move, listed) or counterparties.is_dust(move, found[move.counterparty]))
        for move in activity.movements
    )  # fmt: skip
    return Poisoning(found, only)


def _is_worthless(move: Movement, listed: Collection[Asset]) -> bool:
    return move.raw == 0 or not (move.asset.is_native or move.asset.collection in listed)


def flags(activity: Activity, found: Poisoning, signs: Collection[str], spam: Collection[Asset]) -> tuple[Flag, ...]:
    """The warnings of an activity, the most certain first. `signs` are those of `activity.signs`."""
    warnings = [
        Flag("POISONING", "begins and ends like an address met before", address=other, resembles=real)
        for other, real in found.resembled.items()
    ]
    if "poison" in signs:
        others = sorted({move.counterparty for move in activity.movements} - found.resembled.keys())
        warnings += [Flag("POISONING", "somebody else moved nothing in this wallet's name", address=o) for o in others]
    warnings += [
        Flag("SPAM", "the token is taken for spam: by what it is called, or by how it came", address=token)
        for token in sorted(
            {asset.reference for asset in {move.asset.collection for move in activity.movements} & set(spam)}
        )
    ]
    return tuple(warnings)
