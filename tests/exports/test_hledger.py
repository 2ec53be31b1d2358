"""Journals that hledger accepts: its holdings are ours, to the unit, for any transactions and names."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.errors import BadRequest
from chainfolio.exports.dataset import Page
from chainfolio.exports.formats import check_target
from chainfolio.exports.hledger import Hledger
from chainfolio.exports.ledger import LedgerWriter
from chainfolio.exports.sources import ExportRequest
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.transactions import TransactionDocument
from tests.exports.samples import BOB, HOSTILE, USDC, asset, transaction
from tests.exports.test_beancount import BUY, SUMMARY, amounts_of, empty_wallet, ledger, movements
from tests.exports.test_beancount import units as of_beancount

needs_hledger = pytest.mark.skipif(shutil.which("hledger") is None, reason="hledger is not installed here")


def journal(transactions: Sequence[TransactionDocument], portfolios: Sequence[Portfolio] = ()) -> str:
    file = io.StringIO()
    writer = LedgerWriter(file, portfolios, Hledger())
    writer.write(Page([], transactions=tuple(transactions[::-1])))
    writer.close(SUMMARY)
    return file.getvalue()


def hledger(content: str, *command: str) -> str:
    """Run a command of hledger on a journal and return its output; all names have to be declared."""
    run = subprocess.run(
        ["hledger", "-f", "-", *command, "--strict"], input=content, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def units(content: str, account: str) -> dict[str, Decimal]:
    """Return the units in an account by commodity, without commodities whose units are zero."""
    rows = csv.DictReader(io.StringIO(hledger(content, "bal", account, "-N", "--layout=bare", "-O", "csv")))
    return {row["commodity"]: number for row in rows if (number := Decimal(row["balance"]))}


def test_what_came_is_at_its_price_and_the_end_is_asserted() -> None:
    content = journal([BUY, transaction(asset("3", "usdc", USDC, price="N/A"), number=1)], portfolios=[empty_wallet()])
    assert '    Assets:Ethereum  2 "ETH" @ 1000 USD\n' in content
    assert '    Assets:Ethereum  3 "USDC" @ 0 USD\n' in content
    sold = journal([BUY, transaction(asset("1", price="9", into=False), kind="TRANSFEROUT", number=1)])
    assert '    Assets:Ethereum  -1 "ETH" @ 9 USD\n    Expenses:Sent  9 USD\n' in sold
    assert '    Assets:Ethereum  0 "USDC" = 0 "USDC"\n' in content


def test_names_cannot_leave_their_line() -> None:
    evil = 'x"; account:yes\n2020-01-01 * evil\n    Assets:Evil  1 "ETH"\n'
    content = journal([transaction(asset("1", evil, USDC), asset("2", "USD", BOB), asset("3", HOSTILE), protocol=evil)])
    assert "\n    Assets:Evil" not in content
    assert "\n2020-01-01 * evil" not in content
    assert not set(content) & {"\x1b", "\u202e"}
    if shutil.which("hledger"):
        assert units(content, "Assets:Evil") == {}


def test_a_journal_has_no_lots_to_choose() -> None:
    with pytest.raises(BadRequest, match="a journal without lots has no --method"):
        check_target("hledger", "transactions", None, ExportRequest(method="lifo"))


@needs_hledger
def test_a_wrong_holding_is_refused() -> None:
    content = journal([BUY], portfolios=[empty_wallet()])
    assert units(content, "Assets") == {}
    wrong = content.replace('= 0 "ETH"', '= 1 "ETH"')
    run = subprocess.run(["hledger", "-f", "-", "check"], input=wrong, capture_output=True, text=True, check=False)
    assert "balance assertion" in run.stderr


@needs_hledger
@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(movements, amounts_of), max_size=5))
def test_hledger_holds_what_beancount_holds(history: list[tuple[list[Any], str]]) -> None:
    transactions = []
    for number, (moves, fee) in enumerate(history):
        assets = [asset(amount, *token, price=price, into=into) for amount, token, price, into in moves]
        transactions.append(transaction(*assets, number=7 * number, fees=fee, fees_fiat="3.5"))
    assert units(journal(transactions), "Assets:Ethereum") == of_beancount(ledger(transactions))
    assert units(journal(transactions, portfolios=[empty_wallet()]), "Assets") == {}, "and the assertions agree"
