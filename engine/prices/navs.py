"""The values of accounts in one currency."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chainfolio import currencies
from chainfolio.blocks import Block
from chainfolio.engine.prices.rates import Rates
from chainfolio.engine.snapshots.account_cache import CachedAccount
from chainfolio.errors import (
    BadRequest,
)
from chainfolio.portfolio.nav import Nav, converted, nav
from chainfolio.portfolio.valuation import Valuation
from chainfolio.portfolio.worths import net_worths

if TYPE_CHECKING:
    from chainfolio.engine.snapshots.snapshotter import Snapshotter


async def joint_nav(entries: Sequence[CachedAccount], currency: str, rates: Rates, now_us: int) -> Nav:
    """Return one value over accounts in a currency, at the rate of `now_us`; unread data are issues.

    Raises:
        NotSupported: The currency has no rate.
    """
    holdings = tuple(valued for entry in entries for valued in entry.valuation.holdings)
    positions = tuple(position for entry in entries for position in entry.valuation.positions)
    unread = {address: issues for entry in entries for address, issues in entry.valuation.unread.items()}
    valuation = Valuation(holdings, positions, unread=unread)
    if currency == "USD":
        return nav(valuation)
    rate = await rates.of(currency, valuation, now_us)
    return nav(valuation, currency, rate.value, rate.source)


def check_fiat(currency: str, configured_rates: Mapping[str, str]) -> None:
    """Check a currency of many values at one block.

    Raises:
        BadRequest: The currency is a coin, or cannot be converted to.
    """
    if currencies.is_coin(currencies.checked(currency, configured_rates)):
        fiat = ", ".join(each for each in currencies.served(configured_rates) if not currencies.is_coin(each))
        raise BadRequest("currency", f"many values at one block are in one of [{fiat}]")


async def navs_at(
    snapshotter: Snapshotter, addresses: Sequence[str], block: Block, currency: str, rates: Rates, *, past: bool
) -> list[Nav]:
    """Return the value of each account at a block, in order, in USD or fiat at that time's rate.

    A coin as `currency` would get its current price: the caller checks that it is fiat. `past` is that of
    `Snapshotter.take`.

    Errors as of `Snapshotter.take`, and NotSupported if the currency has no rate then.
    """
    rate = None if currency == "USD" else await rates.of(currency, Valuation(()), block.time_us)
    snapshot = await snapshotter.take(addresses, block, past=past)
    values = await asyncio.to_thread(net_worths, [snapshot])
    rate_fields = (currency, rate.value, rate.source) if rate else (currency,)
    return [converted(values[address], *rate_fields) for address in addresses]
