"""Prices of Pendle's principal tokens, from their markets; after the expiry from their redemption.

The settings name the market of each principal, because no contract lists it. The price is that of the last trade, as
the interest rate that it implies. It is trusted if it is close to that of the parent block and, if the market has
observations, to their average. The price is in the asset that the yield is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from chainfolio.adapters.evm.prices.markets import Market, PoolState, first_read_error, is_contract
from chainfolio.adapters.evm.prices.redeemables import Redemption
from chainfolio.adapters.evm.prices.section import KIND, parse_contract, raw_unit
from chainfolio.adapters.evm.prices.shares import redemption_price
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import read_distinct
from chainfolio.price_sources import (
    PricePlan,
    PriceSection,
    Quotes,
    Refusal,
    RelativePrice,
    Section,
    by_chain,
    parse_asset,
)
from chainfolio.reads import AtParent, ContractRead, ReadResult

SOURCE: Final = "principals"
TOKENS: Final = "readTokens()(address,address,address)"
STATE: Final = "readState(address)(int256,int256,int256,address,int256,uint256,uint256,uint256,uint256)"
OBSERVE: Final = "observe(uint32[])(uint216[])"
INDEX: Final = "exchangeRate()(uint256)"
STORED_INDEX: Final = "pyIndexStored()(uint256)"
ASSET_INFO: Final = "assetInfo()(uint8,address,uint8)"
AVERAGE_S: Final = 900
MAX_MOVE: Final = 1 + Fraction(1, 100)  # the curve of a market lets its price move by a few percent in total
YEAR_S: Final = 365 * 86_400
WAD: Final = 10**18
TOKEN_TYPE: Final = 0  # of the yield's asset; the other types are liquidity, and assets of other chains
MAX_EXPONENT: Final = 20
EXACT: Final = Context(prec=50, rounding=ROUND_HALF_EVEN)

Results = dict[ContractRead, Any]


class MarketState(NamedTuple):
    """The result of a Pendle market's `readState`."""

    total_pt: int
    total_sy: int
    total_lp: int
    treasury: str
    scalar_root: int
    expiry: int
    ln_fee_rate_root: int
    reserve_fee_percent: int
    last_ln_implied_rate: int


@dataclass(frozen=True, slots=True)
class Principals:
    """The principal tokens of one chain, with the market of each."""

    markets: Mapping[Asset, str]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Return True if the settings name a market of the asset."""
        return asset in self.markets

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a relative price or a refusal for each principal, in three rounds; other assets are left out."""
        principals = [_Principal(asset, self.markets[asset]) for asset in assets if asset in self.markets]
        if not principals:
            return Quotes()
        results: Results = {}
        for round_reads in (_Principal.market_reads, _Principal.yield_reads, _Principal.asset_reads):
            reads = (read for principal in principals for read in round_reads(principal, results))
            results |= yield from read_distinct(list(reads))
        outcomes = [principal.outcome(results, block, self.native) for principal in principals]
        return Quotes(
            refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
            relative=tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice)),
        )


@dataclass(frozen=True, slots=True)
class _Principal:
    """A principal token and its market. `results` are those of all rounds so far."""

    asset: Asset
    market: str

    def market_reads(self, results: Results) -> list[ContractRead]:
        """Return the reads of the market's tokens, state (now and before), observations, and of the decimals."""
        state = Call(self.market, STATE, (self.market,))
        average = Call(self.market, OBSERVE, ((AVERAGE_S, 0),))
        return [Call(self.market, TOKENS), state, AtParent(state), average, Call(self.asset.reference, DECIMALS)]

    def yield_reads(self, results: Results) -> list[ContractRead]:
        """Return the reads of both indexes of the yield (now and before), and of its asset.

        Empty if the market is another token's. The first index is the current exchange rate, the second the highest one
        so far.
        """
        tokens = results[Call(self.market, TOKENS)]
        if not isinstance(tokens, tuple) or tokens[1] != self.asset.reference:
            return []
        indexes = [Call(tokens[0], INDEX), Call(tokens[2], STORED_INDEX)]
        return [*indexes, *map(AtParent, indexes), Call(tokens[0], ASSET_INFO)]

    def asset_reads(self, results: Results) -> list[ContractRead]:
        """Return the read of the asset's decimals; empty if the yield is not of a token."""
        info = self._asset_info(results)
        return [Call(info[1], DECIMALS)] if info and is_contract(info[1]) else []

    def _asset_info(self, results: Results) -> tuple[int, str, int] | None:
        reads = self.yield_reads(results)
        info = results.get(reads[-1]) if reads else None
        return info if isinstance(info, tuple) and info[0] == TOKEN_TYPE else None

    def outcome(self, results: Results, block: Block, native: Asset | None) -> RelativePrice | Refusal:
        """Return its price in the underlying asset: that of its market, or of redemption after its expiry.

        A refusal if a read failed, the market is another token's, its asset has no price, or the market moved too far.
        """
        reads = [*self.market_reads(results), *self.yield_reads(results), *self.asset_reads(results)]
        if fault := first_read_error([results[read] for read in reads]):
            return self._refusal(f"its market could not be read: {fault}")
        if not self.yield_reads(results):
            return self._refusal(f"{self.market} is no market of it")
        info, unit = self._asset_info(results), raw_unit(results[Call(self.asset.reference, DECIMALS)])
        underlying = self._underlying(info, native) if info else None
        if not (info and underlying and unit == (raw_unit(results[reads[-1]]) if is_contract(info[1]) else WAD)):
            return self._refusal("what its yield is of is no token that can be priced")
        current, parent = (self._state(results, block, at_parent=at_parent) for at_parent in (False, True))
        if current is None:
            return self._refusal("its market has no price")
        calls = tuple(ReadResult(read, results[read]) for read in reads if not isinstance(read, AtParent))
        if self._market_state(results).expiry <= block.time_us // 1_000_000:
            redemption = Redemption((current.price,), (parent.price,) if parent else None)
            return redemption_price(self.asset, (underlying,), redemption, calls, block)
        market = Market(current, parent, self._average(results, block))
        if fault := market.fault(MAX_MOVE):
            return self._refusal(f"{fault} (market {self.market})")
        return RelativePrice(
            self.asset,
            ((underlying, current.price),),
            SOURCE,
            block.time_us,
            market.confidence,
            f"Pendle market {self.market}",
            calls,
            (underlying, Fraction(market.depth, unit)),
        )

    def _underlying(self, info: tuple[int, str, int], native: Asset | None) -> Asset | None:
        return self.asset._replace(reference=info[1]) if is_contract(info[1]) else native

    def _market_state(self, results: Results) -> MarketState:
        return MarketState(*results[Call(self.market, STATE, (self.market,))])

    def _state(self, results: Results, block: Block, *, at_parent: bool) -> PoolState | None:
        """Return the price in the asset and the amount of it that the market could pay.

        None if it has no price.
        """
        state, index, stored_index = (
            results[AtParent(read) if at_parent else read]
            for read in (Call(self.market, STATE, (self.market,)), *self.yield_reads(results)[:2])
        )
        if not (isinstance(state, tuple) and isinstance(index, int) and isinstance(stored_index, int) and index):
            return None
        market_state = MarketState(*state)
        solvency = Fraction(index, max(index, stored_index))  # below one: the yield has lost a part of its asset
        remaining_s = market_state.expiry - block.time_us // 1_000_000
        discount = _discount_factor(Fraction(market_state.last_ln_implied_rate, WAD), remaining_s)
        return PoolState(discount * solvency, market_state.total_sy * index // WAD) if discount else None

    def _average(self, results: Results, block: Block) -> Fraction | None:
        """Return the price at the average rate; None without an observation that is old enough.

        None too if the rate is negative or absurdly high.
        """
        observations = results[Call(self.market, OBSERVE, ((AVERAGE_S, 0),))]
        index, stored_index = (results[read] for read in self.yield_reads(results)[:2])
        if not isinstance(observations, tuple) or len(observations) != 2:
            return None
        rate = Fraction(observations[1] - observations[0], AVERAGE_S * WAD)
        discount = _discount_factor(rate, self._market_state(results).expiry - block.time_us // 1_000_000)
        return discount * Fraction(index, max(index, stored_index)) if discount else None

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(self.asset, SOURCE, reason)


def _discount_factor(ln_rate: Fraction, remaining_s: int) -> Fraction | None:
    """Return the present value of one unit at the expiry; None if the rate is negative or absurdly high.

    Args:
        ln_rate: Natural logarithm of the rate per year.
        remaining_s: Time until the expiry; negative after it.
    """
    exponent = ln_rate * max(remaining_s, 0) / YEAR_S
    if not 0 <= exponent <= MAX_EXPONENT:
        return None
    growth = EXACT.exp(EXACT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
    return 1 / Fraction(growth)


def build_principals(section: Section, location: str) -> Principals:
    """Build the source from a chain's section.

    Raise BadSettings, which names `location`, if it is malformed.
    """
    for key in sorted(section.keys() - {"markets", "native"}):
        raise BadSettings(location, f"unknown key `{key}`")
    lines = section.get("markets", {})
    if not isinstance(lines, Mapping):
        raise BadSettings(location, "`markets` has lines principal = market")
    markets = {
        parse_asset(text, location): parse_contract(market, f"the market of {text}", location)
        for text, market in lines.items()
    }
    native = parse_asset(section["native"], location) if "native" in section else None
    return Principals(markets, native)


SECTION = PriceSection(by_chain(build_principals), order=65, kinds=(KIND,))
