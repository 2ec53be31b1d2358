"""Holdings of a close with their fair values, and the prices that stop it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.exports.close.evidence import Evidence
from chainfolio.exports.close.policy import Override, Policy, PriceRule, price_rule
from chainfolio.portfolio.valuation import ValuedHolding, prices_of, usable_price, valuate

if TYPE_CHECKING:
    from chainfolio.assets import Asset
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain
    from chainfolio.contracts import Position, Price, Snapshot

OVERRIDE = "override"
CAPPED = "capped"  # its market could not pay price times amount
SPAM = "spam"
UNVALUED = "unvalued"  # no price or no decimals, of a token that anybody can send


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """A chain at one end of a period.

    Attributes:
        name: `opening` or `closing`.
        day: The day of the cut-off.
        rate: Units of the currency of the close per USD.
        overrides: Prices in that currency that the policy sets.
        evidence: Proofs and second reads of the balances.
        unpriced: Assets whose prices are not used.
    """

    name: str
    day: str
    chain: Chain
    snapshot: Snapshot
    rate: Decimal
    overrides: Mapping[Asset, Override]
    evidence: Evidence = field(default_factory=Evidence)
    unpriced: Collection[Asset] = ()

    @property
    def block(self) -> Block:
        """The last block before the cut-off."""
        return self.snapshot.block

    @property
    def prices(self) -> dict[Asset, Price]:
        """The usable prices of the block, in USD."""
        prices = prices_of(self.snapshot).items()
        return {
            asset: price for asset, price in prices if usable_price(price) is not None and asset not in self.unpriced
        }

    def price(self, asset: Asset) -> Decimal | None:
        """Return the price of an asset in the currency of the close; None if it has none."""
        if asset in self.overrides:
            return amounts.parse(self.overrides[asset].price)
        price = self.prices.get(asset)
        return None if price is None else amounts.value_of(price.usd, self.rate)

    def rule(self, asset: Asset, policy: Policy) -> PriceRule:
        """Return the rule that chose the price of an asset; an empty one without a price."""
        if asset in self.overrides:
            each = self.overrides[asset]
            return PriceRule(f"{OVERRIDE} by {each.who}: {each.reason}")
        price = self.prices.get(asset)
        return PriceRule("") if price is None else price_rule(price, self.block.time_us, policy.prices)


@dataclass(frozen=True, slots=True)
class HoldingRow:
    """Holding of an asset in one place at one end. `side` is `owned`, `owed` or `claimable`.

    `value` is in the currency of the close; None without a price or without decimals. `flag` is `spam`, `unvalued`,
    `capped` or empty.
    """

    end: ChainEnd
    part: ValuedHolding
    protocol: str
    position: str
    name: str
    side: str
    value: Decimal | None
    flag: str

    @property
    def is_counted(self) -> bool:
        """True if it is in the sums."""
        return self.flag not in (SPAM, UNVALUED)

    @property
    def signed(self) -> Decimal | None:
        """The value, negative for what is owed; None if it is not known."""
        return self.value.copy_negate() if self.value is not None and self.side == "owed" else self.value


def held_rows(end: ChainEnd) -> Iterator[HoldingRow]:
    """Yield a row for each holding and each part of a position at one end."""
    valuation = valuate([end.snapshot])
    for each in valuation.holdings:
        yield _row(end, each, (each.holding.protocol, each.holding.position, ""), "owned")
    for position in valuation.positions:
        place = position.protocol, position.type, position.name
        sides = (("owned", position.supplied), ("owed", position.borrowed), ("claimable", position.rewards))
        for side, parts in sides:
            yield from (_row(end, part, place, side) for part in parts)


def position_assets(position: Position) -> set[Asset]:
    """Return the assets of all parts of a position."""
    return {part.token.asset for part in (*position.supplied, *position.borrowed, *position.rewards)}


def _row(end: ChainEnd, part: ValuedHolding, place: tuple[str, str, str], side: str) -> HoldingRow:
    asset = part.holding.token.asset
    price, amount = end.price(asset), part.amount
    if price is None or amount is None:
        value, is_capped = None, False
    elif asset in end.overrides or part.value_usd is None:
        value, is_capped = amounts.value_of(amount, price), False
    else:
        value, is_capped = amounts.value_of(part.value_usd, end.rate), part.uncapped_usd is not None
    is_left_out = part.spam is not None or not part.is_counted
    flag = SPAM if is_left_out else UNVALUED if value is None else CAPPED if is_capped else ""
    return HoldingRow(end, part, *place, side, value, flag)


def without_faults_of_strangers(end: ChainEnd, policy: Policy, trusted: Collection[Asset]) -> ChainEnd:
    """Return an end that uses no price beyond the limits of an asset that no account trusts."""
    return replace(end, unpriced={each for each in end.prices if each not in trusted and end.rule(each, policy).fault})


def price_stops(
    end: ChainEnd, holdings: Sequence[HoldingRow], policy: Policy, trusted: Collection[Asset]
) -> Iterator[str]:
    """Yield the faults of the prices of trusted assets at one end; a missing price is a fault.

    Untrusted tokens stop nothing, because anybody can send them to a wallet or put them into a position of it.
    """
    faults: dict[str, None] = {}
    for row in holdings:
        asset = row.part.holding.token.asset
        if row.end is not end or row.flag == SPAM or not row.part.holding.raw or asset not in trusted:
            continue
        symbol = f"{row.part.holding.token.symbol or 'no symbol'} ({asset}) at the {end.name}"
        if fault := end.rule(asset, policy).fault:
            faults[f"{symbol}: {fault}"] = None
        elif row.value is None:
            faults[f"{symbol} has no price"] = None
    yield from faults
