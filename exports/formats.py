"""The formats of exports, and the function that writes one: to a file, or as text to a stream."""

from __future__ import annotations

import errno
import importlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from chainfolio.errors import BadRequest
from chainfolio.exports import coinledger, cointracking, koinly, rotki
from chainfolio.exports.csv_file import CsvWriter
from chainfolio.exports.dataset import Dataset, Row, Summary, Writer, write
from chainfolio.exports.json_file import JsonWriter
from chainfolio.exports.sources import ExportRequest, dataset, transactions
from chainfolio.exports.tax_rows import missing_rows
from chainfolio.storage.disk import write_error

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.transactions import TransactionDocument


@dataclass(frozen=True, slots=True)
class TaxTool:
    """The CSV file that a tax tool imports."""

    columns: tuple[str, ...]
    rows_of: Callable[[TransactionDocument], Iterable[Row]]


TAX_TOOLS: Final = {
    "koinly": TaxTool(koinly.COLUMNS, koinly.rows),
    "cointracking": TaxTool(cointracking.COLUMNS, cointracking.rows),
    "coinledger": TaxTool(coinledger.COLUMNS, coinledger.rows),
    "rotki": TaxTool(rotki.COLUMNS, rotki.rows),
}
BINARY: Final = ("parquet", "xlsx", "pdf")
LEDGERS: Final = ("beancount", "hledger")
FORMATS: Final = ("csv", "json", *BINARY, *LEDGERS, *TAX_TOOLS)


async def export(
    engine: Engine,
    kind: str,
    accounts: Sequence[Account],
    request: ExportRequest,
    *,
    target: tuple[str, Path | None],
    stream: TextIO,
) -> Summary:
    """Write an export. `target` is its format and its file; without a file, text goes to `stream`.

    A file appears when it is complete: a failed export leaves none, and keeps an older one of that name.

    Raises:
        BadRequest: the format does not fit the kind or needs a file, or an option does not belong to the kind.
        MissingDependency: the format needs the extra `exports`, which is not installed.
        NotIndexed: the index does not reach that far.
        StoreError: the file cannot be written; StorageFull if the disk is full.
    """
    format_name, path = target
    check_target(format_name, kind, path, request)
    if format_name in TAX_TOOLS:
        tool = TAX_TOOLS[format_name]
        data = transactions(engine, accounts, request, columns=tool.columns, rows_of=tool.rows_of, gaps_of=missing_rows)
    else:
        is_ledger = format_name in LEDGERS
        of_data = ExportRequest(chain=request.chain) if is_ledger else request
        data = await dataset(engine, kind, accounts, of_data, proves_holdings=is_ledger)
    if path is None:
        return await write(data, text_writer(stream, format_name, data, request.method))
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")  # another export may have the same target
    try:
        with _write_errors(path, part):
            summary = await _write_file(part, format_name, data, request.method)
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return summary


@contextmanager
def _write_errors(path: Path, part: Path) -> Iterator[None]:
    """Turn errors of writing the file, and a full disk, into StoreError; raise all others unchanged."""
    try:
        yield
    except OSError as error:
        is_ours = error.filename is None or str(error.filename) in (str(path), str(part))
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, ConnectionError | TimeoutError) or not (is_ours or is_full):
            raise
        raise write_error("export", path, error) from error


def check_target(format_name: str, kind: str, path: Path | None, request: ExportRequest) -> None:
    """Raise if a format does not fit the kind, lacks its file or library, or cannot be written.

    Raises:
        BadRequest: the format does not fit the kind or the options, or needs a file, or the file cannot be written.
        MissingDependency: the extra `exports` is not installed.
    """
    if kind != "transactions" and format_name in (*TAX_TOOLS, *LEDGERS):
        raise BadRequest("format", f"{format_name} has no {kind}", remedy=f"export transactions --format {format_name}")
    if format_name in BINARY and path is None:
        raise BadRequest("output", f"{format_name} is no text", remedy=f"name a file, as -o {kind}.{format_name}")
    if path is not None:
        _check_path(path, f"{kind}.{format_name}")
    if format_name == "xlsx":
        importlib.import_module("chainfolio.exports.xlsx_file")
    if format_name == "pdf":
        importlib.import_module("chainfolio.exports.pdf_file")
    if format_name == "hledger":
        request.refuse("a journal without lots")
    if format_name == "beancount":
        request.refuse("a ledger", "method")
        if request.method not in ("", "fifo", "lifo", "hifo"):
            reason = f"beancount does not choose lots by {request.method!r}"
            raise BadRequest("method", reason, remedy="one of fifo, lifo, hifo")


def _check_path(path: Path, example: str) -> None:
    """Raise BadRequest if a file cannot be put at a path."""
    remedy = f"name a file in a folder that you may write to, as -o {example}"
    if path.is_dir():
        raise BadRequest("output", f"{path} is a folder", remedy=remedy)
    if path.exists() and not path.is_file():
        raise BadRequest("output", f"{path} is a device or a pipe", remedy=remedy)
    if not path.parent.is_dir():
        raise BadRequest("output", f"there is no folder {path.parent}", remedy="make the folder first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadRequest("output", f"the folder {path.parent} may not be written to", remedy=remedy)


def text_writer(stream: TextIO, format_name: str, data: Dataset, method: str = "") -> Writer:
    """Return a writer of a format that is text: json, a ledger, else CSV with the columns of the data."""
    if format_name == "json":
        return JsonWriter(stream, data.columns)
    if format_name in LEDGERS:
        from chainfolio.exports.beancount import Beancount
        from chainfolio.exports.hledger import Hledger
        from chainfolio.exports.ledger import LedgerWriter

        syntax = Beancount(method or "fifo") if format_name == "beancount" else Hledger()
        return LedgerWriter(stream, data.portfolios, syntax)
    return CsvWriter(stream, data.columns)


async def _write_file(path: Path, format_name: str, data: Dataset, method: str) -> Summary:
    if format_name in BINARY:
        return await write(data, binary_writer(path, format_name, data))
    with path.open("w", encoding="utf-8", newline="") as file:
        return await write(data, text_writer(file, format_name, data, method))


def binary_writer(path: Path, format_name: str, data: Dataset) -> Writer:
    """Return a writer of parquet, xlsx or, for any other format, pdf.

    Raises:
        MissingDependency: the extra `exports` is not installed.
    """
    if format_name == "parquet":
        from chainfolio.exports.parquet_file import ParquetWriter

        return ParquetWriter(path, data)
    if format_name == "xlsx":
        from chainfolio.exports.xlsx_file import XlsxWriter

        return XlsxWriter(path, data.columns)
    from chainfolio.exports.pdf_file import PdfWriter

    return PdfWriter(path, data.columns)
