"""A tax year of accounts, in the currency of a jurisdiction, from the index and from rates of past days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.engine.gains.pnl import (
    PnlRequest,
    ReportSource,
    all_records,
    blocks_of,
    closing_facts,
    current_holdings,
    gains_until,
    zone_of,
)
from chainfolio.errors import BadRequest
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.closing import without_unclosed
from chainfolio.portfolio.pnl.report import unexplained_rows
from chainfolio.portfolio.pnl.tax_year import Jurisdiction, TaxYear, TaxYearDocument, tax_year_document
from chainfolio.portfolio.pnl.transfer_rows import transfer_document

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.prices.request_rates import RequestRates

FIRST_YEAR, LAST_YEAR = 2009, 9998
RATE_S: Final = 3600  # the reference rates of a day are published at a full hour


@dataclass(frozen=True, slots=True)
class YearRequest:
    """A tax year of accounts. An empty `method` and `currency` are the usual ones of the jurisdiction."""

    year: int
    rules: Jurisdiction
    method: str = ""
    currency: str = ""
    zone: tzinfo | None = None
    treatment: PnlRequest = field(default_factory=PnlRequest)

    @property
    def used_currency(self) -> str:
        """The currency of the report."""
        return self.currency or self.rules.currency

    def pnl_request(self) -> PnlRequest:
        """Return the options of the calculation.

        The method and time zone are those of the jurisdiction if empty. Lots are matched by wallet from the year in
        which the jurisdiction demands it, and not before; the `treatment` decides only if it never demands it.

        Raises:
            BadRequest: The jurisdiction does not allow the method, or there were no blockchains in that year.
        """
        if not FIRST_YEAR <= self.year <= LAST_YEAR:
            raise BadRequest("year", f"{self.year} is no year of a blockchain", remedy=f"{FIRST_YEAR} or later")
        method = self.method or self.rules.methods[0]
        if method not in self.rules.methods:
            allowed = ", ".join(self.rules.methods)
            raise BadRequest("method", f"{method!r} is not allowed in {self.rules.name}", remedy=f"one of {allowed}")
        first = self.rules.lots_by_wallet_from
        return replace(
            self.treatment,
            method=method,
            per_wallet=self.treatment.per_wallet if first is None else self.year >= first,
            zone=self.zone or zone_of(self.rules.zone, method),
        )


async def tax_year_report(source: ReportSource, accounts: Sequence[Account], request: YearRequest) -> TaxYearDocument:
    """Return the gains of one tax year, in the currency of the jurisdiction.

    Assets whose transactions do not add up to what the portfolios hold now have no known gain.

    Raises:
        NotSupported: No rate of the currency is known for a day of the history.
        NotFound: An account has more than `server.max_transactions`.
        NotIndexed: The index does not reach back to the beginning.
        BadRequest: The request is inconsistent, or an account is on none of the chains.
        SourceError: A node could not be read.
    """
    pnl_request = request.pnl_request()
    account_records = await all_records(source, accounts, pnl_request)
    transactions = account_records.transactions
    rates = await hourly_rates(
        source.rates, request.used_currency, {each.time_us // 1_000_000 for each in transactions}
    )
    portfolios = await source.portfolios(accounts, Options(), wait=True, wallet_only=False)
    blocks = blocks_of(portfolios)
    result = gains_until(
        source, accounts, pnl_request, account_records, blocks, lambda time_us: rates[time_us // 1_000_000 // RATE_S]
    )
    current = current_holdings(source, portfolios, result, pnl_request, {}, blocks)
    year = TaxYear(
        request.rules,
        request.year,
        pnl_request.zone,
        request.used_currency,
        pnl_request.method,
        pnl_request.per_wallet,
    )
    gains = without_unclosed(result.gains, current.unclosed).gains
    addresses = [account.address for account in accounts]
    types = {(*each.key, each.wallet): str(each.type) for each in transactions}
    report = tax_year_document(gains, result.facts, year, addresses, result.issues, types)
    of_year = (each for each in result.transfers if year.has(each.first_us))
    return msgspec.structs.replace(
        report,
        transfers=tuple(transfer_document(each, result.facts) for each in of_year),
        unexplained=tuple(unexplained_rows(current, {**closing_facts(current.closings), **result.facts})),
    )


async def hourly_rates(known_rates: RequestRates, currency: str, times_s: Iterable[int]) -> Mapping[int, Decimal]:
    """Return the units of a currency per USD at the end of each hour, by hour since 1970.

    They are 1 for USD; errors are those of `of_money`.
    """
    hours = sorted({time_s // RATE_S for time_s in times_s})
    if currency == "USD":
        return dict.fromkeys(hours, Decimal(1))
    rates = known_rates.conversions
    return {hour: (await rates.of_money(currency, (hour + 1) * RATE_S * 1_000_000 - 1)).value for hour in hours}
