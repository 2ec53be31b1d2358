"""Steps of prices where many blocks are priced at once: a price is held exactly where it would be, had each block been
asked for after the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.pricing.rules import Guards
from chainfolio.pricing.source_chain import SourceOutcome

Last = Mapping[Asset, Price]


@dataclass(slots=True)
class Heard:
    """The prices that were found at one block, given those of `last` before it; `said` is all that its sources told."""

    last: Last
    prices: Sequence[Price] = ()
    said: list[SourceOutcome] = field(default_factory=list)

    def would_be(self, last: Last, guards: Guards) -> bool:
        """Whether the same would have been found with other prices before it: none that was told is held by one of
        both alone."""
        told = (each.outcome for each in self.said if isinstance(each.outcome, Price))
        return all(
            bool(guards.step_fault(price, self.last.get(price.asset)))
            == bool(guards.step_fault(price, last.get(price.asset)))
            for price in told
        )


@dataclass(slots=True)
class Steps:
    """The search at some blocks. `kept` are prices of before, by height and in its order; `stays` says whether what is
    found at a block will be kept, so that later blocks have it before them."""

    kept: Sequence[tuple[int, Price]]
    guards: Guards
    stays: Callable[[Block], bool]
    heard: dict[Block, Heard] = field(default_factory=dict)

    def open(self, blocks: Iterable[Block]) -> dict[Block, Last]:
        """The blocks that are to be asked for, or asked for again, with the prices before them, as far as these are
        known: the first of them is known for sure, so that each time one more block is settled at least."""
        found: dict[Block, Last] = {}
        last: dict[Asset, Price] = {}
        at = 0
        for block in sorted(blocks, key=lambda each: each.height):
            while at < len(self.kept) and self.kept[at][0] < block.height:
                last[self.kept[at][1].asset] = self.kept[at][1]
                at += 1
            heard = self.heard.get(block)
            if heard is None or not heard.would_be(last, self.guards):
                found[block] = dict(last)
            elif self.stays(block):
                last |= {price.asset: price for price in heard.prices}
        return found
