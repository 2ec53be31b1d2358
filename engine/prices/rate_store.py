"""Exchange rates in the lake (`fiat_rates`): the first rates of a day are final.

One process at a time writes, and uses what another one wrote before; the rows of a day are in one commit or absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from chainfolio.pricing.ecb import CURRENCIES, SOURCE, Days
from chainfolio.tables import FIAT_RATES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EPOCH: Final = date(1970, 1, 1)
MIN_MERGED_FILES: Final = 64  # most commits have one day, so small files are merged


@dataclass(frozen=True, slots=True)
class RateStore:
    """The stored days of one publisher. Every method reads or writes files: call them in a thread."""

    lake: Lake
    tail: Tail

    def load(self) -> Days:
        """Return the units per euro by stored day and currency; a day without publication has no rates."""
        if not self.lake.exists(FIAT_RATES):
            return {}
        rows = self.lake.scan(FIAT_RATES, chain=SOURCE).select("height", "currency", "per_euro").collect()
        days: Days = {}
        for height, currency, per_euro in rows.iter_rows():
            rates = days.setdefault(EPOCH + timedelta(days=height), {})
            if per_euro is not None:
                rates[currency] = Decimal(per_euro)
        return days

    def add(self, days: Days, requested_at: datetime) -> Days:
        """Store days that are not stored yet, and return all stored days, including those of other processes.

        Stored days are never changed. Files are merged if there are many.
        """
        import pyarrow as pa

        with self.tail.hold(f"{SOURCE}.rates", "the rates of currencies", store="lake", wait=True):
            stored = self.load()
            new = {day: rates for day, rates in sorted(days.items()) if day not in stored}
            if new:
                content = pa.Table.from_pylist(_rows(new, requested_at), schema=FIAT_RATES.schema())
                self.lake.append(FIAT_RATES, content, stream=SOURCE, batch=self.lake.last(FIAT_RATES, SOURCE) + 1)
                if len(self.lake.entries(FIAT_RATES)) >= MIN_MERGED_FILES:
                    self.lake.compact(FIAT_RATES, SOURCE)
        return stored | new


def _rows(days: Mapping[date, Mapping[str, Decimal]], requested_at: datetime) -> list[dict[str, Any]]:
    """Return a row for each day and currency, also for days without rates."""
    return [
        {
            "chain": SOURCE,
            "height": (day - EPOCH).days,
            "day": datetime(day.year, day.month, day.day, tzinfo=UTC),
            "currency": currency,
            "per_euro": format(rates[currency], "f") if rates else None,
            "asked": requested_at,
        }
        for day, rates in days.items()
        for currency in sorted(CURRENCIES)
    ]
