"""The gains that are kept: so many rows of all accounts together, and nothing that is not known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chainfolio.assets import Account, account
from chainfolio.engine.gains import account_gains
from chainfolio.engine.gains.account_gains import GainsCache
from chainfolio.engine.gains.pnl import PnlRequest
from chainfolio.errors import Unavailable
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.gains import Gains

ONE, OTHER = (account("0x" + digit * 40) for digit in "12")
MARK = ((1, 1),)
NOBODY = cast("Any", SimpleNamespace())


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> GainsCache:
    """A book with room for three rows, and accounts of two rows each."""

    async def found(engine: Any, accounts: list[Account], wanted: PnlRequest) -> Any:
        entries = [Entry(at, "buy", "a:eth", 5, 7, transaction=f"0x{at}") for at in range(2)]
        return SimpleNamespace(entries=entries, gains=Gains(), aliases={})

    monkeypatch.setattr(account_gains, "compute_gains", found)
    monkeypatch.setattr(account_gains, "MAX_ROWS", 3)
    return GainsCache(lambda error: None)


async def test_accounts_that_were_asked_for_first_make_room_for_others(book: GainsCache) -> None:
    for each in (ONE, OTHER, OTHER):
        known = await book._compute(NOBODY, each, PnlRequest(), MARK)
        assert known.in_transactions.costs == {("0x0", "a:eth"): 7, ("0x1", "a:eth"): 7}
    assert list(book._entries) == [OTHER.address]
    assert book._rows == 2


async def test_why_gains_are_not_known_is_said_and_not_kept(book: GainsCache, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(*_: Any) -> Any:
        raise Unavailable("node", "it is away")

    monkeypatch.setattr(account_gains, "compute_gains", failed)
    known = await book._compute(NOBODY, ONE, PnlRequest(), MARK)
    assert "it is away" in known.in_transactions.reason == known.in_portfolio.reason
    assert not book._entries
