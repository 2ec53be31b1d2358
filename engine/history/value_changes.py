"""The parts of a change of value between two stored days, from all transactions of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from chainfolio.currencies import is_coin
from chainfolio.engine.history.account_days import AccountDays, day_state
from chainfolio.engine.history.contained_deposits import ContainedDeposits
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.history.past_days import History
from chainfolio.engine.record_source import RecordSource
from chainfolio.errors import ChainfolioError
from chainfolio.messages import public
from chainfolio.portfolio.metrics.changes import ChangesDocument, ValueChange
from chainfolio.portfolio.pnl.entries import sort_entries, without_loans
from chainfolio.portfolio.pnl.lots import LOTS

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain

FEWER: Final = "fewer than two days are known"
NO_COINS: Final = "costs are converted to fiat money only"
NOT_STORED: Final = "what was held on past days is not stored"


async def value_changes(
    source: RecordSource,
    history: History,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    values: Mapping[date, Decimal],
    currency: str,
) -> tuple[ChangesDocument, ContainedDeposits]:
    """Return the parts of the change of value between two days, and the deposits that values contain.

    An error of Chainfolio is not raised; its message is the reason of the document, which then has no parts. There are
    none either without a store of snapshots, for fewer than two days, or if `currency` is a coin. Lots are FIFO if the
    method of the settings has no lots.

    Args:
        values: Value of the accounts in USD on each day that is known.
        currency: Currency of the parts. The deposits do not depend on it.
    """
    method = source.system.settings.pnl.method
    method = method if method in LOTS else "fifo"
    if len(values) < 2 or history.store is None:
        reason = FEWER if len(values) < 2 else NOT_STORED
        return ChangesDocument(method=method, reason=reason), ContainedDeposits.unknown(reason)
    try:
        days = await AccountDays.read(source, history.store, accounts, chains, values, method)
    except ChainfolioError as error:
        reason = public(error.message)
        return ChangesDocument(method=method, reason=reason), ContainedDeposits.unknown(reason)
    deposits = ContainedDeposits.of(days)
    if is_coin(currency):
        return ChangesDocument(method=method, reason=NO_COINS), deposits
    try:
        return await _parts(days, currency), deposits
    except ChainfolioError as error:
        return ChangesDocument(method=method, reason=public(error.message)), deposits


async def _parts(days: AccountDays, currency: str) -> ChangesDocument:
    """Return the parts of the change between the first and the last day.

    Raises:
        BadRequest: The currency is unknown.
        NotSupported: The rate at one of the times is not known.
    """
    ends = [await days.day(each) for each in (min(days.values), max(days.values))]
    since_us = midnight_us(ends[0].day)
    moments_us = [each.time_us for each in days.records.transactions]
    moments_us += [each.moment_us for each in ends]
    conversion = await days.source.rates.conversion(currency, moments_us)

    def per_usd(time_us: int) -> Decimal:
        return conversion.value(Decimal(1), time_us)

    first, last = [await days.gains(each, per_usd) for each in ends]
    with_shares = not ends[0].lacks_shares_of(ends[1])
    entries = without_loans(sort_entries(last.entries), {}, per_wallet=False)
    return ValueChange(
        day_state(ends[0], first, conversion, with_shares=with_shares),
        day_state(ends[1], last, conversion, with_shares=with_shares),
        [each for each in entries if each.time_us >= since_us],
        [each for each in last.gains.gains if each.time_us >= since_us],
        first.shares | last.shares,
        last.first_blocks,
        cache(days.source.is_trusted_contract),
    ).document(days.request.method)
