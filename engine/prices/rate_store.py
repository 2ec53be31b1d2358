"""Reference rates in the lake (`fiat_rates`): what was told of a day first counts, whatever is told later.

One process at a time writes them, and takes what another one was told before it; a day is one commit with its
neighbours, or is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from chainfolio.pricing.ecb import CURRENCIES, SOURCE, Days
from chainfolio.storage.disk import lock_file
from chainfolio.tables import FIAT_RATES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EPOCH: Final = date(1970, 1, 1)
MANY_FILES: Final = 64  # that are merged: most commits are of one day


@dataclass(frozen=True, slots=True)
class RateStore:
    """The days of one publisher. Every method reads or writes files: call them in a thread."""

    lake: Lake
    tail: Tail

    def known(self) -> Days:
        """Every day that is kept; one for which nothing was published has no rates."""
        if not self.lake.exists(FIAT_RATES):
            return {}
        rows = self.lake.scan(FIAT_RATES, chain=SOURCE).select("height", "currency", "per_euro").collect()
        found: Days = {}
        for height, currency, per_euro in rows.iter_rows():
            rates = found.setdefault(EPOCH + timedelta(days=height), {})
            if per_euro is not None:
                rates[currency] = Decimal(per_euro)
        return found

    def keep(self, told: Days, asked: datetime) -> Days:
        """Keep days that nobody has kept; every day that is kept then. Another process may have been first."""
        import pyarrow as pa

        with lock_file(
            self.tail.path.parent / "locks" / f"{SOURCE}.rates.lock",
            store="lake",
            subject="the rates of currencies",
            wait=True,
        ):
            known = self.known()
            new = {day: rates for day, rates in sorted(told.items()) if day not in known}
            if new:
                content = pa.Table.from_pylist(_rows(new, asked), schema=FIAT_RATES.schema())
                self.lake.append(FIAT_RATES, content, stream=SOURCE, batch=self.lake.last(FIAT_RATES, SOURCE) + 1)
                if len(self.lake.entries(FIAT_RATES)) >= MANY_FILES:
                    self.lake.compact(FIAT_RATES, SOURCE)
        return known | new


def _rows(days: Mapping[date, Mapping[str, Decimal]], asked: datetime) -> list[dict[str, Any]]:
    """A row for each day and currency, also where nothing was published."""
    return [
        {
            "chain": SOURCE,
            "height": (day - EPOCH).days,
            "day": datetime(day.year, day.month, day.day, tzinfo=UTC),
            "currency": currency,
            "per_euro": format(rates[currency], "f") if rates else None,
            "asked": asked,
        }
        for day, rates in days.items()
        for currency in sorted(CURRENCIES)
    ]
