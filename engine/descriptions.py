"""What tokens are called and what they are worth at one block, each asked once however many accounts have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.blocks import Block
from chainfolio.calls import Read
from chainfolio.contracts import Issue, Price, Token
from chainfolio.plans import Plan, Report, batched
from engine.tokens import TokenBook
from pricing.quotes import PriceSource, Quotes, Refusal
from pricing.source_chain import source_chain

if TYPE_CHECKING:
    from chainfolio.chains import Chain


@dataclass(slots=True)
class About:
    """Collects it for one snapshot."""

    chain: Chain
    book: TokenBook
    sources: Sequence[PriceSource]
    block: Block
    tokens: dict[str, Token] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    _prices: dict[Asset, Price] = field(default_factory=dict)
    _refused: list[Refusal] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)
    _said: dict[str, Token] = field(default_factory=dict)

    def expect(self, contracts: Iterable[str]) -> Plan[Read, Any, None]:
        """Ask what some tokens are before it is known whether they are held: together with their balances."""
        wanted = set(contracts) - {ZERO_ADDRESS}
        unknown = sorted(wanted - self.book.known(wanted, self.block).keys())
        if unknown:
            self._said |= yield from self._describe(unknown)

    def keep(self) -> None:
        """Let the book have what contracts said of themselves."""
        self.book.learn(self._said, self.block)

    def ask(self, contracts: Iterable[str]) -> Plan[Read, Any, None]:
        """Ask for what was not asked yet, the native coin (the zero address) with the first."""
        wanted = sorted({*contracts, ZERO_ADDRESS} - self._asked)
        if not wanted:
            return
        self._asked |= set(wanted)
        known = self.book.known(wanted, self.block) | {each: self._said[each] for each in wanted if each in self._said}
        unknown = [contract for contract in wanted if contract not in known and contract != ZERO_ADDRESS]
        assets = [self._asset(contract) for contract in wanted]
        plans: dict[str, Plan[Read, Any, Any]] = {"prices": source_chain(self.sources, assets, self.block)}
        if unknown:
            plans["tokens"] = self._describe(unknown)
        reports: dict[str, Report[Any]] = yield from batched(plans)
        self.issues += [
            Issue(name, self.chain.key, report.reason) for name, report in reports.items() if report.status == "failed"
        ]
        told = reports["tokens"].result if unknown else None
        self._said |= told or {}
        self.tokens |= known | (told or {}) | {ZERO_ADDRESS: self._native}
        for contract in wanted:
            self.tokens.setdefault(contract, Token(self.chain.info.token_asset(contract), "", "", None))
        quotes = reports["prices"].result or Quotes()
        self._prices |= {price.asset: price for price in quotes.prices}
        self._refused += quotes.refused

    @property
    def quotes(self) -> Quotes:
        """All prices, in the order of their assets, and why others have none."""
        prices = sorted(self._prices.values(), key=lambda price: str(price.asset))
        return Quotes(tuple(prices), tuple(sorted(self._refused, key=lambda each: (str(each.asset), each.source))))

    @property
    def _native(self) -> Token:
        return self.chain.info.native

    def _describe(self, contracts: Sequence[str]) -> Plan[Read, Any, dict[str, Token]]:
        tokens = yield from self.chain.describe([self._asset(contract) for contract in contracts])
        return {asset.contract: token for asset, token in tokens.items()}

    def _asset(self, contract: str) -> Asset:
        info = self.chain.info
        return info.native.asset if contract == ZERO_ADDRESS else info.token_asset(contract)
