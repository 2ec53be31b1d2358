"""Income by day and kind: what was received without payment, and its value then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio import amounts
from chainfolio.portfolio import frames
from chainfolio.portfolio.pnl.entries import AssetFacts
from chainfolio.portfolio.pnl.gains import Gain
from chainfolio.portfolio.pnl.report import text, total

if TYPE_CHECKING:
    import polars as pl

TransactionKey = tuple[str, str, str]  # chain, hash, wallet


class IncomeDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The income of one day in one asset by one kind of transaction.

    `kind` is the type of the transactions: `CLAIM`, `AIRDROP`, `WITHDRAW` (interest beyond a deposit) and others.
    `value` is in the currency of the report, each part at its own time. It is `N/A` if a part is not known, and
    `reason` says why.
    """

    day: str
    kind: str
    symbol: str
    chain: str
    contract: str
    amount: str
    value: str
    reason: str


INCOME_COLUMNS: Final = IncomeDocument.__struct_encode_fields__


def income_rows(
    gains: Iterable[Gain],
    facts: Mapping[str, AssetFacts],
    types: Mapping[TransactionKey, str],
    day_of: Callable[[int], date],
) -> tuple[IncomeDocument, ...]:
    """Return the income among gains by day, kind and asset. `types` has the types of their transactions."""
    groups: defaultdict[tuple[date, str, str], list[Gain]] = defaultdict(list)
    for each in gains:
        if each.kind == "income":
            chain = each.asset.partition(":")[0]
            kind = types.get((chain, each.transaction, each.wallet), "")
            groups[day_of(each.time_us), kind, each.asset].append(each)
    return tuple(_row(*key, parts, facts[key[2]]) for key, parts in sorted(groups.items()))


def _row(day: date, kind: str, asset: str, gains: Sequence[Gain], facts: AssetFacts) -> IncomeDocument:
    """Return the row of one day, kind and asset; its value is unknown if one gain's is."""
    return IncomeDocument(
        day=day.isoformat(),
        kind=kind,
        symbol=facts.symbol,
        chain=facts.chain or asset.partition(":")[0],
        contract=facts.contract,
        amount=amounts.text(amounts.amount(sum(each.quantity for each in gains), facts.decimals)),
        value=text(total(each.proceeds for each in gains)),
        reason=next((each.reason for each in gains if each.proceeds is None), ""),
    )


def income_frame(rows: Sequence[IncomeDocument]) -> pl.DataFrame:
    """Return the rows for Parquet, in the format of `chainfolio.portfolio.frames`."""
    values = ([getattr(row, name) for name in row.__struct_fields__] for row in rows)
    return frames.frame(INCOME_COLUMNS, values, numbers=("amount", "value"), times=())
