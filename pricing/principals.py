"""Prices of Pendle's principal tokens: before the expiry what its market pays for one, afterwards what one redeems for.

The market of a principal is named by the settings, as no contract finds it. Its price is that of the last trade, as the
rate of interest that it implies, which is believed where it stood before the block and, if the market remembers, on
average. It is told in the asset that the yield is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan
from chainfolio.reads import AtParent, Read, ReadResult
from pricing.fixed import canonical
from pricing.markets import Market, State, is_there, unread
from pricing.quotes import PriceSection, Quotes, Refusal, Relative, by_chain
from pricing.redeemables import Redeemed
from pricing.shares import told
from pricing.venues.section import DECIMALS, KIND, address_of, call, scale

SOURCE: Final = "principals"
TOKENS: Final = "readTokens()(address,address,address)"
STATE: Final = "readState(address)(int256,int256,int256,address,int256,uint256,uint256,uint256,uint256)"
OBSERVE: Final = "observe(uint32[])(uint216[])"
INDEX: Final = "exchangeRate()(uint256)"
OWN_INDEX: Final = "pyIndexStored()(uint256)"
ASSET_INFO: Final = "assetInfo()(uint8,address,uint8)"
MEAN_S: Final = 900
MAX_MOVE: Final = 1 + Fraction(1, 100)  # the curve of a market lets its price move by some percent in all
YEAR_S: Final = 365 * 86_400
WAD: Final = 10**18
A_TOKEN: Final = 0  # what kind of asset the yield is of: the others are liquidity, or not on this chain
MAX_EXPONENT: Final = 20
EXACT: Final = Context(prec=50, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Principals:
    """The principals of one chain, with the market of each."""

    markets: Mapping[Asset, str]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Those that the settings name."""
        return asset in self.markets

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A relative price, or the reason for none, for each principal."""
        wanted = [_Principal(asset, self.markets[asset]) for asset in assets if asset in self.markets]
        if not wanted:
            return Quotes()
        known: dict[Any, Any] = {}
        for step in (_Principal.of_market, _Principal.of_yield, _Principal.of_asset):
            reads = list(dict.fromkeys(read for each in wanted for read in step(each, known)))
            known |= zip(reads, (yield reads), strict=True) if reads else ()
        outcomes = [each.outcome(known, block, self.native) for each in wanted]
        return Quotes(
            refused=tuple(each for each in outcomes if isinstance(each, Refusal)),
            relative=tuple(each for each in outcomes if isinstance(each, Relative)),
        )


@dataclass(frozen=True, slots=True)
class _Principal:
    """A principal and its market."""

    asset: Asset
    market: str

    def of_market(self, known: Mapping[Any, Any]) -> list[Read | AtParent]:
        """The tokens of the market, its state now and before, and what it remembers."""
        state = call(self.market, STATE, (self.market,))
        mean = call(self.market, OBSERVE, ((MEAN_S, 0),))
        return [call(self.market, TOKENS), state, AtParent(state), mean, call(self.asset.reference, DECIMALS)]

    def of_yield(self, known: Mapping[Any, Any]) -> list[Read | AtParent]:
        """How much of its asset the yield is worth, and how much it once was, now and before; of what asset."""
        tokens = known[call(self.market, TOKENS)]
        if not isinstance(tokens, tuple) or tokens[1] != self.asset.reference:
            return []
        indexes = [call(tokens[0], INDEX), call(tokens[2], OWN_INDEX)]
        return [*indexes, *map(AtParent, indexes), call(tokens[0], ASSET_INFO)]

    def of_asset(self, known: Mapping[Any, Any]) -> list[Read | AtParent]:
        """The decimals of the asset."""
        info = self._info(known)
        return [call(info[1], DECIMALS)] if info and is_there(info[1]) else []

    def _info(self, known: Mapping[Any, Any]) -> tuple[int, str, int] | None:
        reads = self.of_yield(known)
        said = known.get(reads[-1]) if reads else None
        return said if isinstance(said, tuple) and said[0] == A_TOKEN else None

    def outcome(self, known: Mapping[Any, Any], block: Block, native: Asset | None) -> Relative | Refusal | None:
        """Its price, or why it has none."""
        reads = [step for part in (self.of_market, self.of_yield, self.of_asset) for step in part(known)]
        if fault := unread([known[read] for read in reads]):
            return self._refusal(f"its market could not be read: {fault}")
        if not self.of_yield(known):
            return self._refusal(f"{self.market} is no market of it")
        info, one = self._info(known), scale(known[call(self.asset.reference, DECIMALS)])
        behind = self._behind(info, native) if info else None
        if not (info and behind and one == (scale(known[reads[-1]]) if is_there(info[1]) else WAD)):
            return self._refusal("what its yield is of is no token that can be priced")
        now, before = (self._state(known, block, parent) for parent in (False, True))
        calls = tuple(ReadResult(read, known[read]) for read in reads if not isinstance(read, AtParent))
        if now is None:
            return self._refusal("its market has no price")
        state, expired = now
        if expired:
            redeemed = Redeemed((state.price,), (before[0].price,) if before else None)
            return told(self.asset, (behind,), redeemed, calls, block)
        market = Market(state, before[0] if before else None, self._mean(known, block))
        if fault := market.fault(MAX_MOVE):
            return self._refusal(f"{fault} (market {self.market})")
        return Relative(
            self.asset, ((behind, state.price),), SOURCE, block.time_us, market.confidence,
            f"Pendle market {self.market}", calls, (behind, Fraction(market.depth, one)),
        )  # fmt: skip

    def _behind(self, info: tuple[int, str, int], native: Asset | None) -> Asset | None:
        return self.asset._replace(reference=info[1]) if is_there(info[1]) else native

    def _state(self, known: Mapping[Any, Any], block: Block, parent: bool) -> tuple[State, bool] | None:
        """The price in the asset and how much of it the market could pay; whether the principal is expired."""
        state, index, own = (
            known[AtParent(read) if parent else read]
            for read in (call(self.market, STATE, (self.market,)), *self.of_yield(known)[:2])
        )
        if not (isinstance(state, tuple) and isinstance(index, int) and isinstance(own, int) and index):
            return None
        solvent = Fraction(index, max(index, own))  # less than one: the yield has lost some of its asset
        left_s = state[5] - block.time_us // 1_000_000
        paid = _discount(Fraction(state[8], WAD), left_s)
        return (State(paid * solvent, state[1] * index // WAD), left_s <= 0) if paid else None

    def _mean(self, known: Mapping[Any, Any], block: Block) -> Fraction | None:
        """The price at the average rate; None where the market does not remember for so long."""
        observed = known[call(self.market, OBSERVE, ((MEAN_S, 0),))]
        state = known[call(self.market, STATE, (self.market,))]
        index, own = (known[read] for read in self.of_yield(known)[:2])
        if not isinstance(observed, tuple) or len(observed) != 2:
            return None
        rate = Fraction(observed[1] - observed[0], MEAN_S * WAD)
        paid = _discount(rate, state[5] - block.time_us // 1_000_000)
        return paid * Fraction(index, max(index, own)) if paid else None

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _discount(rate: Fraction, left_s: int) -> Fraction | None:
    """What one unit at the expiry is worth now, by the logarithm of a rate per year; None of a rate beyond sense."""
    exponent = rate * max(left_s, 0) / YEAR_S
    if not 0 <= exponent <= MAX_EXPONENT:
        return None
    grown = EXACT.exp(EXACT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
    return 1 / Fraction(grown)


def principals(section: Mapping[str, Any], where: str) -> Principals:
    """The source behind a chain's section; `where` is what a BadSettings calls it."""
    for key in sorted(section.keys() - {"markets", "native"}):
        raise BadSettings(where, f"unknown key `{key}`")
    markets = section.get("markets", {})
    if not isinstance(markets, Mapping):
        raise BadSettings(where, "`markets` has lines principal = market")
    named = {
        canonical(each, where): address_of(market, f"the market of {each}", where) for each, market in markets.items()
    }
    native = canonical(section["native"], where) if "native" in section else None
    return Principals(named, native)


SECTION = PriceSection(by_chain(principals), order=65, kinds=(KIND,))
