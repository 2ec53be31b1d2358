"""Make the portfolios of accounts from what was read, with the parts that their options ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio.engine.nft_metadata import MetadataReader
from chainfolio.engine.snapshots.account_cache import CachedAccount
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, encode_one, wallet_only
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.nfts import with_nfts
from chainfolio.portfolio.pnl.in_portfolio import with_gains
from chainfolio.portfolio.valuation import Valuation
from chainfolio.portfolio.zeroed import zero_unknown

if TYPE_CHECKING:
    from chainfolio.engine.prices.request_rates import RequestRates
    from chainfolio.environment import Clock
    from chainfolio.indexer.registry import Registry

Rates = Mapping[str, Decimal] | None


@dataclass(frozen=True, slots=True)
class Documents:
    """Makes portfolios.

    `facts` returns the facts of each configured chain, `protocols` the protocols of all files.
    """

    clock: Clock
    facts: Callable[[], Mapping[str, ChainFacts]]
    protocols: Callable[[], Registry]
    rates: RequestRates
    metadata: MetadataReader

    async def cached(
        self, address: str, entry: CachedAccount, options: Options, rates: Rates, *, loose_only: bool = False
    ) -> Portfolio:
        """Return the portfolio of a cached account, with its gains; with `loose_only` without positions."""
        document = await self.unfinished(address, entry, options)
        return self.rates.finish(wallet_only(document) if loose_only else document, rates)

    async def unfinished(self, address: str, entry: CachedAccount, options: Options) -> Portfolio:
        """Return the portfolio of a cached account with its gains, without percentages and rates."""
        document = await self._portfolio(address, entry.valuation, entry.updated_us, options, entry)
        return document if entry.gains is None else with_gains(document, entry.gains, spam=options.spam)

    async def encoded(self, address: str, entry: CachedAccount, options: Options, rates: Rates) -> bytes:
        """Return the portfolio of a cached account as JSON; it is encoded once."""
        encoded = entry.encoded.get(options)
        if encoded is None:
            document = await self.cached(address, entry, options, rates)
            encoded = entry.encoded[options] = encode_one(zero_unknown(document) if options.zero else document)
        return encoded

    async def at_block(
        self, address: str, valuation: Valuation, options: Options, rates: Rates, height: int
    ) -> Portfolio:
        """Return the portfolio of an account at a block, without gains."""
        now_us = self.clock.now_us()
        return self.rates.finish(await self._portfolio(address, valuation, now_us, options, height=height), rates)

    async def _portfolio(
        self,
        address: str,
        valuation: Valuation,
        updated_us: int,
        options: Options,
        entry: CachedAccount | None = None,
        height: int | None = None,
    ) -> Portfolio:
        """Return a portfolio; metadata of collectibles are read first if they are shown, once for an `entry`."""
        facts = self.facts()
        document = portfolio(
            address,
            valuation,
            facts,
            updated_ms=updated_us // 1000,
            options=options,
            block_number=height,
            protocols=self.protocols().facts,
        )
        collectibles = valuation.for_account(address).collectibles if options.nfts else ()
        metadata = None if entry is None else entry.metadata
        if metadata is None and collectibles and options.nft_metadata:
            metadata = await self.metadata.read(collectibles)
            if entry is not None:
                entry.metadata = metadata
        return with_nfts(document, collectibles, facts, options, metadata if options.nft_metadata else None)
