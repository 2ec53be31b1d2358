"""The last step of a portfolio, after its sums: percentages, addresses of assets, and rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import (
    UNKNOWN,
    AssetDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
    rounded,
)

PLACES: Final = 4
RATE_PLACES: Final = 18


def finish(document: Portfolio, rates: Mapping[str, Decimal] | None = None) -> Portfolio:
    """Return the portfolio with addresses and percentages of its assets, and conversion rates.

    The percentage of debt is positive; that of spam is 0, because no sum includes it; without a price it is `N/A`.

    Args:
        document: A portfolio with its sums.
        rates: The conversion rates; None leaves those of the document.
    """
    networth, conversion_rates = Fraction(document.networth), document.conversion_rates
    if rates is not None:
        conversion_rates = {symbol: amounts.text(rates[symbol]) for symbol in sorted(rates)}
    return msgspec.structs.replace(
        document,
        asset_by_protocols={key: _protocol(each, networth) for key, each in document.asset_by_protocols.items()},
        conversion_rates=conversion_rates,
    )


def _protocol(protocol: ProtocolDocument, networth: Fraction) -> ProtocolDocument:
    chains = {key: _chain(each, networth) for key, each in protocol.chains.items()}
    return msgspec.structs.replace(protocol, chains=chains)


def _chain(chain: ProtocolChainDocument, networth: Fraction) -> ProtocolChainDocument:
    positions = {kind: _positions(each, networth) for kind, each in chain.protocol_positions.items()}
    return msgspec.structs.replace(chain, protocol_positions=positions)


def _positions(positions: PositionsDocument, networth: Fraction) -> PositionsDocument:
    """Return positions with the share of each asset in the net worth."""
    return msgspec.structs.replace(
        positions,
        assets=_assets(positions.assets, networth),
        protocol_positions=tuple(_with_shares(each, networth) for each in positions.protocol_positions),
    )


def _with_shares(position: PositionDocument, networth: Fraction) -> PositionDocument:
    """Return a position whose assets have addresses and percentages of the net worth."""
    return msgspec.structs.replace(
        position,
        assets=_assets(position.assets, networth),
        supply_assets=_assets(position.supply_assets, networth),
        borrow_assets=_assets(position.borrow_assets, networth),
        reward_assets=_assets(position.reward_assets, networth),
        dex_assets=_assets(position.dex_assets, networth),
    )


def _assets(assets: tuple[AssetDocument, ...], networth: Fraction) -> tuple[AssetDocument, ...]:
    return tuple(
        msgspec.structs.replace(each, address=each.contract, percentage=_percentage(each, networth)) for each in assets
    )


def _percentage(asset: AssetDocument, networth: Fraction) -> str:
    """Return an asset's share of the net worth in percent.

    Unknown without a value; 0 for spam, or if the net worth is not positive.
    """
    if asset.value == UNKNOWN:
        return UNKNOWN
    if networth <= 0 or asset.spam is not UNSET:
        return "0"
    # The same as `rounded`, in whole numbers: a wallet may hold ten thousand assets.
    numerator, denominator = Decimal(asset.value).as_integer_ratio()
    numerator, denominator = numerator * networth.denominator * 100 * 10**PLACES, denominator * networth.numerator
    share, remainder = divmod(numerator, denominator)
    is_up = 2 * remainder > denominator or (2 * remainder == denominator and share % 2 == 1)
    return amounts.text(amounts.EXACT.scaleb(Decimal(share + is_up), -PLACES))


def coin_rates(document: Portfolio, coins: Mapping[str, str]) -> dict[str, Decimal]:
    """Return rates of coins in USD: average prices of a portfolio's loose holdings, by amount.

    Coins that are not held are absent. `coins` are the coins by `chain:contract` of their assets.
    """
    amounts_and_prices: defaultdict[str, list[tuple[Fraction, Fraction]]] = defaultdict(list)
    chains = (chain for protocol in document.asset_by_protocols.values() for chain in protocol.chains.values())
    for asset in (asset for chain in chains for each in chain.protocol_positions.values() for asset in each.assets):
        coin = coins.get(asset.chain_contract)
        if coin is not None and asset.spam is UNSET and UNKNOWN not in (asset.balance, asset.price):
            amounts_and_prices[coin].append((Fraction(asset.balance), Fraction(asset.price)))
    return {coin: rate for coin, parts in amounts_and_prices.items() if (rate := _average(parts)) is not None}


def _average(parts: list[tuple[Fraction, Fraction]]) -> Decimal | None:
    total_amount = sum((amount for amount, _ in parts), Fraction(0))
    value_usd = sum((amount * usd for amount, usd in parts), Fraction(0))
    return rounded(value_usd / total_amount, RATE_PLACES) if total_amount else None
