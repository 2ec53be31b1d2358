"""Marks the days whose value lacks a price. Such a value is unknown, and its reason names the assets.

A value without the native coin, or of zero although trusted assets were held, would be wrong. A value that lacks other
trusted assets stays, and its reason names them. Untrusted tokens count for nothing: anybody can send one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chainfolio import amounts
from chainfolio.portfolio.compose import clean
from chainfolio.portfolio.snapshot_rows import holdings_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.history.past_days import History
    from chainfolio.engine.history.snapshot_store import DaySnapshot

UNPRICED: Final = "unpriced"
NO_PRICE: Final = "no source has a price of {assets} at block {height}"
LEFT_OUT: Final = "without {assets}, of which no source has a price"
MAX_NAMES: Final = 5


class UnpricedHolding(NamedTuple):
    """One row of a day's holdings without a value. `raw` and `decimals` are None if not known."""

    account: str
    day: date
    contract: str
    symbol: str
    decimals: int | None
    raw: bytes | None


async def with_missing_prices(history: History, chain: Chain, snapshots: Sequence[DaySnapshot]) -> list[DaySnapshot]:
    """Return the snapshots in their order, with trusted assets that lack a price named in their reasons.

    The value of such a snapshot becomes None if the native coin lacks a price, or if the rest is 0. Snapshots without
    value are unchanged.
    """
    valued = [each for each in snapshots if each.value is not None]
    if not valued:
        return list(snapshots)
    unpriced = await asyncio.to_thread(_unpriced, history, chain, valued)
    native = chain.info.native.asset.shown_contract
    return [
        _marked(each, unpriced.get((each.account, each.day), {}), native) if each.value is not None else each
        for each in snapshots
    ]


def _marked(snapshot: DaySnapshot, unpriced: dict[str, str], native: str) -> DaySnapshot:
    """Return a snapshot whose reason names its unpriced assets, MAX_NAMES at most.

    Its value becomes None if `native` is one, or if it is 0. Unchanged if nothing is unpriced.

    Args:
        unpriced: Texts of the amount and symbol by contract.
        native: The shown contract of the native coin.
    """
    if not unpriced:
        return snapshot
    texts = [unpriced[each] for each in sorted(unpriced, key=lambda contract: (contract != native, contract))]
    assets = ", ".join(texts[:MAX_NAMES]) + (f" and {len(texts) - MAX_NAMES} others" if len(texts) > MAX_NAMES else "")
    is_unknown = native in unpriced or Decimal(snapshot.value or "0") == 0
    reason = (NO_PRICE if is_unknown else LEFT_OUT).format(assets=assets, height=snapshot.block.height)
    reason = "; ".join(part for part in (snapshot.reason, reason) if part)
    if is_unknown:
        return replace(snapshot, value=None, completeness=UNPRICED, reason=reason)
    return replace(snapshot, reason=reason)


def _unpriced(
    history: History, chain: Chain, snapshots: Sequence[DaySnapshot]
) -> dict[tuple[str, date], dict[str, str]]:
    """Return texts such as "2 ABC" of trusted assets without a value, by account and day, then contract.

    The texts have no amount if one part of it is unknown.
    """
    is_trusted = history.snapshotter(chain).is_trusted_contract
    trusted: dict[str, bool] = {}
    totals: defaultdict[tuple[str, date], dict[str, tuple[Decimal | None, str]]] = defaultdict(dict)
    for each in _rows(history, chain, snapshots):
        if each.contract not in trusted:
            trusted[each.contract] = is_trusted(each.contract)
        if not trusted[each.contract]:
            continue
        amount = None
        if each.raw is not None and each.decimals is not None:
            amount = amounts.amount(amounts.raw_from_bytes(each.raw), each.decimals)
        previous = totals[each.account, each.day].get(each.contract, (amounts.ZERO, ""))[0]
        total = None if amount is None or previous is None else amounts.total([amount, previous])
        totals[each.account, each.day][each.contract] = total, clean(each.symbol) or each.contract
    return {
        key: {contract: f"{_text(total)}{symbol}" for contract, (total, symbol) in by_contract.items()}
        for key, by_contract in totals.items()
    }


def _text(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amounts.text(amount)} "


def _rows(history: History, chain: Chain, snapshots: Sequence[DaySnapshot]) -> Iterator[UnpricedHolding]:
    """Yield the holdings without a value, except spam: from the documents, else from the store."""
    stored = {(each.account, each.day) for each in snapshots if each.document is None}
    for snapshot in snapshots:
        if snapshot.document is not None:
            yield from _unvalued(snapshot.account, snapshot.day, holdings_of(snapshot.portfolio))
    if stored and (store := history.store) is not None:
        accounts, days = sorted({account for account, _ in stored}), sorted({day for _, day in stored})
        for row in store.holdings(chain.key, accounts, days).iter_rows(named=True):
            account, day = row["account"], row["day"].date()
            if (account, day) in stored:
                yield from _unvalued(account, day, [row])


def _unvalued(account: str, day: date, rows: Iterable[Mapping[str, Any]]) -> Iterator[UnpricedHolding]:
    for row in rows:
        if row["value"] is None and not row["spam"] and row["raw"] != bytes(32):
            yield UnpricedHolding(account, day, row["asset"], row["symbol"], row["decimals"], row["raw"])
