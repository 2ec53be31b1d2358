"""Limits on price steps when many blocks are priced at once.

A price is held back exactly if it would be when the blocks were priced one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.price_sources import Refusal
from chainfolio.pricing.rules import Guards
from chainfolio.pricing.source_chain import SOURCE_FAILED, SourceOutcome

LastPrices = Mapping[Asset, Price]


@dataclass(slots=True)
class BlockSearch:
    """The prices at one block, given the `last` ones before it, with the `outcomes` of all sources."""

    last: LastPrices
    prices: Sequence[Price] = ()
    outcomes: list[SourceOutcome] = field(default_factory=list)

    def refused(self, assets: Iterable[Asset], chain_sources: Collection[str]) -> list[Asset]:
        """Return the assets that sources refused to price by the state of the chain alone.

        They would do so again at this block. An asset with an offered price, with a source that failed, or with a
        source that is not one of `chain_sources`, is left out.
        """
        unpriced, open_assets = set(assets) - {price.asset for price in self.prices}, set[Asset]()
        refused = set[Asset]()
        for asset, source, outcome in self.outcomes:
            if isinstance(outcome, Refusal):
                refused.add(asset)
                is_open = source not in chain_sources or outcome.reason.startswith(SOURCE_FAILED)
            else:
                is_open = outcome is not None or source not in chain_sources
            open_assets |= {asset} if is_open else set()
        return sorted((unpriced & refused) - open_assets)

    def is_unchanged(self, last: LastPrices, guards: Guards) -> bool:
        """Return True if other prices before the block give the same result.

        They do unless a price is held back with only one of both.
        """
        prices = (each.outcome for each in self.outcomes if isinstance(each.outcome, Price))
        return all(
            bool(guards.step_fault(price, self.last.get(price.asset)))
            == bool(guards.step_fault(price, last.get(price.asset)))
            for price in prices
        )


@dataclass(slots=True)
class Steps:
    """The search at several blocks.

    Attributes:
        stored: Stored earlier prices, by height and in its order.
        is_storable: Returns True if prices at a block will be stored, so that they count for later blocks.
    """

    stored: Sequence[tuple[int, Price]]
    guards: Guards
    is_storable: Callable[[Block], bool]
    searches: dict[Block, BlockSearch] = field(default_factory=dict)

    def unsettled(self, blocks: Iterable[Block]) -> dict[Block, LastPrices]:
        """Return the blocks to price, or to price again, with the prices before them as far as known.

        The prices before the first of them are certain, so each call settles at least one more block.
        """
        blocks_to_price: dict[Block, LastPrices] = {}
        last: dict[Asset, Price] = {}
        position = 0
        for block in sorted(blocks, key=lambda each: each.height):
            while position < len(self.stored) and self.stored[position][0] < block.height:
                last[self.stored[position][1].asset] = self.stored[position][1]
                position += 1
            search = self.searches.get(block)
            if search is None or not search.is_unchanged(last, self.guards):
                blocks_to_price[block] = dict(last)
            elif self.is_storable(block):
                last |= {price.asset: price for price in search.prices}
        return blocks_to_price
