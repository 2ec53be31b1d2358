"""Names and prices of tokens at one block, each read once for all accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price, Token
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.plans import Plan, batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.price_sources import PriceSource, Quotes, Refusal
from chainfolio.pricing.source_chain import query_sources

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.stored_prices.store import PriceStore


@dataclass(slots=True)
class TokenContext:
    """Collects the tokens and prices of one snapshot.

    Attributes:
      stored_prices: Prices of this block that are stored.
      recent_prices: Stored prices of the days before.
      store: Stores the prices that are read; None if prices are not stored.
    """

    chain: Chain
    book: TokenBook
    sources: Sequence[PriceSource]
    block: Block
    stored_prices: Mapping[Asset, Price] = field(default_factory=dict)
    recent_prices: Mapping[Asset, Price] = field(default_factory=dict)
    store: PriceStore | None = None
    tokens: dict[Asset, Token] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    _prices: dict[Asset, Price] = field(default_factory=dict)
    _refusals: list[Refusal] = field(default_factory=list)
    _requested: set[Asset] = field(default_factory=set)
    _stored: set[Asset] = field(default_factory=set)
    _described: dict[Asset, Token] = field(default_factory=dict)

    def prefetch(self, assets: Iterable[Asset]) -> Plan[None]:
        """Read descriptions of tokens in the round of the balances, before it is known whether they are held."""
        tokens = set(assets) - {self.chain.info.native.asset}
        unknown = sorted(tokens - self.book.described_at(tokens, self.block).keys())
        if unknown:
            self._described |= yield from self.chain.describe(unknown)

    def save(self) -> None:
        """Save descriptions in the token book, and prices in the store.

        If another process stored another price of this block first, that price replaces ours.
        """
        self.book.add(self._described, self.block)
        fresh = [price for price in self._prices.values() if price.asset not in self._stored]
        if self.store is not None and fresh:
            stored = self.store.add(self.block, fresh, final=self.chain.is_final(self.block.height))
            self._prices |= stored
            self._stored |= {price.asset for price in fresh}

    def load(self, assets: Iterable[Asset]) -> Plan[None]:
        """Read descriptions and prices of assets that were not requested yet, the native coin with the first.

        They go to `tokens` and the prices; an asset without a description has no symbol and no decimals. Stored prices
        count. They are read again only to repeat a round whose answers may be stored. Failed reads become issues.
        """
        native = self.chain.info.native
        new_assets = sorted({*assets, native.asset} - self._requested)
        if not new_assets:
            return
        self._requested |= set(new_assets)
        descriptions = self.book.described_at(new_assets, self.block) | {
            each: self._described[each] for each in new_assets if each in self._described
        }
        unknown = [asset for asset in new_assets if asset not in descriptions and asset != native.asset]
        stored = {asset: self.stored_prices[asset] for asset in new_assets if asset in self.stored_prices}
        self._prices |= stored
        self._stored |= stored.keys()
        unpriced = new_assets if self._repeats_reads else [asset for asset in new_assets if asset not in stored]
        plans: dict[str, Plan[Quotes | Mapping[Asset, Token]]] = {
            "prices": query_sources(self.sources, unpriced, self.block, self.recent_prices)
        }
        if unknown:
            plans["tokens"] = self.chain.describe(unknown)
        reports = yield from batched(plans, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
        self.issues += [
            Issue(name, self.chain.key, report.reason) for name, report in reports.items() if report.status == "failed"
        ]
        results = [report.result for report in reports.values()]
        described = next((result for result in results if isinstance(result, Mapping)), {})
        self._described |= described
        self.tokens |= descriptions | dict(described) | {native.asset: native}
        for asset in new_assets:
            self.tokens.setdefault(asset, Token(asset, "", "", None))
        quotes = next((result for result in results if isinstance(result, Quotes)), Quotes())
        self._prices |= {price.asset: price for price in quotes.prices if price.asset not in stored}
        self._refusals += [each for each in quotes.refused if each.asset not in stored]

    @property
    def _repeats_reads(self) -> bool:
        """True if answers about this block may be stored: rounds that were read before must have the same reads."""
        return self.store is not None and self.store.repeats_reads and not self.chain.is_final(self.block.height)

    @property
    def quotes(self) -> Quotes:
        """Return all prices in the order of their assets, and the refusals."""
        prices = sorted(self._prices.values(), key=lambda price: str(price.asset))
        return Quotes(tuple(prices), tuple(sorted(self._refusals, key=lambda each: (str(each.asset), each.source))))
