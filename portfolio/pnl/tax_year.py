"""Report a tax year's gains by the rules of a jurisdiction: days, currency and kinds of gains.

Sources: United States: Internal Revenue Code § 1222, IRS Publication 544 (holding period), Rev. Proc. 2024-28 (lots by
wallet from 2025 on). Germany: EStG § 23 (1) 2 and (3), BGB §§ 187, 188, letters of the finance ministry of 2022-05-10
and 2025-03-06. United Kingdom: TCGA 1992 s104-106A, and a year that begins on 6 April. Canada:
Income Tax Act s. 47, 53 and 54 (`chainfolio.portfolio.pnl.canada`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.contracts import GAIN_METHODS
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.portfolio.pnl.entries import AssetFacts, Entry
from chainfolio.portfolio.pnl.gains import Gain
from chainfolio.portfolio.pnl.income import IncomeDocument, TransactionKey, income_rows
from chainfolio.portfolio.pnl.report import (
    GainDocument,
    UnexplainedDocument,
    frame,
    gain_document,
    text,
    total,
)
from chainfolio.portfolio.pnl.transfer_rows import TransferDocument

if TYPE_CHECKING:
    import polars as pl

SHORT_TERM, LONG_TERM = "short-term", "long-term"
TAXABLE, EXEMPT = "taxable", "exempt"
GAIN: Final = "gain"
INCOME: Final = "income"
NO_TYPES: Final[Mapping[TransactionKey, str]] = {}
GERMAN_LIMIT_RAISED: Final = 2024
OLD_LOTS: Final = (
    "lots are kept by wallet from the first transaction on: how you divided those that you had on {day} is not known"
)
NO_ACQUISITION: Final = "not known when it was acquired"


@dataclass(frozen=True, slots=True)
class Jurisdiction:
    """The rules of a jurisdiction.

    Attributes:
        currency: The currency of its tax returns that has rates.
        zone: The time zone of days, unless another is chosen.
        methods: The methods that it allows, the usual one first.
        lots_by_wallet_from: The first year whose lots are kept by wallet; None if never.
        begins: Month and day of the first day of a year.
        term: Returns the kind of a gain from the days of acquisition and disposal; None if all gains are of one kind.
        terms: The kinds of gains.
        exempt_limit: Returns the total gain of a year from which on all of it is taxed; empty if there is none.
    """

    key: str
    name: str
    currency: str
    zone: str
    methods: tuple[str, ...]
    lots_by_wallet_from: int | None
    begins: tuple[int, int]
    term: Callable[[date, date], str] | None = None
    terms: tuple[str, ...] = (GAIN,)
    exempt_limit: Callable[[int], str] = field(default=lambda year: "")

    def days(self, year: int) -> tuple[date, date]:
        """Return the first and last day of the year that begins in `year`."""
        return date(year, *self.begins), date(year + 1, *self.begins) - timedelta(days=1)


def us_term(acquired: date, disposed: date) -> str:
    """Return the term of a gain: long after a year that begins on the day after the acquisition."""
    return LONG_TERM if disposed >= _year_later(acquired + timedelta(days=1), without_29=(3, 1)) else SHORT_TERM


def german_term(acquired: date, disposed: date) -> str:
    """Return EXEMPT if more than a year lies between both days, else TAXABLE."""
    return EXEMPT if disposed > _year_later(acquired, without_29=(2, 28)) else TAXABLE


def german_limit(year: int) -> str:
    """Return the total gain of a year, in EUR, from which on all of it is taxed (EStG § 23 (3))."""
    return "1000" if year >= GERMAN_LIMIT_RAISED else "600"


def _year_later(day: date, *, without_29: tuple[int, int]) -> date:
    """Return the same day of the next year; `without_29` is its month and day for 29 February."""
    try:
        return day.replace(year=day.year + 1)
    except ValueError:
        return date(day.year + 1, *without_29)


JURISDICTIONS: Final = {
    each.key: each
    for each in (
        Jurisdiction(
            "us",
            "United States",
            "USD",
            "America/New_York",
            ("fifo", "hifo", "lifo"),
            2025,
            (1, 1),
            us_term,
            (SHORT_TERM, LONG_TERM),
        ),
        Jurisdiction("uk", "United Kingdom", "USD", "Europe/London", ("uk",), None, (4, 6)),
        Jurisdiction("ca", "Canada", "CAD", "America/Toronto", ("ca",), None, (1, 1)),
        Jurisdiction(
            "de",
            "Germany",
            "EUR",
            "Europe/Berlin",
            ("fifo",),
            0,
            (1, 1),
            german_term,
            (TAXABLE, EXEMPT),
            german_limit,
        ),
        Jurisdiction("none", "no jurisdiction", "USD", "UTC", GAIN_METHODS, None, (1, 1)),
    )
}


@dataclass(frozen=True, slots=True)
class TaxYear:
    """One year by the rules of a jurisdiction. Days begin in `zone`."""

    rules: Jurisdiction
    year: int
    zone: tzinfo
    currency: str
    method: str
    lots_by_wallet: bool

    def has(self, time_us: int) -> bool:
        """Return True if a time is in the year."""
        first, last = self.rules.days(self.year)
        return first <= _day(time_us, self.zone) <= last

    def issues(self, gains: Iterable[Gain], addresses: Sequence[str]) -> Iterator[IssueDocument]:
        """Yield an issue if the owner should have divided lots of several wallets when the rules changed."""
        first = self.rules.lots_by_wallet_from
        if first and self.lots_by_wallet and len(addresses) > 1:
            begins = self.rules.days(first)[0]
            if any(each.acquired_us is not None and _day(each.acquired_us, self.zone) < begins for each in gains):
                yield IssueDocument("pnl", "lots", OLD_LOTS.format(day=begins))


class TermDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Sums of the gains of one kind: `N/A` if a part is not known.

    `knownGain` is the sum without the `unknown` gains.
    """

    term: str
    count: int
    proceeds: str
    cost: str
    gain: str
    known_gain: str
    unknown: int


class TaxGainDocument(GainDocument, rename="camel", frozen=True, kw_only=True):
    """A gain with its kind by the rules of the jurisdiction."""

    term: str


class TaxYearDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The gains of one tax year.

    All money is in `currency`, at the rate of each purchase's and each sale's own day. `income` is what was received
    without payment; `fees` were paid to chains and are among the disposals. A sum is `N/A` if one of its parts is.
    `exemptLimit` is the total gain of the year from which on all of it is taxed, empty if there is none in this
    currency. `unknown` counts gains that are not known, by reason. `incomes` has the income by
    day and kind, `transfers` what went over chains, and `unexplained` the assets that do not close today.
    """

    jurisdiction: str
    year: int
    first_day: str
    last_day: str
    currency: str
    method: str
    lots_by_wallet: bool
    addresses: tuple[str, ...]
    terms: tuple[TermDocument, ...]
    income: str
    fees: str
    exempt_limit: str
    gains: tuple[TaxGainDocument, ...]
    unknown: dict[str, int]
    incomes: tuple[IncomeDocument, ...] = ()
    transfers: tuple[TransferDocument, ...] = ()
    unexplained: tuple[UnexplainedDocument, ...] = ()
    issues: tuple[IssueDocument, ...] = ()

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row per disposal and income, in the format of `chainfolio.portfolio.frames`."""
        return frame(self.gains, TAX_COLUMNS)


TAX_COLUMNS: Final = TaxGainDocument.__struct_encode_fields__


def converted(entries: Iterable[Entry], per_usd: Callable[[int], Decimal]) -> Iterator[Entry]:
    """Yield entries with values and fees in another currency.

    `per_usd` returns its units per USD at a time.
    """
    for entry in entries:
        rate = Fraction(per_usd(entry.time_us))
        value = None if entry.value is None else round(entry.value * rate)
        yield entry._replace(value=value, fee=round(entry.fee * rate))


def tax_year_document(
    gains: Sequence[Gain],
    facts: Mapping[str, AssetFacts],
    year: TaxYear,
    addresses: Sequence[str],
    issues: Sequence[IssueDocument] = (),
    types: Mapping[TransactionKey, str] = NO_TYPES,
) -> TaxYearDocument:
    """Return the gains of one year, by kind.

    Args:
        gains: The gains of all years, in the currency of the report.
        facts: The facts of all assets of the gains, by asset.
        year: The year, with its jurisdiction, currency and method. Without the jurisdiction's currency there is no
            exempt limit.
        addresses: The accounts of the report.
        issues: Issues of the gains; those of the year follow.
        types: The types of transactions, which are the kinds of incomes.
    """
    rules, zone = year.rules, year.zone
    first, last = rules.days(year.year)
    rows = [(each, _term(each, rules, zone)) for each in gains if year.has(each.time_us)]
    disposals = [(each, term) for each, term in rows if term != INCOME]
    names = [*rules.terms, *sorted({term for _, term in disposals} - {*rules.terms})]
    unknown: dict[str, int] = {}
    for each, term in rows:
        if not _is_known(each, term):
            reason = each.reason or NO_ACQUISITION
            unknown[reason] = unknown.get(reason, 0) + 1
    return TaxYearDocument(
        jurisdiction=rules.key,
        year=year.year,
        first_day=first.isoformat(),
        last_day=last.isoformat(),
        currency=year.currency,
        method=year.method,
        lots_by_wallet=year.lots_by_wallet,
        addresses=tuple(addresses),
        terms=tuple(_sums(name, [each for each, term in disposals if term == name]) for name in names),
        income=text(total(each.proceeds for each, term in rows if term == INCOME)),
        fees=text(total(each.proceeds for each, _ in rows if each.kind == "fee")),
        exempt_limit=rules.exempt_limit(year.year) if year.currency == rules.currency else "",
        gains=tuple(
            TaxGainDocument(**msgspec.structs.asdict(gain_document(each, facts[each.asset])), term=term)
            for each, term in rows
        ),
        unknown=unknown,
        incomes=income_rows((each for each, _ in rows), facts, types, lambda time_us: _day(time_us, zone)),
        issues=(*issues, *year.issues((each for each, _ in rows), addresses)),
    )


def _term(gain: Gain, rules: Jurisdiction, zone: tzinfo) -> str:
    """Return the kind of one gain: income, gain, or a term of the jurisdiction.

    `N/A` if the term depends on a day of acquisition that is not known.
    """
    if gain.kind == "income":
        return INCOME
    if rules.term is None:
        return GAIN
    if gain.acquired_us is None:
        return UNKNOWN
    return rules.term(_day(gain.acquired_us, zone), _day(gain.time_us, zone))


def _is_known(gain: Gain, term: str) -> bool:
    return term != UNKNOWN and (gain.proceeds is not None if term == INCOME else gain.gain is not None)


def _sums(term: str, gains: Sequence[Gain]) -> TermDocument:
    """Return the sums of one term; they are unknown, except `known_gain`, if one gain is."""
    known = [each for each in gains if _is_known(each, term)]
    is_whole = len(known) == len(gains)
    return TermDocument(
        term=term,
        count=len(gains),
        proceeds=text(total(each.proceeds for each in gains) if is_whole else None),
        cost=text(total(each.cost for each in gains) if is_whole else None),
        gain=text(total(each.gain for each in gains) if is_whole else None),
        known_gain=text(total(each.gain for each in known)),
        unknown=len(gains) - len(known),
    )


def _day(time_us: int, zone: tzinfo) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).astimezone(zone).date()
