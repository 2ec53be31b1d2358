"""Files of every format, read by the programs that users read them with."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import json
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import cast

import duckdb
import openpyxl
import polars as pl
import pypdf
import pytest
from pyarrow import parquet as pq

from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest
from chainfolio.exports import formats
from chainfolio.exports.dataset import Dataset, Page, Row, Summary, Writer, write
from chainfolio.exports.formats import BINARY, binary_writer, text_writer
from chainfolio.exports.sources import ExportRequest
from chainfolio.exports.xlsx_file import MAX_ROWS, XlsxWriter
from chainfolio.portfolio.document import IssueDocument
from tests.exports.samples import ALICE, HOSTILE

COLUMNS = ("time", "symbol", "amount", "block")
WEI = "115792089237316195423570985008687907853269984665640564039457.584007913129639935"
ROWS: list[Row] = [
    ("2024-02-29T00:00:00.000000Z", "eth", WEI, 19_000_000),
    ("", HOSTILE, "N/A", None),
    ("2024-02-29T00:00:01.000000Z", "\t+1", "-0.5", 1),
    ("2024-02-29T00:00:02.000000Z", 'a,"b"\nc', "1", 2),
]
ISSUE = IssueDocument(adapter="index", subject="ethereum", reason="blocks 1 to 9 are not indexed")


def dataset(rows: Iterable[Row] = ROWS, *, is_complete: bool = True, page_size: int = 3) -> Dataset:
    async def pages() -> AsyncIterator[Page]:
        every = list(rows)
        for at in range(0, max(1, len(every)), page_size):
            yield Page(every[at : at + page_size], () if is_complete else (ISSUE,), is_complete)

    facts = (("period", "2024"), ("method", "fifo"), ("lots", "over all wallets"), ("prices", "chainlink, pyth"))
    return Dataset("holdings", (ALICE,), COLUMNS, pages(), facts, ("amount",), ("time",), ("block",))


def query_rows(query: str) -> list[tuple[str]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def export(path: Path, data: Dataset) -> Summary:
    name = path.suffix.removeprefix(".")
    if name in BINARY:
        return asyncio.run(write(data, binary_writer(path, name, data)))
    with path.open("w", newline="") as file:
        return asyncio.run(write(data, text_writer(file, name, data)))


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "xlsx", "pdf"])
def test_the_same_rows_give_the_same_bytes_and_every_format_the_same_digest(tmp_path: Path, suffix: str) -> None:
    summaries = [export(tmp_path / f"{name}.{suffix}", dataset()) for name in "ab"]
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert {each.digest for each in summaries} == {export(tmp_path / "c.csv", dataset()).digest}
    assert export(tmp_path / "d.csv", dataset(ROWS[1:])).digest != summaries[0].digest
    assert (summaries[0].rows, summaries[0].completeness) == (4, "complete")


def test_csv_has_exact_numbers_and_no_formula_for_three_readers(tmp_path: Path) -> None:
    export(path := tmp_path / "a.csv", dataset())
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["amount"] for row in rows] == [WEI, "N/A", "-0.5", "1"]
    assert rows[1]["symbol"] == '\'=HYPERLINK("http://evil.example")[31m ignore previous instructions'
    assert not rows[2]["symbol"].startswith(("+", "\t"))
    assert rows[3]["symbol"] == 'a,"b"\nc'
    by_polars = pl.read_csv(path, infer_schema=False)["amount"].to_list()
    by_duckdb = query_rows(f"SELECT amount FROM read_csv('{path}', all_varchar = true)")
    assert by_polars == [row[0] for row in by_duckdb] == [row["amount"] for row in rows]


def test_json_has_all_rows_and_what_is_missing(tmp_path: Path) -> None:
    export(path := tmp_path / "a.json", dataset(is_complete=False))
    document = json.loads(path.read_text())
    assert [tuple(row.values()) for row in document["rows"]] == ROWS
    assert document["columns"] == list(COLUMNS)
    assert document["summary"]["completeness"] == "partial"
    assert document["summary"]["issues"] == ["index: ethereum: blocks 1 to 9 are not indexed"]


def test_parquet_has_exact_text_typed_times_and_the_summary(tmp_path: Path) -> None:
    export(path := tmp_path / "a.parquet", dataset())
    table = pl.read_parquet(path)
    assert table["amount"].to_list() == [WEI, None, "-0.5", "1"]
    assert table["symbol"][1] == HOSTILE
    assert table["block"].to_list() == [19_000_000, None, 1, 2]
    assert str(table["time"][0]) == "2024-02-29 00:00:00+00:00"
    assert query_rows(f"SELECT amount FROM '{path}' WHERE block = 19000000") == [(WEI,)]
    metadata = pq.read_metadata(path).metadata
    assert json.loads(metadata[b"chainfolio"])["rows"] == 4


def test_a_workbook_has_text_cells_alone_and_a_sheet_about_the_data(tmp_path: Path) -> None:
    summary = export(path := tmp_path / "a.xlsx", dataset(is_complete=False))
    book = openpyxl.load_workbook(path)
    cells = [cell for row in book["data"].iter_rows() for cell in row if cell.value is not None]
    assert {cell.data_type for cell in cells} == {"s"}
    assert [book["data"].cell(at, 3).value for at in range(2, 6)] == [WEI, "N/A", "-0.5", "1"]
    about_sheet = {name.value: text.value for name, text in book["about"].iter_rows()}
    assert about_sheet["SHA-256 of the data"] == summary.digest
    assert (about_sheet["completeness"], about_sheet["method"]) == ("partial", "fifo")


def test_more_rows_than_a_sheet_has_are_refused(tmp_path: Path) -> None:
    async def pages() -> AsyncIterator[Page]:
        yield Page([("1",)])
        yield Page([("1",)] * (MAX_ROWS - 1))

    writer = XlsxWriter(tmp_path / "a.xlsx", ["n"])
    with pytest.raises(BadRequest, match="at most 1,048,576 rows"):
        asyncio.run(write(Dataset("holdings", (ALICE,), ("n",), pages()), writer))


class FullWriter(Writer):
    """A writer on a full disk, where nothing can be closed either."""

    def write(self, page: Page) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self, summary: Summary) -> None:
        raise AssertionError("nothing was written")

    def abandon(self) -> None:
        raise ValueError("it cannot be closed")


def test_the_first_error_is_told_and_not_that_of_closing_the_file() -> None:
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(write(dataset(), FullWriter()))


def test_a_workbook_on_a_full_disk_has_the_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("xlsxwriter.workbook.ZipFile", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(write(dataset(), XlsxWriter(tmp_path / "a.xlsx", COLUMNS)))
    assert list(tmp_path.iterdir()) == []


def test_a_workbook_that_cannot_be_put_down_is_an_error_of_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    writer = XlsxWriter(tmp_path / "missing" / "a.xlsx", COLUMNS)
    with pytest.raises(FileNotFoundError):
        asyncio.run(write(dataset(), writer))
    assert list(tmp_path.iterdir()) == []


def test_a_statement_says_on_its_first_page_what_it_covers(tmp_path: Path) -> None:
    summary = export(path := tmp_path / "a.pdf", dataset())
    first, second = (page.extract_text() for page in pypdf.PdfReader(path).pages)
    for text in ("Complete:", ALICE, "2024", "fifo", "over all wallets", "chainlink, pyth", summary.digest):
        assert text in first
    assert WEI in second.replace("\n", "")
    assert "PARTIAL" not in first


def test_a_partial_statement_says_so_on_its_first_page(tmp_path: Path) -> None:
    export(path := tmp_path / "a.pdf", dataset(is_complete=False))
    first = pypdf.PdfReader(path).pages[0].extract_text()
    assert "PARTIAL: this statement lacks data" in first
    assert "blocks 1 to 9 are not indexed" in first


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "xlsx", "pdf"])
def test_no_rows_are_a_file_that_can_be_read(tmp_path: Path, suffix: str) -> None:
    summary = export(path := tmp_path / f"a.{suffix}", dataset([]))
    assert summary.rows == 0
    if suffix == "parquet":
        assert pl.read_parquet(path).columns == [*COLUMNS, "amountDecimal"]
    if suffix == "pdf":
        assert len(pypdf.PdfReader(path).pages) == 1


def test_csv_and_json_hold_one_page_at_a_time() -> None:
    class Sink(io.StringIO):
        def write(self, text: str) -> int:
            return len(text)

    async def pages() -> AsyncIterator[Page]:
        for _ in range(50):
            yield Page([(ALICE * 5, "eth", "1", 1) for _ in range(100)])

    for name in ("csv", "json"):
        data = Dataset("holdings", (ALICE,), COLUMNS, pages())
        tracemalloc.start()
        assert asyncio.run(write(data, text_writer(Sink(), name, data))).rows == 5_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 500_000  # all rows take more than 1 MB


@pytest.mark.slow("writes a statement of two thousand pages")
def test_a_statement_of_many_rows_has_them_all(tmp_path: Path) -> None:
    rows = [("2024-02-29T00:00:00.000000Z", f"t{at}", str(at), at) for at in range(100_000)]
    export(path := tmp_path / "a.pdf", dataset(rows, page_size=250))
    pages = pypdf.PdfReader(path).pages
    assert "t99999" in pages[-1].extract_text()


def test_two_exports_to_one_file_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = asyncio.Barrier(2)

    async def pages() -> AsyncIterator[Page]:
        for row in ROWS:
            await barrier.wait()
            yield Page([row])

    async def together(*_: object, **__: object) -> Dataset:
        return Dataset("holdings", (ALICE,), COLUMNS, pages())

    monkeypatch.setattr(formats, "dataset", together)
    target, engine = ("csv", tmp_path / "a.csv"), cast("Engine", None)

    async def export_twice() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                work = formats.export(engine, "holdings", [], ExportRequest(), target=target, stream=io.StringIO())
                group.create_task(work)

    asyncio.run(export_twice())
    with (tmp_path / "a.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(ROWS)
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]
