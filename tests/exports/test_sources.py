"""Exports say whose transactions their rows are, and what no row has."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from chainfolio.assets import Account
from chainfolio.errors import BadRequest, StorageFull, StoreError
from chainfolio.exports.dataset import Dataset, Summary, write
from chainfolio.exports.formats import TAX_TOOLS, check_target, export, text_writer
from chainfolio.exports.sources import ExportRequest, dataset
from chainfolio.portfolio.document import IssueDocument, Portfolio
from chainfolio.portfolio.transactions import TransactionDocument, Transactions, TransactionUser
from tests.api.fakes import a_portfolio
from tests.exports.samples import ALICE, BOB, USDC, asset, transaction

OWNERS = [Account("evm", ALICE), Account("evm", BOB)]
UNKNOWN_TOKEN = asset("N/A", "odd", USDC, price="N/A")


class FakeEngine:
    """An engine with one page of transactions, and portfolios."""

    def __init__(self, *transactions: TransactionDocument, portfolios: tuple[Portfolio, ...] = ()) -> None:
        self._page = SimpleNamespace(document=Transactions(transactions), end=None)
        self._held = list(portfolios)

    async def transactions(self, *_: object) -> object:
        return self._page

    async def portfolios(self, *_: object, **__: object) -> list[Portfolio]:
        return self._held


def exported(engine: FakeEngine, format_name: str, count: int = 1) -> tuple[list[list[str]], Summary]:
    """The rows of an export as CSV, and its summary."""
    file = io.StringIO()
    target = (format_name, None)
    request = ExportRequest()
    summary = asyncio.run(
        export(cast("Any", engine), "transactions", OWNERS[:count], request, target=target, stream=file)
    )
    return list(csv.reader(io.StringIO(file.getvalue()))), summary


def test_rows_of_several_wallets_begin_with_their_wallet() -> None:
    of_alice = transaction(asset("1"))
    engine = FakeEngine(of_alice, structs.replace(of_alice, user=TransactionUser(address=BOB)))
    (header, first, second), _ = exported(engine, "csv", count=2)
    assert header[:2] == ["address", "chain"]
    assert (first[0], second[0]) == (ALICE, BOB)
    assert first[1:-2] == second[1:-2]


def test_rows_of_one_wallet_have_the_columns_of_the_command() -> None:
    (header, *_), _ = exported(FakeEngine(transaction(asset("1"))), "csv")
    assert header[0] == "chain"


@pytest.mark.parametrize("tool", TAX_TOOLS)
def test_a_transaction_without_any_row_is_named_and_the_export_is_partial(tool: str) -> None:
    (_, *rows), summary = exported(FakeEngine(transaction(UNKNOWN_TOKEN, number=7)), tool)
    assert rows == []
    assert summary.completeness == "partial"
    assert summary.issues == (f"export: 0x{7:064x}: it has no row, because the decimals of {USDC} are not known",)


@pytest.mark.parametrize("tool", TAX_TOOLS)
def test_a_fee_that_is_not_known_is_named_and_the_export_is_partial(tool: str) -> None:
    (_, *rows), summary = exported(FakeEngine(transaction(asset("1"), fees="N/A", number=7)), tool)
    assert "(fee not known)" in str(rows)
    assert summary.completeness == "partial"
    assert summary.issues == (f"export: 0x{7:064x}: the fee is not known: it is in no row",)


@pytest.mark.parametrize("tool", TAX_TOOLS)
def test_a_transaction_whose_rows_name_what_they_lack_is_complete(tool: str) -> None:
    engine = FakeEngine(transaction(asset("1"), UNKNOWN_TOKEN), transaction(kind="APPROVAL", number=1))
    _, summary = exported(engine, tool)
    assert (summary.completeness, summary.issues) == ("complete", ())


def test_a_ledger_is_as_complete_as_the_portfolios_that_prove_it() -> None:
    issue = IssueDocument("erc20", "ethereum", "the node did not answer")
    for completeness, issues in (("complete", ()), ("partial", (issue,))):
        portfolio = structs.replace(a_portfolio(ALICE), completeness=completeness, issues=issues)
        _, summary = exported(FakeEngine(transaction(asset("1")), portfolios=(portfolio,)), "beancount")
        assert summary.completeness == completeness
        assert len(summary.issues) == len(issues)


def test_holdings_are_as_complete_as_the_portfolios() -> None:
    portfolio = structs.replace(a_portfolio(ALICE), completeness="partial")
    engine = cast("Any", FakeEngine(portfolios=(portfolio,)))

    async def read() -> Summary:
        data: Dataset = await dataset(engine, "holdings", OWNERS[:1], ExportRequest())
        return await write(data, text_writer(io.StringIO(), "csv", data))

    assert asyncio.run(read()).completeness == "partial"


@pytest.mark.parametrize("format_name", ["csv", "json", "parquet", "xlsx", "pdf"])
@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EACCES, StoreError)], ids=["full disk", "no permission"]
)
def test_a_file_that_cannot_be_written_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, number: int, kind: type[StoreError]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("chainfolio.exports.formats.os.replace", fail)
    engine = cast("Any", FakeEngine(transaction(asset("1"))))
    target = (format_name, tmp_path / "a.out")
    with pytest.raises(kind) as caught:
        asyncio.run(export(engine, "transactions", OWNERS, ExportRequest(), target=target, stream=io.StringIO()))
    assert type(caught.value) is kind
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_a_connection_is_not_one_of_the_file(tmp_path: Path) -> None:
    class DeadEngine(FakeEngine):
        async def transactions(self, *_: object) -> object:
            raise ConnectionResetError("the node closed the connection")

    target = ("csv", tmp_path / "a.csv")
    engine = cast("Any", DeadEngine())
    with pytest.raises(ConnectionResetError):
        asyncio.run(export(engine, "transactions", OWNERS, ExportRequest(), target=target, stream=io.StringIO()))


def test_a_target_that_is_no_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (Path(), "is a folder"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a device or a pipe"),
        (tmp_path / "missing" / "x.xlsx", "there is no folder"),
    ):
        with pytest.raises(BadRequest, match=reason) as caught:
            check_target("csv", "transactions", path, ExportRequest())
        assert caught.value.field == "output"
