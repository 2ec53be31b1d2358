"""Sources in an order: the next one is asked only for what is still unpriced, and each price says who gave it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.plans import Plan
from pricing.guards import price_fault, source_fault
from pricing.quotes import PriceSource, Quotes, Refusal


def source_chain(sources: Sequence[PriceSource], assets: Iterable[Asset], block: Block) -> Plan[Any, Any, Quotes]:
    """The first usable price of each asset, in the order of the assets, and every refusal on the way.

    An asset can be refused by one source and priced by a later one; an asset in neither list is known to nobody.
    """
    wanted = list(dict.fromkeys(assets))
    priced: dict[Asset, Price] = {}
    refused: list[Refusal] = []
    for source in sources:
        open_ = [asset for asset in wanted if asset not in priced]
        if not open_:
            break
        quotes = yield from _asked(source, open_, block)
        refused += quotes.refused
        for price in quotes.prices:
            fault = source_fault(price, source.name) or price_fault(price, block)
            if fault:
                refused.append(Refusal(price.asset, source.name, fault))
            else:
                priced.setdefault(price.asset, price)
    return Quotes(tuple(priced[asset] for asset in wanted if asset in priced), tuple(refused))


def _asked(source: PriceSource, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
    """One source of the chain. A source that breaks prices nothing, says so for each asset, and the next is asked."""
    try:
        quotes = yield from source.prices(assets, block)
        _check(quotes)
        return quotes
    except Exception as error:  # a source may be third-party code: its fault is not the chain's
        reason = f"the source failed: {type(error).__name__}: {error}"
        return Quotes(refused=tuple(Refusal(asset, source.name, reason) for asset in assets))


def _check(quotes: object) -> None:
    """TypeError where a source returned something else than quotes."""
    if not isinstance(quotes, Quotes):
        raise TypeError(f"it returned a {type(quotes).__name__}, not Quotes")
    for several, kind in ((quotes.prices, Price), (quotes.refused, Refusal)):
        for each in several:
            if not isinstance(each, kind) or not isinstance(each.asset, Asset):
                raise TypeError(f"its quotes have a {type(each).__name__} where a {kind.__name__} of an asset belongs")
