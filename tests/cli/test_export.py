"""`chainfolio export` on a chain where wallets traded: the files have what the commands print."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path

import polars as pl
import pypdf
import pytest
from beancount import loader
from beancount.core import data

from chainfolio.amounts import text
from chainfolio.exports.formats import TAX_TOOLS
from chainfolio.exports.sources import KINDS
from tests.cli.conftest import ALICE, Run, configure

pytestmark = pytest.mark.node


@pytest.mark.slow("tests/exports writes the same rows without a chain")
def test_transactions_and_gains_are_those_of_the_commands(run: Run, wallets: dict[str, str]) -> None:
    frank = wallets["frank"]
    ran = run("export", "transactions", frank)
    assert ran.out == run("transactions", frank, "--all", "--csv").out
    assert "rows, complete, SHA-256 of the data" in ran.err
    assert run("export", "gains", frank).out == run("pnl", frank, "--csv").out
    of_year = ("--year", "2023", "--jurisdiction", "de")
    assert run("export", "gains", frank, *of_year).out == run("pnl", frank, *of_year, "--csv").out
    assert run("export", "income", frank, *of_year).out == run("pnl", frank, *of_year, "--income", "--csv").out


def test_every_kind_has_one_digest_in_every_format(run: Run, wallets: dict[str, str], here: Path) -> None:
    options = {"income": ("--year", "2023"), "history": ("--to", "2024-01-01")}  # the same on every day
    for kind in KINDS:
        arguments = ("export", kind, wallets["bob"], *options.get(kind, ()))
        summary = json.loads(run(*arguments, "--format", "json").out)["summary"]
        for name in ("parquet", "pdf") if kind in ("gains", "transactions") else ("csv", "xlsx"):
            ran = run(*arguments, "--format", name, "-o", f"{kind}.{name}")
            assert (ran.code, ran.out) == (0, "")
            assert summary["digest"] in ran.err, kind
    digest = json.loads(run("export", "gains", wallets["bob"], "--format", "json").out)["summary"]["digest"]
    assert digest in pypdf.PdfReader(here / "gains.pdf").pages[0].extract_text().replace("\n", "")
    assert len(pl.read_parquet(here / "transactions.parquet")) > 20


def test_beancount_accepts_the_ledger_and_holds_what_the_wallet_holds(run: Run, wallets: dict[str, str]) -> None:
    for name in ("frank", "bob"):
        ran = run("export", "transactions", wallets[name], "--format", "beancount")
        entries, errors, _ = loader.load_string(ran.out)
        assert errors == []
        asserted = [text(each.amount.number or Decimal()) for each in entries if isinstance(each, data.Balance)]
        holdings = csv.DictReader(io.StringIO(run("export", "holdings", wallets[name]).out))
        balances = [row["balance"] for row in holdings if row["protocol"] == "wallet"]
        assert len(balances) > 2
        assert not Counter(balances) - Counter(asserted)  # collectibles are asserted too


def test_tax_tools_get_one_row_or_more_for_what_moved(run: Run, wallets: dict[str, str], here: Path) -> None:
    for name, tool in TAX_TOOLS.items():
        assert run("export", "transactions", wallets["frank"], "--format", name, "-o", "tax.csv").code == 0
        table = pl.read_csv(here / "tax.csv", infer_schema=False)
        assert table.columns == list(tool.columns)
        assert len(table) > 20


def test_hledger_accepts_the_journal_of_each_wallet(run: Run, wallets: dict[str, str]) -> None:
    for name in ("alice", "bob"):
        ran = run("export", "transactions", wallets[name], "--format", "hledger")
        assert '"ETH" = ' in ran.out
        if shutil.which("hledger"):
            subprocess.run(["hledger", "-f", "-", "check", "--strict"], input=ran.out, text=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("holdings", "--format", "koinly"), "koinly has no holdings"),
        (("gains", "--format", "beancount"), "beancount has no gains"),
        (("holdings", "--format", "hledger"), "hledger has no holdings"),
        (("transactions", "--format", "hledger", "--from", "2024-01-01"), "a journal without lots has no --from"),
        (("holdings", "--format", "xlsx"), "xlsx is no text"),
        (("holdings", "--from", "2024-01-01"), "an export of holdings has no --from"),
        (("transactions", "--year", "2024"), "an export of transactions has no --year"),
        (("transactions", "--format", "beancount", "--method", "average"), "does not choose lots by 'average'"),
        (("income",), "add --year"),
        (("holdings", "-o", "."), "output: . is a folder"),
        (("holdings", "-o", "missing/x.csv"), "output: there is no folder missing"),
    ],
)
def test_what_does_not_fit_is_refused(
    run: Run, here: Path, dead: str, arguments: tuple[str, ...], complaint: str
) -> None:
    configure(here, dead)
    ran = run("export", arguments[0], ALICE, *arguments[1:])
    assert ran.code == 2
    assert complaint in ran.err


def test_a_failed_export_leaves_the_older_file(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    (here / "a.csv").write_text("older")
    assert run("export", "approvals", ALICE, "-o", "a.csv").code == 3
    assert [path.name for path in here.glob("*a.csv*")] == ["a.csv"]
    assert (here / "a.csv").read_text() == "older"
