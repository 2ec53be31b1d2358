"""`chainfolio.connect` and `chainfolio.open`: questions about wallets from scripts and notebooks.

A `Session` is an `AsyncSession` whose event loop runs in a separate thread, so it also works inside a running loop.
Several threads may use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from chainfolio.async_session import Addresses, AsyncSession
from chainfolio.errors import BadRequest
from chainfolio.loop import loop_factory

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.engine.history.day_values import DayValues
    from chainfolio.engine.prices.reasons import PriceReasons
    from chainfolio.engine.reconciliations import Reconciliation
    from chainfolio.portfolio.document import Portfolio
    from chainfolio.portfolio.nav import Nav
    from chainfolio.portfolio.pnl.report import PnlDocument
    from chainfolio.portfolio.pnl.tax_year import TaxYearDocument
    from chainfolio.portfolio.transactions import Transactions

T = TypeVar("T")


def connect(rpc: str | Sequence[str], *, data: str | Path | None = None) -> Session:
    """Return a session with the chains that some nodes serve, as `--rpc` of the commands.

    `data` is a folder; without one nothing is stored.

    Raises:
        BadRequest: an address is malformed, or a node serves a chain that no file describes.
        SourceError: a node cannot be reached, or is no node of any installed kind.
    """
    return Session(AsyncSession.connect(rpc, data=data))


def open(path: str | Path, *, rpc: str | Sequence[str] = ()) -> Session:
    """Return a session with a settings file, a folder that has one, or a data folder.

    `rpc` replaces the nodes of the settings.

    Raises:
        BadSettings: there are neither settings nor data, or the settings have a mistake.
    """
    return Session(AsyncSession.open(path, rpc=rpc))


class Session:
    """Answers questions about wallets, with the nodes and data of one place; each method waits."""

    def __init__(self, inner: AsyncSession) -> None:
        """Start the session's thread and connect; errors of connecting are raised."""
        self._inner = inner
        self._begun = Event()
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._thread = Thread(target=self._serve, args=[loop_factory()], name="chainfolio", daemon=True)
        self._thread.start()
        self._begun.wait()
        try:
            self._answer(inner.__aenter__())
        except BaseException:  # including interrupts: no work may continue unseen
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and files. Later questions raise BadRequest."""
        if not self._thread.is_alive():
            return
        try:
            self._answer(self._inner.close())
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def _serve(self, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
        """Run the loop of the thread until the session is closed."""

        async def until_closed() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            self._begun.set()
            await self._ended.wait()

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(until_closed())

    def _answer(self, question: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the session's thread and return its result; cancel it if the wait is interrupted."""
        if not self._thread.is_alive():
            question.close()
            raise BadRequest("session", "it is closed", remedy="connect or open another one")
        answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return answer.result()
        except BaseException:  # including interrupts: no work may continue unseen
            answer.cancel()
            raise

    # --- questions ---------------------------------------------------------------------------------------------------

    def portfolio(
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
        return self._answer(
            self._inner.portfolio(address, chain=chain, block=block, include_spam=include_spam, sources=sources)
        )

    def portfolios(
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
        return self._answer(
            self._inner.portfolios(addresses, chain=chain, block=block, include_spam=include_spam, sources=sources)
        )

    def nav(self, addresses: Addresses, *, currency: str = "USD") -> Nav:
        """Return the net asset value of addresses together, now, in a currency."""
        return self._answer(self._inner.nav(addresses, currency=currency))

    def history(
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
        """
        return self._answer(
            self._inner.history(addresses, first=first, last=last, interval=interval, chains=chains, again=again)
        )

    def transactions(
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
        """
        return self._answer(
            self._inner.transactions(address, chain=chain, limit=limit, offset=offset, first=first, last=last)
        )

    def gains(
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
        """Return the gains of addresses of one owner, lot by lot, from all that is indexed of them."""
        return self._answer(
            self._inner.gains(
                addresses,
                method=method,
                per_wallet=per_wallet,
                chain=chain,
                deposits_are_disposals=deposits_are_disposals,
                received_at=received_at,
                zone=zone,
            )
        )

    def tax_year(
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
        """
        answer = self._inner.tax_year(
            addresses, year, jurisdiction=jurisdiction, method=method, currency=currency, chain=chain
        )
        return self._answer(answer)

    def price(self, asset: str, *, at: int | str | None = None) -> PriceReasons:
        """Return the price of an asset at a height, a day or a time (UTC), by default now, and its reasons.

        A stored price is returned without a read; a new one is stored.
        """
        return self._answer(self._inner.price(asset, at=at))

    def reconcile(
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
        """
        return self._answer(
            self._inner.reconcile(
                addresses, chains=chains, first=first, last=last, checkpoints=checkpoints, max_requests=max_requests
            )
        )

    def tables(self) -> list[str]:
        """Return the names of the tables with rows; `docs/tables.md` describes them."""
        return self._answer(self._inner.tables())

    def table(self, name: str) -> pl.LazyFrame:
        """Return the current rows that the lake has of a table, without newer ones of the tail.

        They are a lazy frame: a query reads only what it needs.

        Raises:
            BadRequest: there is no table of this name.
            NotFound: the table has no rows here.
            StaleTable: another release wrote it.
        """
        return self._answer(self._inner.table(name))
