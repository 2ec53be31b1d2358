"""`chainfolio.AsyncSession`: questions about wallets from a program that has an event loop.

A session is made of an endpoint or of a data folder. It connects when it is first asked, and is closed by `async with`
or by `close()`. Answers are those of the commands; errors are those of `chainfolio.errors`.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

from chainfolio.errors import BadRequest, BadSettings, NotFound

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.history.day_values import DayValues
    from chainfolio.engine.prices.reasons import PriceReasons
    from chainfolio.engine.reconciliations import Reconciliation
    from chainfolio.engine.service import Engine
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.document import Portfolio
    from chainfolio.portfolio.nav import Nav
    from chainfolio.portfolio.pnl.report import PnlDocument
    from chainfolio.portfolio.pnl.tax_year import TaxYearDocument
    from chainfolio.portfolio.transactions import Transactions
    from chainfolio.settings import Settings

SETTINGS: Final = "chainfolio.toml"
DATA: Final = ("lake", "tail.db")  # files of a data folder
Addresses = str | Sequence[str]
log = logging.getLogger("chainfolio.session")


class AsyncSession:
    """Answers questions about wallets, with the nodes and data of one place.

    Create it with `connect` or `open`.
    """

    def __init__(self, begin: Callable[[], Awaitable[System]]) -> None:
        self._begin = begin
        self._engine: Engine | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    @classmethod
    def connect(cls, rpc: str | Sequence[str], *, data: str | Path | None = None) -> AsyncSession:
        """Return a session with the chains that some nodes serve, which connects when it is first used.

        `data` is a folder; without one nothing is stored.

        Raises:
            BadRequest: when it connects: no node is given, an address is malformed, or no file describes a node's
                chain.
            SourceError: when it connects: a node cannot be reached, or is of no installed kind.
        """

        async def begin() -> System:
            """Connect to the nodes.

            Raises:
                BadRequest: no node is given.
            """
            from chainfolio.settings_file import load

            if not rpc:
                raise BadRequest("rpc", "no node is named", remedy="its address, as http://127.0.0.1:8545")
            return await _system(load(None, {}), _as_list(rpc), data)

        return cls(begin)

    @classmethod
    def open(cls, path: str | Path, *, rpc: str | Sequence[str] = ()) -> AsyncSession:
        """Return a session with a settings file, a folder that has one, or a data folder.

        `rpc` replaces the nodes of the settings.
        """

        async def begin() -> System:
            settings = _settings(Path(path))
            return await _system(settings, _as_list(rpc), settings.data_dir)

        return cls(begin)

    async def __aenter__(self) -> AsyncSession:
        await self._ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections and files, after used prices of final blocks are moved to the lake.

        Later questions raise BadRequest.
        """
        self._is_closed = True
        async with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            from chainfolio.engine.requests.portfolios import settle_prices

            try:
                await asyncio.to_thread(settle_prices, engine.system)
            finally:
                await engine.system.close()

    # --- questions ---------------------------------------------------------------------------------------------------

    async def portfolio(
        self,
        address: str,
        *,
        chain: str | None = None,
        block: int | None = None,
        include_spam: bool = False,
        sources: bool = False,
    ) -> Portfolio:
        """Return the holdings of an address and their value, now or at a `block` of one `chain`.

        Without `chain`, all chains are read.
        """
        (portfolio,) = await self.portfolios(
            [address], chain=chain, block=block, include_spam=include_spam, sources=sources
        )
        return portfolio

    async def portfolios(
        self,
        addresses: Addresses,
        *,
        chain: str | None = None,
        block: int | None = None,
        include_spam: bool = False,
        sources: bool = False,
    ) -> list[Portfolio]:
        """Return the portfolios of several addresses, in their order, each address once.

        They are over every chain now, or of one `chain` at a `block` (default: its newest).
        """
        from chainfolio.engine.requests.portfolios import portfolios
        from chainfolio.portfolio.facts import Options

        engine = await self._ready()
        options = Options(sources=sources, spam=include_spam, nfts=True, rates=True)
        accounts = await _accounts(engine, addresses, [chain] if chain else [])
        return await portfolios(engine, accounts, chain, block, options)

    async def nav(self, addresses: Addresses, *, currency: str = "USD") -> Nav:
        """Return the net asset value of addresses together, now, in a currency."""
        engine = await self._ready()
        return await engine.nav(await _accounts(engine, addresses), currency, wait=True)

    async def history(
        self,
        addresses: Addresses,
        *,
        first: str | None = None,
        last: str | None = None,
        interval: Literal["day", "week", "month"] = "day",
        chains: Sequence[str] = (),
        again: bool = False,
    ) -> DayValues:
        """Return the values of addresses at 00:00 UTC of days from `first` (30 days ago) to `last` (today).

        Days are YYYY-MM-DD, one `interval` apart. Days that are not stored are read and stored; `again` repeats those
        with a failed read. Unknown values are None.

        Raises:
            BadRequest: A day or the interval is not valid, or there are too many values.
            SourceError: A chain cannot be read; days that were read before are stored.
        """
        from chainfolio.engine.history.day_values import DayValues
        from chainfolio.engine.named_accounts import chains_with_past
        from chainfolio.engine.requests.days import days_between, read_day_values, today

        engine = await self._ready()
        days = days_between(first, last, interval, today(engine.system.environment.clock))
        accounts = await _accounts(engine, addresses, chains)
        on = chains_with_past(engine.system, accounts, chains)
        return DayValues(tuple(await read_day_values(engine, accounts, on, days, retry=again)))

    async def transactions(
        self,
        address: str,
        *,
        chain: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        first: str | None = None,
        last: str | None = None,
    ) -> Transactions:
        """Return the transactions of an address from day `first` to day `last`, the newest first.

        Both days are included, as YYYY-MM-DD in UTC. All transactions, or at most `limit` after the first `offset`.

        Raises:
            BadRequest: `limit`, `offset` or a day is out of range.
        """
        from chainfolio.engine.requests.transactions import joined_pages, transaction_filter, transaction_pages
        from chainfolio.engine.results import MAX_PAGE

        if limit is not None and not 1 <= limit <= MAX_PAGE:
            raise BadRequest("limit", f"{limit} is not between 1 and {MAX_PAGE}", remedy="without a limit all are read")
        engine = await self._ready()
        question = transaction_filter(chain, limit or MAX_PAGE, offset, first, last)
        (owner,) = await _accounts(engine, address, [chain] if chain else [])
        return joined_pages(
            [each async for each in transaction_pages(engine, [owner], question, all_pages=limit is None)]
        )

    async def gains(
        self,
        addresses: Addresses,
        *,
        method: str = "fifo",
        per_wallet: bool = False,
        chain: str | None = None,
        deposits_are_disposals: bool = False,
        received_at: Literal["spot", "unknown"] = "spot",
        zone: str | None = None,
    ) -> PnlDocument:
        """Return the gains of addresses of one owner, lot by lot, from all that is indexed of them.

        Raises:
            BadRequest: `received_at` or another option is not valid.
        """
        from chainfolio.engine.gains.pnl import PnlRequest, pnl, zone_of

        if received_at not in ("spot", "unknown"):
            raise BadRequest("received_at", f"{received_at!r} is neither 'spot' nor 'unknown'")
        networks = (chain,) if chain else ()
        request = PnlRequest(
            method, per_wallet, deposits_are_disposals, received_at == "spot", zone_of(zone, method), networks
        )
        request.check()
        engine = await self._ready()
        return await pnl(engine, await _accounts(engine, addresses, networks), request)

    async def tax_year(
        self,
        addresses: Addresses,
        year: int,
        *,
        jurisdiction: str = "none",
        method: str = "",
        currency: str = "",
        chain: str | None = None,
    ) -> TaxYearDocument:
        """Return the gains and the income of one owner's addresses in a tax year, by rules of a jurisdiction.

        An empty `method` and `currency` are the usual ones of the jurisdiction.

        Raises:
            BadRequest: The jurisdiction is unknown or does not allow the method.
        """
        from chainfolio.engine.gains.pnl import PnlRequest
        from chainfolio.engine.gains.tax_year import YearRequest, tax_year_report
        from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS

        if jurisdiction not in JURISDICTIONS:
            remedy = f"one of {', '.join(JURISDICTIONS)}"
            raise BadRequest("jurisdiction", f"{jurisdiction!r} is no jurisdiction", remedy=remedy)
        networks = (chain,) if chain else ()
        treatment = PnlRequest(networks=networks)
        request = YearRequest(year, JURISDICTIONS[jurisdiction], method, currency.upper(), treatment=treatment)
        request.pnl_request()
        engine = await self._ready()
        return await tax_year_report(engine, await _accounts(engine, addresses, networks), request)

    async def price(self, asset: str, *, at: int | str | None = None) -> PriceReasons:
        """Return the price of an asset at a height, a day or a time (UTC), by default now, and its reasons.

        A stored price is returned without a read; a new one is stored.
        """
        from chainfolio.engine.named_accounts import check_chains

        engine = await self._ready()
        check_chains(engine.system)
        return await engine.explain_price(asset, at, ask=False)

    async def reconcile(
        self,
        addresses: Addresses,
        *,
        chains: Sequence[str] = (),
        first: int | None = None,
        last: int | None = None,
        checkpoints: int = 32,
        max_requests: int | None = None,
    ) -> list[Reconciliation]:
        """Compare the indexed movements of addresses with their balances on chain, by chain and address.

        The results are stored. `first` and `last` are heights, both included; by default all that is indexed.
        Balances are read at up to `checkpoints` heights first, then around differences; `max_requests` limits this.

        Raises:
            NotIndexed: A named chain is not indexed, or none is.
        """
        from chainfolio.engine.requests.reconciliations import Extent, on_each_chain, reconciliations

        extent = Extent(first, last, checkpoints, max_requests)
        engine = await self._ready()
        accounts = await _accounts(engine, addresses, chains)

        async def work(chain: Chain, owners: Sequence[str]) -> list[Reconciliation]:
            return (await reconciliations(chain, engine.snapshotter(chain), owners, extent))[0]

        return await on_each_chain(engine.system, accounts, chains, work)

    async def tables(self) -> list[str]:
        """Return the names of the tables with rows; `docs/tables.md` describes them."""
        from chainfolio.tables import TABLES

        lake = (await self._ready()).system.lake
        return await asyncio.to_thread(lambda: [name for name, table in TABLES.items() if lake.exists(table)])

    async def table(self, name: str) -> pl.LazyFrame:
        """Return the current rows that the lake has of a table, without newer ones of the tail.

        They are a lazy frame: a query reads only what it needs.

        Raises:
            BadRequest: there is no table of this name.
            NotFound: the table has no rows here.
            StaleTable: another release wrote it.
        """
        from chainfolio.tables import TABLES

        if name not in TABLES:
            raise BadRequest("table", f"there is no table {name[:40]!r}", remedy=f"one of {', '.join(TABLES)}")
        lake = (await self._ready()).system.lake
        if not await asyncio.to_thread(lake.exists, TABLES[name]):
            raise NotFound(f"nothing of the table {name} is stored here", remedy="tables() names those that are")
        return await asyncio.to_thread(lake.scan, TABLES[name])

    async def _ready(self) -> Engine:
        """Return the engine, made at the first call; raise BadRequest if the session is closed."""
        from chainfolio.engine.service import Engine

        async with self._lock:
            if self._is_closed:
                raise BadRequest("session", "it is closed", remedy="connect or open another one")
            self._engine = self._engine or Engine(await self._begin(), max_lookups=None)
            return self._engine


def _as_list(text: str | Sequence[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


async def _accounts(engine: Engine, names: Addresses, chains: Sequence[str] = ()) -> list[Account]:
    """Return the accounts of addresses and names; the address of each name is logged.

    Raises:
        BadRequest: there is no address.
    """
    from chainfolio.engine.named_accounts import accounts_of

    addresses = _as_list(names)
    if not addresses:
        raise BadRequest("address", "no address is given")
    return await accounts_of(engine.system, addresses, chains, log.info)


def _settings(path: Path) -> Settings:
    """Load the settings of a file, of a folder with a settings file, or of the one next to a data folder.

    A data folder without that file has default settings.

    Raises:
        BadSettings: the folder has neither settings nor data, or the settings have a mistake.
    """
    import msgspec

    from chainfolio.settings_file import load

    if not path.is_dir():
        return load(path)
    if (path / SETTINGS).exists():
        return load(path / SETTINGS)
    if (sibling := path.absolute().parent / SETTINGS).exists():
        settings = load(sibling)
        if settings.data_dir.resolve() == path.resolve():
            return settings
    if not any((path / name).exists() for name in DATA):
        remedy = f"name a settings file, a folder with a {SETTINGS}, or the data folder of one"
        raise BadSettings(str(path), "the folder has neither settings nor data", remedy=remedy)
    return msgspec.structs.replace(load(None, {}), data=str(path))


async def _system(settings: Settings, urls: Sequence[str], data: str | Path | None) -> System:
    """Return the system of some settings; with `urls`, of the chains that these nodes serve.

    Its data lie in `data`; if that is None, nothing is stored.
    """
    import msgspec

    from chainfolio.environment import Environment
    from chainfolio.indexer.endpoints import at_endpoints, family_kinds
    from chainfolio.indexer.wiring import CONFIGS, System

    environment = Environment()
    if data is None:  # a folder that is not there: its lake is empty
        with tempfile.TemporaryDirectory() as folder:
            settings = msgspec.structs.replace(settings, data=folder)
    else:
        settings = msgspec.structs.replace(settings, data=str(data))
    if urls:
        settings = await at_endpoints(settings, urls, environment, configs=CONFIGS)
    kinds = family_kinds(settings) if urls else None
    return System(settings, environment, keeps_nothing=data is None, kinds=kinds)
