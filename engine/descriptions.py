"""What tokens are called and what they are worth at one block, each asked once however many accounts have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price, Token
from chainfolio.plans import Plan, Report, batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from engine.tokens import TokenBook
from pricing.quotes import PriceSource, Quotes, Refusal
from pricing.source_chain import source_chain

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from engine.price_store import PriceStore


@dataclass(slots=True)
class About:
    """Collects it for one snapshot. `known` are the prices that are kept of the block: nobody is asked for them again,
    and what is asked is kept in `store`, where there is one. `last` are those kept of the days before."""

    chain: Chain
    book: TokenBook
    sources: Sequence[PriceSource]
    block: Block
    known: Mapping[Asset, Price] = field(default_factory=dict)
    last: Mapping[Asset, Price] = field(default_factory=dict)
    store: PriceStore | None = None
    tokens: dict[Asset, Token] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    _prices: dict[Asset, Price] = field(default_factory=dict)
    _refused: list[Refusal] = field(default_factory=list)
    _asked: set[Asset] = field(default_factory=set)
    _stored: set[Asset] = field(default_factory=set)
    _said: dict[Asset, Token] = field(default_factory=dict)

    def expect(self, assets: Iterable[Asset]) -> Plan[Any, Any, None]:
        """Ask what some tokens are before it is known whether they are held: together with their balances."""
        wanted = set(assets) - {self.chain.info.native.asset}
        unknown = sorted(wanted - self.book.known(wanted, self.block).keys())
        if unknown:
            self._said |= yield from self.chain.describe(unknown)

    def keep(self) -> None:
        """Let the book have what contracts said of themselves, and the store what they were worth. Where another
        process has kept another price of this block, that one holds."""
        self.book.learn(self._said, self.block)
        fresh = [price for price in self._prices.values() if price.asset not in self._stored]
        if self.store is not None and fresh:
            held = self.store.keep(self.block, fresh, final=self.chain.is_final(self.block.height))
            self._prices |= held
            self._stored |= {price.asset for price in fresh}

    def ask(self, assets: Iterable[Asset]) -> Plan[Any, Any, None]:
        """Ask for what was not asked yet, the native coin with the first."""
        native = self.chain.info.native
        wanted = sorted({*assets, native.asset} - self._asked)
        if not wanted:
            return
        self._asked |= set(wanted)
        known = self.book.known(wanted, self.block) | {each: self._said[each] for each in wanted if each in self._said}
        unknown = [asset for asset in wanted if asset not in known and asset != native.asset]
        kept = {asset: self.known[asset] for asset in wanted if asset in self.known}
        self._prices |= kept
        self._stored |= kept.keys()
        unpriced = [asset for asset in wanted if asset not in kept]
        plans: dict[str, Plan[Any, Any, Any]] = {"prices": source_chain(self.sources, unpriced, self.block, self.last)}
        if unknown:
            plans["tokens"] = self.chain.describe(unknown)
        reports: dict[str, Report[Any]] = yield from batched(plans, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
        self.issues += [
            Issue(name, self.chain.key, report.reason) for name, report in reports.items() if report.status == "failed"
        ]
        told = reports["tokens"].result if unknown else None
        self._said |= told or {}
        self.tokens |= known | (told or {}) | {native.asset: native}
        for asset in wanted:
            self.tokens.setdefault(asset, Token(asset, "", "", None))
        quotes = reports["prices"].result or Quotes()
        self._prices |= {price.asset: price for price in quotes.prices}
        self._refused += quotes.refused

    @property
    def quotes(self) -> Quotes:
        """All prices, in the order of their assets, and why others have none."""
        prices = sorted(self._prices.values(), key=lambda price: str(price.asset))
        return Quotes(tuple(prices), tuple(sorted(self._refused, key=lambda each: (str(each.asset), each.source))))
