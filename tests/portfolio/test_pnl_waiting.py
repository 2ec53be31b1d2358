"""Shares that are given back and pay nothing yet: what they keep, and what a later payment is."""

from __future__ import annotations

import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.requests import NO_PAYMENT
from tests.portfolio.test_pnl_records import ME, NOBODY, asset, brief, record

TREATMENT = Treatment(burn_addresses={NOBODY})


@pytest.mark.parametrize(("content", "has_issue"), [("coin", True), ("dai", False)])
def test_a_share_of_the_coin_that_seems_to_pay_nothing_has_an_issue(content: str, has_issue: bool) -> None:
    lent = record("LEND", [asset("share", "50", other=NOBODY)], [asset(content, "10", "10", "share")], hash="0x1")
    back = record("WITHDRAW", [], [asset("share", "50", other="share")], hash="0x2", recipient="share")
    read = entries_of([lent, back], (ME,), TREATMENT)
    assert brief(read.entries) == {("deposit", content, 10, 10)}
    assert [(issue.subject, issue.reason) for issue in read.issues] == ([("0x2", NO_PAYMENT)] if has_issue else [])


def test_a_bought_share_that_seems_to_pay_nothing_has_an_issue() -> None:
    bought = record("SWAP", [asset("share", "5", "50")], [asset("eur", "1", "50")], hash="0x1")
    read = entries_of([bought, record("WITHDRAW", [], [asset("share", "5")], hash="0x2")], (ME,), TREATMENT)
    assert [gain.asset for gain in gains_of(read.entries, "fifo").gains] == ["chain:eur"]
    assert [(issue.subject, issue.reason) for issue in read.issues] == [("0x2", NO_PAYMENT)]
