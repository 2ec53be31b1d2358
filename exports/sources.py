"""The kinds of exports, each read from the engine as the commands read it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.engine.gains.pnl import PnlRequest, pnl, zone_of
from chainfolio.engine.gains.tax_year import YearRequest, tax_year_report
from chainfolio.engine.history.day_values import COLUMNS as DAY_COLUMNS
from chainfolio.engine.named_accounts import chains_with_past, one_chain
from chainfolio.engine.requests.days import days_between, read_day_values, today
from chainfolio.engine.requests.portfolios import portfolios
from chainfolio.engine.requests.transactions import transaction_filter, transaction_pages
from chainfolio.engine.results import MAX_PAGE
from chainfolio.errors import BadRequest
from chainfolio.exports.approval_rows import SHEET, approval_rows, document
from chainfolio.exports.dataset import Dataset, Page, Row
from chainfolio.portfolio.document import ASSETS, UNKNOWN, IssueDocument, Portfolio, asset_rows
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.income import INCOME_COLUMNS
from chainfolio.portfolio.pnl.report import COLUMNS as GAIN_COLUMNS
from chainfolio.portfolio.pnl.report import MOMENTS, NUMBERS
from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS, TAX_COLUMNS, TaxYearDocument
from chainfolio.portfolio.transactions import COLUMNS as TRANSACTION_COLUMNS
from chainfolio.portfolio.transactions import TransactionDocument, transaction_rows

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.service import Engine

KINDS: Final = ("holdings", "transactions", "gains", "history", "income", "approvals")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The options of an export. Days are YYYY-MM-DD in UTC; empty texts and None are the usual values."""

    chain: str | None = None
    block: int | None = None
    first: str | None = None
    last: str | None = None
    year: int | None = None
    jurisdiction: str = "none"
    method: str = ""
    currency: str = ""

    def refuse(self, kind: str, *allowed: str) -> None:
        """Raise BadRequest if an option is set that exports of `kind` do not have."""
        defaults = ExportRequest()
        for name in self.__dataclass_fields__:
            if name not in ("chain", *allowed) and getattr(self, name) != getattr(defaults, name):
                shown = {"first": "from", "last": "to"}.get(name, name)
                raise BadRequest(shown, f"an export of {kind} has no --{shown}", remedy="leave it out")


async def dataset(
    engine: Engine, kind: str, accounts: Sequence[Account], request: ExportRequest, *, proves_holdings: bool = False
) -> Dataset:
    """Return the dataset of one kind. `proves_holdings` adds what is held now to transactions.

    Raises:
        BadRequest: an option does not belong to the kind, or is out of range.
        NotIndexed: the index does not reach that far.
    """
    if kind == "transactions":
        held = await _portfolios(engine, accounts, request, sources=True) if proves_holdings else []
        return transactions(engine, accounts, request, portfolios=held)
    readers = {"holdings": _holdings, "gains": _gains, "history": _history, "income": _income, "approvals": _approvals}
    return await readers[kind](engine, accounts, request)


def transactions(
    engine: Engine,
    accounts: Sequence[Account],
    request: ExportRequest,
    *,
    columns: Sequence[str] = TRANSACTION_COLUMNS,
    rows_of: Callable[[TransactionDocument], Iterable[Row]] = transaction_rows,
    gaps_of: Callable[[TransactionDocument], Iterable[IssueDocument]] = lambda transaction: (),
    portfolios: Sequence[Portfolio] = (),
) -> Dataset:
    """Return the transactions of accounts, the newest first, read by pages.

    Args:
        rows_of: Makes the rows of a transaction. The usual rows begin with the address if there are several accounts.
        gaps_of: Returns what the rows of a transaction lack; the export is partial then.
        portfolios: What is held now; it is as complete as the export can be.

    Raises:
        BadRequest: an option does not belong to transactions, or a day is malformed.
    """
    request.refuse("transactions", "first", "last")
    question = transaction_filter(request.chain, MAX_PAGE, 0, request.first, request.last)

    is_plain = rows_of is transaction_rows
    has_address = is_plain and len(accounts) > 1

    async def pages() -> AsyncIterator[Page]:
        if portfolios:
            yield _of_portfolios(portfolios, ())
        async for page in transaction_pages(engine, accounts, question, all_pages=True):
            rows = [
                [each.user.address, *row] if has_address else row for each in page.transactions for row in rows_of(each)
            ]
            gaps = [gap for each in page.transactions for gap in gaps_of(each)]
            is_complete = page.completeness == "complete" and not gaps
            yield Page(rows, (*page.issues, *gaps), is_complete, page.transactions)

    return Dataset(
        "transactions",
        _addresses(accounts),
        ("address", *columns) if has_address else tuple(columns),
        pages(),
        (*_period(request), _chain_fact(request), ("prices", "of the time of each transaction")),
        numbers=("amount", "price", "value", "fee") if is_plain else (),
        times=("time",) if is_plain else (),
        counts=("block",) if is_plain else (),
        portfolios=tuple(portfolios),
    )


async def _holdings(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> Dataset:
    """Return the holdings now, or at the block of the request, a row per asset.

    BadRequest for other options.
    """
    request.refuse("holdings", "block")
    held = await _portfolios(engine, accounts, request)
    chains = {f"{chain.key} {chain.block_number}" for each in held for chain in each.chains.values()}
    sources = sorted({adapter for each in held for adapter in each.price_adapters})
    return Dataset(
        "holdings",
        _addresses(accounts),
        ASSETS,
        _only(_of_portfolios(held, [row for each in held for row in asset_rows(each)])),
        (
            ("at", ", ".join(f"{name.split()[0]} block {name.split()[1]}" for name in sorted(chains))),
            ("net worth USD", ", ".join(f"{each.address} {each.networth}" for each in held)),
            ("prices", ", ".join(sources) or "none"),
        ),
        numbers=("balance", "price", "value"),
        counts=("block",),
    )


async def _gains(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> Dataset:
    """Return the gains of one tax year, or with no year all of them, as a single page.

    It is partial if there are issues or unknown gains. Raises BadRequest for options that do not belong to it.
    """
    if request.year is not None:
        report = await _tax_year(engine, accounts, request)
        rows = [[getattr(row, name) for name in row.__struct_fields__] for row in report.gains]
        complete = not report.issues and not report.unknown
        page = _one_page(rows, report.issues, is_complete=complete)
        facts = _year_facts(report)
        return Dataset("gains", _addresses(accounts), tuple(TAX_COLUMNS), page, facts, NUMBERS, MOMENTS)
    request.refuse("gains", "method")
    method = request.method or "fifo"
    options = PnlRequest(method, zone=zone_of(None, method), networks=_networks(request))
    options.check()
    gains = await pnl(engine, accounts, options)
    rows = [[getattr(row, name) for name in row.__struct_fields__] for row in gains.gains]
    sums = (("closed gain USD", gains.closed_pnl), ("income USD", gains.income), ("fees USD", gains.fees))
    return Dataset(
        "gains",
        _addresses(accounts),
        tuple(GAIN_COLUMNS),
        _one_page(rows, gains.issues, is_complete=not gains.issues and not gains.unknown),
        (("period", "all that is indexed"), ("method", method), ("lots", "over all wallets"), *sums, _unknown(gains)),
        NUMBERS,
        MOMENTS,
    )


async def _income(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> Dataset:
    """Return the income of one tax year, partial if a value is unknown; BadRequest without a year."""
    if request.year is None:
        raise BadRequest("year", "income is that of a tax year", remedy="add --year, as --year 2025")
    report = await _tax_year(engine, accounts, request)
    rows = [[getattr(row, name) for name in row.__struct_fields__] for row in report.incomes]
    is_complete = not report.issues and all(row.value != UNKNOWN for row in report.incomes)
    return Dataset(
        "income",
        _addresses(accounts),
        tuple(INCOME_COLUMNS),
        _one_page(rows, report.issues, is_complete=is_complete),
        _year_facts(report),
        ("amount", "value"),
    )


async def _history(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> Dataset:
    """Return a value per account and day (at 00:00 UTC), both ends included; partial if one is unknown.

    Days that are not stored are read from nodes. Raises BadRequest for other options or wrong days, SourceError if a
    chain cannot be read.
    """
    request.refuse("history", "first", "last")
    days = days_between(request.first, request.last, "day", today(engine.system.environment.clock))
    chains = _networks(request)
    on = chains_with_past(engine.system, accounts, chains)
    values = await read_day_values(engine, accounts, on, days, retry=False)
    return Dataset(
        "history",
        _addresses(accounts),
        DAY_COLUMNS,
        _one_page([each.row for each in values], [], is_complete=all(each.value is not None for each in values)),
        (("period", f"{days[0]} to {days[-1]}"), _chain_fact(request), ("prices", "at 00:00 UTC of each day, in USD")),
        numbers=("value",),
    )


async def _approvals(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> Dataset:
    """Return the current approvals on one chain, a page per account.

    BadRequest without a chain if several fit.
    """
    request.refuse("approvals")
    key = one_chain(engine.system, request.chain, accounts, "approvals are those of one chain")

    async def pages() -> AsyncIterator[Page]:
        for owner in accounts:
            current = await engine.allowances(key, owner)
            report = document(owner.address, key, current)
            rows = [[owner.address, *row] for row in approval_rows(report, current)]
            issues = tuple(report["issues"])
            yield Page(rows, issues, is_complete=not issues)

    facts = (("chain", key), ("amounts", "in the smallest unit of each token"))
    return Dataset("approvals", _addresses(accounts), ("address", *SHEET), pages(), facts)


async def _portfolios(
    engine: Engine, accounts: Sequence[Account], request: ExportRequest, *, sources: bool = False
) -> list[Portfolio]:
    return await portfolios(engine, accounts, request.chain, request.block, Options(nfts=True, sources=sources))


async def _tax_year(engine: Engine, accounts: Sequence[Account], request: ExportRequest) -> TaxYearDocument:
    """Read the report of a tax year.

    Raises:
        BadRequest: the jurisdiction does not allow the method, or the year is none of a blockchain.
    """
    request.refuse("a tax year", "year", "jurisdiction", "method", "currency")
    rules = JURISDICTIONS[request.jurisdiction]
    treatment = PnlRequest(networks=_networks(request))
    year = YearRequest(request.year or 0, rules, request.method, request.currency.upper(), treatment=treatment)
    year.pnl_request()
    return await tax_year_report(engine, accounts, year)


def _year_facts(report: TaxYearDocument) -> tuple[tuple[str, str], ...]:
    """Return what a statement of a tax year says on its first page."""
    return (
        ("period", f"{report.first_day} to {report.last_day}"),
        ("method", report.method),
        ("lots", "by wallet" if report.lots_by_wallet else "over all wallets"),
        ("currency", report.currency),
        ("income", report.income),
        ("fees", report.fees),
        ("prices", "of the time of each transaction"),
        _unknown(report),
    )


def _unknown(report: object) -> tuple[str, str]:
    """Return the fact `not known` with each reason for unknown gains and its count, or `nothing`."""
    reasons: dict[str, int] = getattr(report, "unknown", {})
    return "not known", "; ".join(f"{count}: {reason}" for reason, count in reasons.items()) or "nothing"


def _one_page(rows: Sequence[Row], issues: Iterable[IssueDocument], *, is_complete: bool) -> AsyncIterator[Page]:
    return _only(Page(rows, tuple(issues), is_complete))


async def _only(page: Page) -> AsyncIterator[Page]:
    yield page


def _of_portfolios(held: Sequence[Portfolio], rows: Sequence[Row]) -> Page:
    """Return a page that is as complete as the portfolios."""
    issues = tuple(issue for each in held for issue in each.issues)
    return Page(rows, issues, all(each.completeness == "complete" for each in held))


def _addresses(accounts: Sequence[Account]) -> tuple[str, ...]:
    return tuple(account.address for account in accounts)


def _networks(request: ExportRequest) -> tuple[str, ...]:
    return (request.chain,) if request.chain else ()


def _chain_fact(request: ExportRequest) -> tuple[str, str]:
    return "chains", request.chain or "all that are configured"


def _period(request: ExportRequest) -> tuple[tuple[str, str], ...]:
    return (("period", f"{request.first or 'the beginning'} to {request.last or 'now'}"),)
