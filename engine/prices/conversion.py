"""Conversion of USD values of many times into another currency, each at the rate of its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.block_search import blocks_before, first_served
from chainfolio.chains import Chain
from chainfolio.contracts import FIAT
from chainfolio.currencies import checked, is_coin
from chainfolio.errors import NotSupported, SourceError
from chainfolio.portfolio.document import rounded
from chainfolio.portfolio.nav import PLACES
from chainfolio.pricing.ecb import FiatRate

if TYPE_CHECKING:
    from chainfolio.engine.prices.rates import Rates
    from chainfolio.engine.snapshots.snapshotter import Snapshotter

USD: Final = "USD"


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rates of a currency: units per USD for fiat, USD per unit for coins; none for USD itself."""

    currency: str = USD
    rates: Mapping[int, Decimal] | None = None
    remarks: Sequence[str] = ()

    @classmethod
    async def of(
        cls,
        rates: Rates,
        snapshotter: Callable[[Chain], Snapshotter],
        currency: str,
        moments_us: Sequence[int],
    ) -> Conversion:
        """Return the rates of a currency other than USD at some times, in microseconds.

        Rates are read from nodes or reference rates now, so that `value` needs no I/O.

        Raises:
            BadRequest: The currency is unknown.
            NotSupported: The rate at one of the times is not known.
            SourceError: No chain that may price the coin could be read.
        """
        checked(currency, rates.fixed)
        times_us = sorted(set(moments_us))
        if currency in rates.fixed:
            fixed = amounts.parse(rates.fixed[currency])
            return cls(currency, dict.fromkeys(times_us, fixed), [f"{currency} at the fixed rate of the settings"])
        if currency in FIAT:
            return cls(currency, {time_us: await _fiat(rates, currency, time_us) for time_us in times_us})
        return cls(currency, await _coin(snapshotter, rates, currency, times_us))

    def value(self, usd: Decimal, moment_us: int) -> Decimal:
        """Return a USD value of a time in the currency: exact for fiat, rounded to 18 places for coins.

        The time must be one that was passed to `of` (else KeyError), except for USD.
        """
        if self.rates is None:
            return usd
        rate = self.rates[moment_us]
        if is_coin(self.currency):
            return rounded(Fraction(usd) / Fraction(rate), PLACES)
        return amounts.value_of(usd, rate)


async def _fiat(rates: Rates, currency: str, moment_us: int) -> Decimal:
    """Return the units of a currency per USD at a time; NotSupported if no rate is known."""
    rate = await rates.fiat(currency, moment_us)
    if isinstance(rate, FiatRate):
        return rate.per_usd
    reason = f"No rate of {currency} is known: {rate}"
    raise NotSupported(f"a value in {currency}", reason, remedy="[ecb] in the file of prices, or --currency USD")


async def _coin(
    snapshotter: Callable[[Chain], Snapshotter], rates: Rates, currency: str, times_us: Sequence[int]
) -> dict[int, Decimal]:
    """Return the coin's prices at the last block up to each time, from the first chain with all of them.

    Raises:
        NotSupported: No chain has all prices. Chains whose head is older than the last time are left out.
        SourceError: No chain could be read; the error is that of the first one.
    """
    failures: dict[str, SourceError] = {}
    pairs = _priced_on(rates, currency)
    for chain, asset in pairs:
        if chain.key in failures:
            continue
        try:
            usd_by_time = await _prices_on(chain, asset, snapshotter, times_us)
        except SourceError as error:  # another chain may price the coin
            failures[chain.key] = error
            continue
        if len(usd_by_time) == len(times_us):
            return usd_by_time
    if failures and failures.keys() == {chain.key for chain, _ in pairs}:
        raise next(iter(failures.values()))
    reason = f"No configured chain or source has every price of {currency} in that time"
    remedy = "a chain or a source that prices it, or --currency USD"
    raise NotSupported(f"values of the past in {currency}", reason, remedy=remedy)


async def _prices_on(
    chain: Chain, asset: Asset, snapshotter: Callable[[Chain], Snapshotter], times_us: Sequence[int]
) -> dict[int, Decimal]:
    """Return an asset's prices by time, each at the last block of a chain up to it.

    Times without a price are absent. Empty if the head is older than the last time.

    Raises:
        SourceError: The head or the blocks could not be read.
    """
    head = (await chain.heads()).latest
    if times_us and times_us[-1] >= head.time_us + 1_000_000:
        return {}
    blocks = await blocks_before(
        head,
        [min(time_us + 1, head.time_us) for time_us in times_us],
        chain.blocks,
        await first_served(chain),
        chain.key,
    )
    at = {time_us: blocks[min(time_us + 1, head.time_us)] for time_us in times_us}
    assets_by_block = {block: [asset] for block in at.values() if block is not None}
    prices, _ = await snapshotter(chain).past.prices(assets_by_block)
    return {
        time_us: prices[block.height][asset].usd
        for time_us, block in at.items()
        if block is not None and asset in prices[block.height]
    }


def _priced_on(rates: Rates, currency: str) -> list[tuple[Chain, Asset]]:
    """Return the chains and assets that may price a coin: chains with it as native coin first."""
    natives = [(chain, chain.info.native.asset) for chain in rates.chains if chain.info.native.symbol == currency]
    tokens = [(chain, unit) for chain in rates.chains for unit in rates.units.get(currency, ())]
    return [*sorted(natives, key=_by_key), *sorted(tokens, key=_by_key)]


def _by_key(pair: tuple[Chain, Asset]) -> str:
    return pair[0].key
