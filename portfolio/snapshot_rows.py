"""Rows of `snapshot_holdings` from a snapshot's document: every asset, in the order of the document."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, Portfolio, PositionsDocument

Placed = tuple[str, str, AssetDocument]  # name of the position, side, asset


def holdings_of(document: Portfolio) -> list[dict[str, object]]:
    """Return the columns of `snapshot_holdings` about holdings, a row per asset."""
    rows = [
        {"protocol": protocol.key, "position": kind, "name": name, "side": side, **_columns(asset)}
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for kind, positions in chain.protocol_positions.items()
        for name, side, asset in _sided_assets(positions)
    ]
    return [{"item": item, **row} for item, row in enumerate(rows)]


def _sided_assets(positions: PositionsDocument) -> Iterator[Placed]:
    """Yield assets with the name of their position (empty if loose) and their side."""
    for asset in positions.assets:
        yield "", "owned", asset
    for nested in positions.protocol_positions:
        sides = (
            ("owned", (*nested.assets, *nested.dex_assets)),
            ("supplied", nested.supply_assets),
            ("borrowed", nested.borrow_assets),
            ("reward", nested.reward_assets),
        )
        for side, assets in sides:
            for asset in assets:
                yield nested.name, side, asset


def _columns(asset: AssetDocument) -> dict[str, object]:
    """Return an asset's columns; what is unknown is None."""
    decimals = None if asset.decimal == UNKNOWN else int(asset.decimal)
    return {
        "asset": asset.contract,
        "symbol": asset.symbol,
        "decimals": decimals,
        "raw": _raw(asset.balance, decimals),
        "price": _or_none(asset.price),
        "value": _or_none(asset.value),
        "spam": asset.spam is not UNSET,
    }


def _raw(balance: str, decimals: int | None) -> bytes | None:
    """Return the amount in the smallest unit as 32 bytes; None if it is unknown or too large."""
    if balance == UNKNOWN or decimals is None:
        return None
    raw = int(amounts.EXACT.scaleb(Decimal(balance), decimals))
    return raw.to_bytes(32, "big") if 0 <= raw <= amounts.MAX_RAW else None


def _or_none(text: str) -> str | None:
    return None if text == UNKNOWN else text
