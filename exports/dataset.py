"""The rows of an export: read page by page, with what an accountant asks about them."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.printable import clean

if TYPE_CHECKING:
    from chainfolio.portfolio.document import IssueDocument, Portfolio
    from chainfolio.portfolio.transactions import TransactionDocument

Cell = str | int | bool | None
Row = Sequence[Cell]
COMPLETE: Final = "complete"
MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class Page:
    """Rows that were read together, with the `transactions` behind them if they are transactions."""

    rows: Sequence[Row]
    issues: tuple[IssueDocument, ...] = ()
    is_complete: bool = True
    transactions: tuple[TransactionDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows and the facts about them that an export shows.

    Attributes:
        kind: One of `KINDS` in `chainfolio.exports.sources`.
        columns: The names of the cells of each row.
        facts: Period, method, lots and sources of prices, as pairs of a name and a text.
        numbers: Columns with decimals as text, for Parquet.
        times: Columns with ISO 8601 times, for Parquet.
        counts: Columns with integers, for Parquet.
        portfolios: What is held now, for a ledger that proves its holdings.
    """

    kind: str
    addresses: tuple[str, ...]
    columns: tuple[str, ...]
    pages: AsyncIterator[Page]
    facts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    portfolios: tuple[Portfolio, ...] = ()


class Summary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Summary of an exported file.

    `digest` is the SHA-256 of its columns and rows, the same for every format.
    """

    kind: str
    addresses: tuple[str, ...]
    facts: dict[str, str]
    rows: int
    completeness: str
    issues: tuple[str, ...]
    digest: str


class Writer(ABC):
    """Writes one file: pages in their order, then the end."""

    @abstractmethod
    def write(self, page: Page) -> None:
        """Write the rows of a page."""

    @abstractmethod
    def close(self, summary: Summary) -> None:
        """Write what belongs at the end and finish the file."""

    def abandon(self) -> None:
        """Close what is open after an error, also one of `close`; the file is not finished."""
        return


class DataDigest:
    """The SHA-256 of columns and rows, one JSON array a line."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._hash = hashlib.sha256()
        self.row_count = -1
        self.add([columns])

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows to the digest."""
        for row in rows:
            self._hash.update(msgspec.json.encode(list(row)) + b"\n")
            self.row_count += 1

    def text(self) -> str:
        """Return the digest as hex."""
        return self._hash.hexdigest()


async def write(dataset: Dataset, writer: Writer) -> Summary:
    """Write all pages of a dataset with a writer, one at a time, and return the summary.

    The summary is partial if a page is. After an error the writer is abandoned, and the error raised.
    """
    digest = DataDigest(dataset.columns)
    issues: dict[str, None] = {}
    is_complete = True
    try:
        async for page in dataset.pages:
            digest.add(page.rows)
            await _in_thread(partial(writer.write, page))
            issues |= dict.fromkeys(map(issue_text, page.issues))
            is_complete &= page.is_complete
        summary = Summary(
            kind=dataset.kind,
            addresses=dataset.addresses,
            facts=dict(dataset.facts),
            rows=digest.row_count,
            completeness=COMPLETE if is_complete else "partial",
            issues=tuple(issues),
            digest=digest.text(),
        )
        await _in_thread(partial(writer.close, summary))
    except BaseException:  # an interrupt too: temporary files of the writer must not stay
        with suppress(Exception):  # the first error says what is wrong
            writer.abandon()
        raise
    return summary


async def _in_thread(work: Callable[[], None]) -> None:
    """Run work of a writer in a thread, and wait for its end even if cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def issue_text(issue: IssueDocument) -> str:
    """Return an issue as one harmless line."""
    return clean(f"{issue.adapter}: {issue.subject}: {issue.reason}", MAX_REASON)


def about_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return what a statement says about its data, as names and texts."""
    return [
        ("export", summary.kind),
        *(("address", address) for address in summary.addresses),
        *summary.facts.items(),
        ("rows", str(summary.rows)),
        ("completeness", summary.completeness),
        *(("issue", issue) for issue in summary.issues),
        ("SHA-256 of the data", summary.digest),
    ]
