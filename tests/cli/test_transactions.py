"""`chainfolio transactions` on a chain where wallets traded: pages, days, and all of them as a stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ALICE, Run

pytestmark = pytest.mark.node


@pytest.fixture
def small_pages(all_transactions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of seven, after the whole list was read in one."""
    monkeypatch.setattr("chainfolio.cli.transactions.MAX_PAGE", 7)


@pytest.fixture
def all_transactions(run: Run, wallets: dict[str, str]) -> dict[str, Any]:
    """Return a page with all transactions of frank."""
    document: dict[str, Any] = run("transactions", wallets["frank"], "--limit", "250", "--json").json
    assert 10 < len(document["transactions"]) < 250
    return document


def hashes(document: dict[str, Any]) -> list[str]:
    return [each["hash"] for each in document["transactions"]]


def test_an_offset_leaves_out_the_first(run: Run, wallets: dict[str, str], all_transactions: dict[str, Any]) -> None:
    page = run("transactions", wallets["frank"], "--offset", "3", "--limit", "4", "--json").json
    assert hashes(page) == hashes(all_transactions)[3:7]
    assert run("transactions", wallets["frank"], "--offset", "1000", "--json").json["transactions"] == []


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.usefixtures("small_pages")
def test_all_is_every_page(run: Run, wallets: dict[str, str], all_transactions: dict[str, Any]) -> None:
    every = run("transactions", wallets["frank"], "--all", "--json").json
    assert every["transactions"] == all_transactions["transactions"]
    assert every["completeness"] == all_transactions["completeness"]
    issues = [tuple(issue.values()) for issue in every["issues"]]
    assert sorted(issues) == sorted(tuple(issue.values()) for issue in all_transactions["issues"])
    tail = run("transactions", wallets["frank"], "--all", "--offset", "5", "--json").json
    assert hashes(tail) == hashes(all_transactions)[5:]


@pytest.mark.slow("the sheet of pages in another test, all at once")
@pytest.mark.usefixtures("small_pages")
def test_all_as_a_sheet_has_one_header(run: Run, wallets: dict[str, str], all_transactions: dict[str, Any]) -> None:
    ran = run("transactions", wallets["frank"], "--all", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert list(dict.fromkeys(row["hash"] for row in rows)) == hashes(all_transactions)
    assert ran.out.count("chain,block,time") == 1
    assert len(rows) == sum(
        max(1, len(each["assetsIn"]) + len(each["assetsOut"])) for each in all_transactions["transactions"]
    )


def test_a_sheet_is_printed_page_by_page(
    run: Run, wallets: dict[str, str], all_transactions: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.cli.transactions.MAX_PAGE", 5)
    lines: list[int] = []
    monkeypatch.setattr(
        "chainfolio.cli.transactions.show_csv", lambda columns, rows, header: lines.append(len(list(rows)))
    )
    run("transactions", wallets["frank"], "--all", "--csv")
    assert len(lines) == len(hashes(all_transactions)) // 5 + 1


def days_of(document: dict[str, Any]) -> Iterator[date]:
    return (datetime.fromtimestamp(int(each["timestamp"]), UTC).date() for each in document["transactions"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_days_bound_the_list_and_are_included(
    run: Run, wallets: dict[str, str], all_transactions: dict[str, Any]
) -> None:
    days = list(days_of(all_transactions))
    first, last, day = min(days), max(days), timedelta(days=1)
    for start, end in ((first, last), (last, last), (first, first), (first - day, first - day), (last + day, None)):
        bounds = ["--from", str(start), *([] if end is None else ["--to", str(end)])]
        page = run("transactions", wallets["frank"], "--all", *bounds, "--json").json
        expected = [
            tx for tx, at in zip(hashes(all_transactions), days, strict=True) if start <= at <= (end or last + day)
        ]
        assert hashes(page) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(("--all", "--limit", "5"), "--all has no limit", id="all-and-limit"),
        pytest.param(("--json", "--csv"), "two forms", id="json-and-csv"),
        pytest.param(("--limit", "251"), "between 1 and 250", id="limit-too-high"),
        pytest.param(("--limit", "0"), "between 1 and 250", id="limit-zero"),
        pytest.param(("--offset", "-1"), "between 0 and", id="offset-negative"),
        pytest.param(("--from", "2024-02-30"), "is not a day", id="no-day"),
        pytest.param(("--to", "yesterday"), "is not a day", id="no-date"),
        pytest.param(("--from", "2024-02-02", "--to", "2024-02-01"), "is after", id="reversed"),
    ],
)
def test_options_out_of_range_are_refused(run: Run, here: Path, options: tuple[str, ...], message: str) -> None:
    ran = run("transactions", ALICE, *options)
    assert ran.code == 2
    assert message in ran.out + ran.err


def test_the_sheet_of_a_wallet_with_nothing_is_a_header(run: Run, wallets: dict[str, str]) -> None:
    ran = run("transactions", "0x" + "12" * 20, "--all", "--csv")
    assert ran.out.splitlines() == [ran.out.strip()]
