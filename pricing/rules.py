"""Rules of a chain's price sources: their order by asset class, and the limits of their prices.

They are the tables `[order]`, `[classes]` and `[guards]` of the file of prices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.price_sources import PriceSource, Section, parse_asset
from chainfolio.pricing.fixed import PEG, FixedPrices

CLASSES: Final = ("native", "stable", "share", "other")
GUARDS: Final = ("floor", "disagreement", "step", "step_days")
SECTIONS: Final = ("order", "classes", "guards")
DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Guards:
    """Limits of the prices of sources.

    Attributes:
        floor: USD that a market must be able to pay; a thinner market prices nothing.
        disagreement: Largest difference of two sources that agree, as a part of the larger price.
        step: Largest factor between a price and the last one of its asset, in both directions.
        step_days: Age from which on the last price is no longer compared.
    """

    floor: Decimal = Decimal(0)
    disagreement: Decimal = Decimal("0.05")
    step: Decimal = Decimal(10)
    step_days: int = 7

    def depth_fault(self, price: Price) -> str:
        """Return the reason why the market of a price is too thin.

        Empty if it is not, or if there is no market.
        """
        if price.depth_usd is None or price.depth_usd >= self.floor:
            return ""
        return f"its market could pay {_short(price.depth_usd)} USD, less than {self.floor:f}"

    def agree(self, a: Price, b: Price) -> bool:
        """Return True if two prices differ by at most `disagreement`."""
        high, low = max(a.usd, b.usd), min(a.usd, b.usd)
        return amounts.EXACT.subtract(high, low) <= amounts.EXACT.multiply(high, self.disagreement)

    def disagreements(self, price: Price) -> str:
        """Describe the other prices that disagree with a chosen one; empty if there are none."""
        distant = [quote for quote in price.alternatives if not self.agree(price, quote)]
        if not distant:
            return ""
        quotes = ", ".join(f"{quote.source} says {_short(quote.usd)}" for quote in distant)
        apart = f"more than {self.disagreement * 100:f}% apart"
        return f"{price.source} says {_short(price.usd)} USD and is used; {quotes}: {apart}"

    def step_fault(self, price: Price, last_price: Price | None) -> str:
        """Return the reason why a price is more than `step` times away from the last one.

        Empty if it is not, if there is no last one, or if that is older than `step_days`.
        """
        if last_price is None or price.time_us - last_price.time_us > self.step_days * DAY_US:
            return ""
        high, low = max(price.usd, last_price.usd), min(price.usd, last_price.usd)
        if high <= amounts.EXACT.multiply(low, self.step):
            return ""
        return (
            f"held: {_short(price.usd)} USD is more than {self.step:f} times away from its last price, "
            f"{_short(last_price.usd)} USD, and no second source agrees"
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The order of sources by class, and the guards.

    Attributes:
        order: Names of sources that come first, by class.
        stable: Assets that the operator counts as stable.
        share: Assets that the operator counts as shares.
        wrapped: The wrapped native coin.
    """

    guards: Guards = field(default_factory=Guards)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stable: frozenset[Asset] = frozenset()
    share: frozenset[Asset] = frozenset()
    wrapped: frozenset[Asset] = frozenset()

    def class_of(self, asset: Asset) -> str:
        """Return the class of an asset, one of `CLASSES`."""
        if asset.is_native or asset in self.wrapped:
            return "native"
        return "stable" if asset in self.stable else "share" if asset in self.share else "other"

    def source_orders(self, sources: Sequence[PriceSource]) -> dict[str, tuple[int, ...]]:
        """Return the indexes of the sources in the order in which they are queried, by class.

        Fixed prices come first, then the sources that `order` names, then the others in their own order.
        """
        orders = {}
        for name in CLASSES:
            rank = {source: i for i, source in enumerate(self.order.get(name, ()))}
            orders[name] = tuple(
                sorted(range(len(sources)), key=lambda i: (not is_fixed(sources[i]), rank.get(sources[i].name, 99)))
            )
        return orders


class OrderedSources(tuple[PriceSource, ...]):
    """The sources of a chain with their rules."""

    rules: Rules

    def __new__(cls, sources: Sequence[PriceSource], rules: Rules) -> OrderedSources:
        """Return the sources in the given order."""
        ordered = super().__new__(cls, tuple(sources))
        ordered.rules = rules
        return ordered


def rules_of(sources: Sequence[PriceSource]) -> Rules:
    """Return the rules of `OrderedSources`, and the default rules for any other sequence."""
    return sources.rules if isinstance(sources, OrderedSources) else Rules()


def is_fixed(source: PriceSource) -> bool:
    """Return True if the operator fixed the prices: no other source is queried, and any step is allowed."""
    return isinstance(source, FixedPrices) and source.name != PEG


def knows(source: PriceSource, asset: Asset) -> bool | None:
    """Return the source's `knows(asset)` as a bool; None if only a read can tell."""
    knows_asset = getattr(source, "knows", None)
    result = None if knows_asset is None else knows_asset(asset)
    return None if result is None else bool(result)


def any_knows(sources: Iterable[PriceSource], asset: Asset) -> bool | None:
    """Return True if one of the sources knows an asset; None if only a read can tell."""
    results = {knows(source, asset) for source in sources}
    return True if True in results else None if None in results else False


def reads_chain_only(source: PriceSource) -> bool:
    """Return True if the source only reads the chain, so that its reads can share requests."""
    return bool(getattr(source, "reads_chain_only", False))


def parse_rules(tree: Section, names: Collection[str], file: str, wrapped: Collection[Asset] = ()) -> Rules:
    """Parse the rules of the file of prices.

    Args:
        tree: The whole file.
        names: Names of its sections of sources.
        file: Name of the file in error messages.
        wrapped: The wrapped native coin, or nothing.

    Raises:
        BadSettings: A rule has an unknown key or a value out of range.
    """
    order, classes, guards = (_section(tree, name, file) for name in SECTIONS)
    for name in order:
        if name not in CLASSES:
            raise BadSettings(f"{file}: order", f"unknown class {name!r:.40}", remedy=f"known are {', '.join(CLASSES)}")
    for name, sources in order.items():
        unknown = [source for source in sources if source not in names] if isinstance(sources, list) else [sources]
        if unknown or len(set(sources)) != len(sources):
            fault = f"{name} names {unknown[0]!r:.60}, which is no section" if unknown else f"{name} names one twice"
            raise BadSettings(f"{file}: order", fault, remedy=f"sections are {', '.join(sorted(names))}")
    assets = {name: _assets(classes, name, f"{file}: classes") for name in ("stable", "share")}
    if set(classes) - set(assets):
        raise BadSettings(f"{file}: classes", "only stable and share list assets")
    pegs = _section(tree, PEG, file)
    return Rules(
        _guards(guards, f"{file}: guards"),
        {name: tuple(sources) for name, sources in order.items()},
        assets["stable"] | {parse_asset(text, f"{file}: {PEG}") for text in pegs},
        assets["share"],
        frozenset(wrapped),
    )


def _section(tree: Section, name: str, file: str) -> Section:
    """Return a section of the file; empty if it is absent. Raise BadSettings if it is no section."""
    section = tree.get(name, {})
    if not isinstance(section, Mapping):
        raise BadSettings(f"{file}: {name}", "is not a section")
    return section


def _assets(section: Section, name: str, location: str) -> frozenset[Asset]:
    texts = section.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadSettings(location, f"{name} is not a list of assets")
    return frozenset(parse_asset(text, location) for text in texts)


def _guards(section: Section, location: str) -> Guards:
    """Return the guards of a section, with defaults; raise BadSettings for invalid or unknown keys."""
    if unknown := set(section) - set(GUARDS):
        raise BadSettings(location, f"unknown key {min(unknown)}", remedy=f"known are {', '.join(GUARDS)}")
    default = Guards(floor=Decimal(5_000))
    days = section.get("step_days", default.step_days)
    if type(days) is not int or not 0 <= days <= 366:
        raise BadSettings(location, f"step_days is {days!r:.40}, not a whole number from 0 to 366")
    return Guards(
        _number(section, "floor", default.floor, Decimal(0), Decimal(10**12), location),
        _number(section, "disagreement", default.disagreement, Decimal(0), Decimal(1), location),
        _number(section, "step", default.step, Decimal("1.1"), Decimal(10**6), location),
        days,
    )


def _number(
    section: Section, name: str, default: Decimal, minimum: Decimal, maximum: Decimal, location: str
) -> Decimal:
    """Return a number of a section, the default if absent; raise BadSettings if it is out of bounds."""
    text = section.get(name)
    if text is None:
        return default
    try:
        number = amounts.parse(text) if isinstance(text, str) else None
    except ValueError:
        number = None
    if number is None or not minimum <= number <= maximum:
        bounds = f"from {minimum:f} to {maximum:f}"
        raise BadSettings(location, f'{name} is not a number {bounds} in quotes, such as "{default:f}"')
    return number


def _short(value: Decimal) -> str:
    return f"{value:.6g}"
