"""The gains that are kept: so many rows of all accounts together, and nothing that is not known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from chainfolio.assets import Account, account
from chainfolio.engine.gains import account_gains
from chainfolio.engine.gains.account_gains import GainsCache, KnownGains
from chainfolio.engine.gains.pnl import GainsResult, PnlRequest, _treatment
from chainfolio.errors import Unavailable
from chainfolio.portfolio.document import IssueDocument, Portfolio
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.gains import Gains, RemainingLots
from chainfolio.portfolio.pnl.in_portfolio import AccountGains
from chainfolio.portfolio.pnl.in_transactions import TransactionGains
from tests.portfolio.test_pnl_in_portfolio import KEYS, document

ONE, OTHER = (account("0x" + digit * 40) for digit in "12")
MARK = ((1, 1),)
NOBODY = cast("Any", SimpleNamespace(is_trusted_contract=lambda contract: True))


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> GainsCache:
    """A book with room for three rows, and accounts of two rows each."""

    async def compute(engine: Any, accounts: list[Account], request: PnlRequest) -> Any:
        entries = [Entry(at, "buy", "a:eth", 5, 7, transaction=f"0x{at}") for at in range(2)]
        return GainsResult(entries, Gains(), {}, {}, ())

    monkeypatch.setattr(account_gains, "compute_gains", compute)
    monkeypatch.setattr(account_gains, "MAX_ROWS", 3)
    return GainsCache(lambda error: None)


async def test_accounts_that_were_asked_for_first_make_room_for_others(book: GainsCache) -> None:
    for each in (ONE, OTHER, OTHER):
        gains = await book._compute(NOBODY, each, PnlRequest(), MARK)
        assert gains.in_transactions.costs == {("0x0", "a:eth"): 7, ("0x1", "a:eth"): 7}
    assert list(book._entries) == [OTHER.address]
    assert book._rows == 2


async def test_why_gains_are_not_known_is_said_and_not_kept(book: GainsCache, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(*_: Any) -> Any:
        raise Unavailable("node", "it is away")

    monkeypatch.setattr(account_gains, "compute_gains", failed)
    gains = await book._compute(NOBODY, ONE, PnlRequest(), MARK)
    assert "it is away" in gains.in_transactions.reason == gains.in_portfolio.reason
    assert not book._entries


def test_where_prices_could_not_be_read_what_only_a_read_can_tell_counts_as_priced() -> None:
    results = {"one:listed": True, "one:other": None, "two:other": None, "one:never": False}
    pnl = SimpleNamespace(treat_liquidity="deposit", trade_value="strongest")
    system = SimpleNamespace(settings=SimpleNamespace(pnl=pnl))
    source = cast("Any", SimpleNamespace(system=system, is_trusted_contract=bool, is_priced_contract=results.get))
    issues = [IssueDocument("one", "prices", "prices at block 7 could not be read"), IssueDocument("two", "logs", "no")]
    treatment = _treatment(source, [], PnlRequest(), {}, issues)
    assert {each: treatment.is_priced(each) for each in results} == {
        "one:listed": True,
        "one:other": True,
        "two:other": False,
        "one:never": False,
    }


@dataclass
class Holder:
    """A source whose portfolio of one account, at some block, has some USDC."""

    raw: int
    block: int
    reads: int = 0

    async def portfolios(self, *_: Any, **__: Any) -> list[Portfolio]:
        """The portfolio."""
        self.reads += 1
        portfolio = document({"USDC": self.raw})
        chains = {
            key: msgspec.structs.replace(chain, block_number=str(self.block)) for key, chain in portfolio.chains.items()
        }
        return [msgspec.structs.replace(portfolio, chains=chains)]


async def test_a_portfolio_is_compared_once_unless_it_is_older_than_the_history() -> None:
    usdc = KEYS["USDC"]
    lots = {usdc: RemainingLots(usdc, "", 100, 0)}
    gains = KnownGains(AccountGains(lots), TransactionGains(), MARK, {usdc: 7})
    cache, source = GainsCache(lambda error: None), Holder(100, 6)
    cache._entries[ONE.address] = MARK, gains
    assert await cache.unclosed(cast("Any", source), ONE, gains) == frozenset()
    source.raw = 99
    assert await cache.unclosed(cast("Any", source), ONE, gains) == frozenset(), "the last transaction is newer"
    source.block = 7
    for _ in range(2):
        assert await cache.unclosed(cast("Any", source), ONE, gains) == {usdc}
    assert source.reads == 3
    source.raw = 100
    assert await cache.unclosed(cast("Any", source), ONE, replace(gains, mark=((2, 2),))) == frozenset()


async def test_a_comparison_of_evicted_gains_is_not_cached(book: GainsCache) -> None:
    gains = await book._compute(NOBODY, ONE, PnlRequest(), MARK)

    class Evicting(Holder):
        async def portfolios(self, *args: Any, **options: Any) -> list[Portfolio]:
            await book._compute(NOBODY, OTHER, PnlRequest(), MARK)
            return await super().portfolios(*args, **options)

    await book.unclosed(cast("Any", Evicting(0, 7)), ONE, gains)
    assert list(book._entries) == [OTHER.address]
    assert not book._unclosed
