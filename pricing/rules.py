"""In which order sources are asked for an asset of a class, and the bounds of what they say: `[order]`, `[classes]` and
`[guards]` of the file of prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from pricing.fixed import PEG, Fixed, canonical
from pricing.quotes import PriceSource

CLASSES: Final = ("native", "stable", "share", "other")
GUARDS: Final = ("floor", "disagreement", "step", "step_days")
SECTIONS: Final = ("order", "classes", "guards")
DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Guards:
    """Bounds of what sources say. `floor`: USD that a market must be able to pay, else it prices nothing.
    `disagreement`: how far two sources may differ, as a part of the larger price. `step`: how many times its last price
    an asset may be worth, or the other way round, as long as that price is not older than `step_days`."""

    floor: Decimal = Decimal(0)
    disagreement: Decimal = Decimal("0.05")
    step: Decimal = Decimal(10)
    step_days: int = 7

    def thin(self, price: Price) -> str:
        """Why the market of a price is too thin; empty where it is not."""
        if price.depth_usd is None or price.depth_usd >= self.floor:
            return ""
        return f"its market could pay {_short(price.depth_usd)} USD, less than {self.floor:f}"

    def agree(self, one: Price, other: Price) -> bool:
        """Whether two prices differ by no more than the bound."""
        high, low = max(one.usd, other.usd), min(one.usd, other.usd)
        return amounts.EXACT.subtract(high, low) <= amounts.EXACT.multiply(high, self.disagreement)

    def disagreements(self, price: Price) -> str:
        """What other sources say that is too far from a price; empty where none does."""
        far = [other for other in price.others if not self.agree(price, other)]
        if not far:
            return ""
        said = ", ".join(f"{other.source} says {_short(other.usd)}" for other in far)
        apart = f"more than {self.disagreement * 100:f}% apart"
        return f"{price.source} says {_short(price.usd)} USD and is used; {said}: {apart}"

    def held(self, price: Price, last: Price | None) -> str:
        """Why a price is too far from the last one of its asset; empty where it is not."""
        if last is None or price.time_us - last.time_us > self.step_days * DAY_US:
            return ""
        high, low = max(price.usd, last.usd), min(price.usd, last.usd)
        if high <= amounts.EXACT.multiply(low, self.step):
            return ""
        return (
            f"held: {_short(price.usd)} USD is more than {self.step:f} times away from its last price, "
            f"{_short(last.usd)} USD, and no second source agrees"
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The order of sources by class, and the guards. `wrapped` is the wrapped native coin, `stable` and `share` what
    the operator counts among these classes."""

    guards: Guards = field(default_factory=Guards)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stable: frozenset[Asset] = frozenset()
    share: frozenset[Asset] = frozenset()
    wrapped: frozenset[Asset] = frozenset()

    def class_of(self, asset: Asset) -> str:
        """The class of an asset."""
        if asset.is_native or asset in self.wrapped:
            return "native"
        return "stable" if asset in self.stable else "share" if asset in self.share else "other"

    def places(self, sources: Sequence[PriceSource]) -> dict[str, tuple[int, ...]]:
        """For each class the places of the sources, in the order in which they are asked: what the operator fixed, then
        those that the order names, then the others as they come."""
        found = {}
        for name in CLASSES:
            named = self.order.get(name, ())
            rank = {each: at for at, each in enumerate(named)}
            found[name] = tuple(
                sorted(range(len(sources)), key=lambda at: (not decreed(sources[at]), rank.get(sources[at].name, 99)))
            )
        return found


class Ordered(tuple[PriceSource, ...]):
    """The sources of a chain with their rules."""

    rules: Rules

    def __new__(cls, sources: Sequence[PriceSource], rules: Rules) -> Ordered:
        made = super().__new__(cls, tuple(sources))
        made.rules = rules
        return made


def rules_of(sources: Sequence[PriceSource]) -> Rules:
    """The rules of some sources; those that none were given to have the usual ones."""
    return sources.rules if isinstance(sources, Ordered) else Rules()


def decreed(source: PriceSource) -> bool:
    """Whether the operator fixed its prices: nobody else is asked, and they may step."""
    return isinstance(source, Fixed) and source.name != PEG


def knows(source: PriceSource, asset: Asset) -> bool | None:
    """Whether a source knows an asset; None where it cannot say without being asked."""
    ask = getattr(source, "knows", None)
    said = None if ask is None else ask(asset)
    return None if said is None else bool(said)


def reads_chain_only(source: PriceSource) -> bool:
    """Whether all that a source reads is of the chain: asking it together with others takes no more requests, and
    nobody else hears of it."""
    return bool(getattr(source, "reads_chain_only", False))


def rules(tree: Mapping[str, Any], known: Collection[str], file: str, wrapped: Collection[Asset] = ()) -> Rules:
    """The rules that the file of prices sets; BadSettings where it sets none that can be meant."""
    order, classes, guards = (_section(tree, name, file) for name in SECTIONS)
    for name, where in ((name, "order") for name in order) if order else ():
        if name not in CLASSES:
            raise BadSettings(
                f"{file}: {where}", f"unknown class {name!r:.40}", remedy=f"known are {', '.join(CLASSES)}"
            )
    for name, named in order.items():
        unknown = [each for each in named if each not in known] if isinstance(named, list) else [named]
        if unknown or len(set(named)) != len(named):
            said = f"{name} names {unknown[0]!r:.60}, which is no section" if unknown else f"{name} names one twice"
            raise BadSettings(f"{file}: order", said, remedy=f"sections are {', '.join(sorted(known))}")
    listed = {name: _assets(classes, name, f"{file}: classes") for name in ("stable", "share")}
    if set(classes) - set(listed):
        raise BadSettings(f"{file}: classes", "only stable and share list assets")
    pegs = _section(tree, PEG, file)
    return Rules(
        _guards(guards, f"{file}: guards"), {name: tuple(named) for name, named in order.items()},
        listed["stable"] | {canonical(written, f"{file}: {PEG}") for written in pegs}, listed["share"],
        frozenset(wrapped),
    )  # fmt: skip


def _section(tree: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    section = tree.get(name, {})
    if not isinstance(section, Mapping):
        raise BadSettings(f"{file}: {name}", "is not a section")
    return section


def _assets(section: Mapping[str, Any], name: str, where: str) -> frozenset[Asset]:
    listed = section.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise BadSettings(where, f"{name} is not a list of assets")
    return frozenset(canonical(each, where) for each in listed)


def _guards(section: Mapping[str, Any], where: str) -> Guards:
    if unknown := set(section) - set(GUARDS):
        raise BadSettings(where, f"unknown key {min(unknown)}", remedy=f"known are {', '.join(GUARDS)}")
    usual = Guards(floor=Decimal(5_000))
    days = section.get("step_days", usual.step_days)
    if type(days) is not int or not 0 <= days <= 366:
        raise BadSettings(where, f"step_days is {days!r:.40}, not a whole number from 0 to 366")
    return Guards(
        _number(section, "floor", usual.floor, Decimal(0), Decimal(10**12), where),
        _number(section, "disagreement", usual.disagreement, Decimal(0), Decimal(1), where),
        _number(section, "step", usual.step, Decimal("1.1"), Decimal(10**6), where), days,
    )  # fmt: skip


def _number(
    section: Mapping[str, Any], name: str, usual: Decimal, least: Decimal, most: Decimal, where: str
) -> Decimal:
    written = section.get(name)
    if written is None:
        return usual
    try:
        found = amounts.parse(written) if isinstance(written, str) else None
    except ValueError:
        found = None
    if found is None or not least <= found <= most:
        raise BadSettings(where, f'{name} is not a number from {least:f} to {most:f} in quotes, such as "{usual:f}"')
    return found


def _short(value: Decimal) -> str:
    return f"{value:.6g}"
