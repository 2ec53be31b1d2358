"""The policy of a close: method of gains, limits of prices, and overrides with their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from chainfolio import amounts
from chainfolio.assets import asset as parsed_asset
from chainfolio.contracts import GAIN_METHODS
from chainfolio.errors import BadRequest
from chainfolio.portfolio.pnl.methods import POOLED

if TYPE_CHECKING:
    from pathlib import Path

    from chainfolio.assets import Asset
    from chainfolio.contracts import Price

HOUR_US: Final = 3_600_000_000
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Limits of prices: the age at the block, and the distance of other sources in per cent."""

    max_age_hours: Annotated[int, msgspec.Meta(ge=0)] = 24
    max_deviation_percent: str = "10"


class Override(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Price of an asset at the cut-off of one day, in the currency of the close, with its reason."""

    asset: Text
    date: Text
    price: Text
    who: Text
    reason: Text


class Policy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The rules of a close, as its file has them. `lots` are those of the `owner`, or apart by `wallet`."""

    method: str = "fifo"
    lots: Literal["owner", "wallet"] = "owner"
    prices: Limits = Limits()
    override: tuple[Override, ...] = ()

    def check(self) -> None:
        """Raise BadRequest if the rules contradict themselves or name what does not exist."""
        if self.method not in GAIN_METHODS:
            raise _bad(f"{self.method!r} is no method", f"one of {', '.join(GAIN_METHODS)}")
        if self.method in POOLED and self.lots == "wallet":
            raise _bad(f"the rules of {self.method!r} pool all that one person holds", 'lots = "owner"')
        for name, number in [
            ("max_deviation_percent", self.prices.max_deviation_percent),
            *((f"the price of {each.asset}", each.price) for each in self.override),
        ]:
            if _number(number) is None:
                raise _bad(f"{name}: {number[:40]!r} is no number from 0 on", 'a text, as "0.98"')
        keys = [(str(parsed_asset(each.asset)), each.date) for each in self.override]
        for key in keys:
            if keys.count(key) > 1:
                raise _bad(f"two overrides of {key[0]} on {key[1]}", "leave one of them")

    def overrides(self, date: str) -> dict[Asset, Override]:
        """Return the overrides at the cut-off of a day, by asset."""
        return {parsed_asset(each.asset): each for each in self.override if each.date == date}


@dataclass(frozen=True, slots=True)
class PriceRule:
    """The rule that chose a price, and why the price stops the close; `fault` is empty if it does not."""

    rule: str
    fault: str = ""


def load_policy(path: Path) -> tuple[Policy, bytes]:
    """Return the policy in a file, and the bytes of the file.

    Raises:
        BadRequest: The file cannot be read, or its rules are wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest("policy", f"{path}: {error.strerror}", remedy="an empty file has the usual rules") from None
    return policy_in(data), data


def policy_in(data: bytes) -> Policy:
    """Return the policy in the bytes of its file; BadRequest if its rules are wrong."""
    try:
        policy = msgspec.toml.decode(data, type=Policy)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _bad(str(error), "see how-to/close-a-period.md") from None
    policy.check()
    return policy


def price_rule(price: Price, time_us: int, limits: Limits) -> PriceRule:
    """Return the rule by which a source's price counts at a time, with its fault if it breaks a limit."""
    age_us = time_us - price.time_us
    if age_us < 0:
        return PriceRule(price.source, f"the price by {price.source} is later than the block")
    if age_us > limits.max_age_hours * HOUR_US:
        hours = f"{age_us // HOUR_US} hours old, and at most {limits.max_age_hours} are allowed"
        return PriceRule(price.source, f"the price by {price.source} is {hours}")
    most = Fraction(limits.max_deviation_percent) / 100
    for other in price.alternatives:
        if abs(Fraction(other.usd) - Fraction(price.usd)) > most * Fraction(price.usd):
            quotes = f"{price.usd:f} USD, and {other.source} says {other.usd:f}"
            apart = f"more than {limits.max_deviation_percent} % from it"
            return PriceRule(price.source, f"the price by {price.source} is {quotes}: {apart}")
    return PriceRule(price.source)


def _number(text: str) -> Decimal | None:
    """Return a number from 0 on; None for any other text."""
    try:
        number = amounts.parse(text)
    except ValueError:
        return None
    return number if number >= 0 else None


def _bad(problem: str, remedy: str) -> BadRequest:
    return BadRequest("policy", problem, remedy=remedy)
