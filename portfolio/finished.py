"""What a portfolio gets last, when all its sums are made: percentages of its net worth, addresses of assets, and the
rates of other currencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from portfolio.document import (
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


def finished(document: Portfolio, rates: Mapping[str, Decimal] | None = None) -> Portfolio:
    """The portfolio as answers have it: each asset has its address and its percentage of the net worth, and `rates` are
    its conversion rates; None leaves those that it has.

    The percentage of what is owed is positive, as its value is; that of spam, which is in no sum, is 0; that of what
    has no price is `N/A`."""
    whole, shown = Fraction(document.networth), document.conversion_rates
    if rates is not None:
        shown = {symbol: amounts.text(rates[symbol]) for symbol in sorted(rates)}
    return msgspec.structs.replace(
        document,
        asset_by_protocols={key: _protocol(each, whole) for key, each in document.asset_by_protocols.items()},
        conversion_rates=shown,
    )


def _protocol(protocol: ProtocolDocument, whole: Fraction) -> ProtocolDocument:
    chains = {key: _chain(each, whole) for key, each in protocol.chains.items()}
    return msgspec.structs.replace(protocol, chains=chains)


def _chain(chain: ProtocolChainDocument, whole: Fraction) -> ProtocolChainDocument:
    positions = {kind: _positions(each, whole) for kind, each in chain.protocol_positions.items()}
    return msgspec.structs.replace(chain, protocol_positions=positions)


def _positions(positions: PositionsDocument, whole: Fraction) -> PositionsDocument:
    return msgspec.structs.replace(
        positions,
        assets=_assets(positions.assets, whole),
        protocol_positions=tuple(_position(each, whole) for each in positions.protocol_positions),
    )


def _position(position: PositionDocument, whole: Fraction) -> PositionDocument:
    return msgspec.structs.replace(
        position,
        assets=_assets(position.assets, whole),
        supply_assets=_assets(position.supply_assets, whole),
        borrow_assets=_assets(position.borrow_assets, whole),
        reward_assets=_assets(position.reward_assets, whole),
        dex_assets=_assets(position.dex_assets, whole),
    )


def _assets(assets: tuple[AssetDocument, ...], whole: Fraction) -> tuple[AssetDocument, ...]:
    return tuple(
        msgspec.structs.replace(each, address=each.contract, percentage=_percentage(each, whole)) for each in assets
    )


def _percentage(asset: AssetDocument, whole: Fraction) -> str:
    if asset.value == UNKNOWN:
        return UNKNOWN
    if whole <= 0 or asset.spam is not UNSET:
        return "0"
    # The same as `rounded`, in whole numbers: a wallet may hold ten thousand assets.
    above, below = Decimal(asset.value).as_integer_ratio()
    above, below = above * whole.denominator * 100 * 10**PLACES, below * whole.numerator
    share, rest = divmod(above, below)
    is_up = 2 * rest > below or (2 * rest == below and share % 2 == 1)
    return amounts.text(amounts.EXACT.scaleb(Decimal(share + is_up), -PLACES))


def held_rates(document: Portfolio, coins: Mapping[str, str]) -> dict[str, Decimal]:
    """What coins are worth in USD by the prices of a portfolio, weighted by the amounts that lie loose; none of a coin
    that is not held. `coins` are the coins by chain and contract of their assets."""
    held: defaultdict[str, list[tuple[Fraction, Fraction]]] = defaultdict(list)
    chains = (chain for protocol in document.asset_by_protocols.values() for chain in protocol.chains.values())
    for asset in (asset for chain in chains for each in chain.protocol_positions.values() for asset in each.assets):
        coin = coins.get(asset.chain_contract)
        if coin is not None and asset.spam is UNSET and UNKNOWN not in (asset.balance, asset.price):
            held[coin].append((Fraction(asset.balance), Fraction(asset.price)))
    return {coin: rate for coin, parts in held.items() if (rate := _average(parts)) is not None}


def _average(parts: list[tuple[Fraction, Fraction]]) -> Decimal | None:
    whole = sum((amount for amount, _ in parts), Fraction(0))
    value_usd = sum((amount * usd for amount, usd in parts), Fraction(0))
    return rounded(value_usd / whole, RATE_PLACES) if whole else None
