"""The activity of accounts in a span of heights, from rows of the tail and of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chainfolio import amounts
from chainfolio.engine.rows import deduplicated, in_tail
from chainfolio.indexer.materialise import HISTORIES
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, LOGS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.blocks import Span
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System
    from chainfolio.table import Table

# Events of liquidations by their first topic: the topic that names the owner of the loan.
LIQUIDATIONS: Final = {
    "0xe413a321e8681d831f4dbccbca790d2952b56f977908e45be37335533e005286": "topic3",  # LiquidationCall of Aave
    "0xa4946ede45d0c6f06a0f5ce92c9ad3b4751452d2fe0e25010783bcab57a67e41": "topic3",  # Liquidate of Morpho
    "0x1547a878dc89ad3c367b6338b4be6a65a5dd74fb77ae044da1e8747ef1f4f62f": "topic2",  # AbsorbDebt of Compound III
    "0xea67486ed7ebe3eea8ab3390efd4a3c8aae48be5bea27df104a8af786c408434": "topic1",  # TroveLiquidated of Liquity
}
TOPIC_DIGITS: Final = 64
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Log(NamedTuple):
    """Position of a row: height, time, transaction and log number."""

    height: int
    time_us: int
    tx_hash: str
    log_index: int


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval that a wallet gave. `raw` is None if it is for a whole collection."""

    log: Log
    token: str
    spender: str
    raw: int | None


@dataclass(slots=True)
class Activity:
    """Activity of an account in a span of heights.

    Attributes:
        first_us: Time of its first transaction there.
        last_us: Time of its last transaction there.
        liquidations: Logs of liquidations with the contract that wrote them.
    """

    account: str
    span: Span
    first_us: int = 2**62
    last_us: int = 0
    grants: list[Grant] = field(default_factory=list)
    liquidations: list[tuple[Log, str]] = field(default_factory=list)


def read_activity(system: System, chain: Chain, accounts: Sequence[str], span: Span) -> list[Activity]:
    """Return the activity of those accounts that have rows in the span. Each row of the span is read once."""
    import polars as pl

    activities: dict[str, Activity] = {}

    def activity(account: str, time: datetime) -> Activity:
        entry = activities.setdefault(account, Activity(account, span))
        entry.first_us, entry.last_us = min(entry.first_us, _us(time)), max(entry.last_us, _us(time))
        return entry

    for history in (ACCOUNT_TRANSFERS, ACCOUNT_TRANSACTIONS):
        rows = _rows_of(system, chain, history, accounts, span).group_by("account")
        for account, first, last in rows.agg(pl.min("time").alias("first"), pl.max("time").alias("last")).iter_rows():
            activity(account, first)
            activity(account, last)
    for row in _rows_of(system, chain, ACCOUNT_APPROVALS, accounts, span).sort("height", "log_index").to_dicts():
        entry = activity(row["account"], row["time"])
        if (grant := _grant(row)) is not None:
            entry.grants.append(grant)
    if LOGS.name in chain.datasets:
        for account, row in _liquidations(system, chain, accounts, span):
            activity(account, row["time"]).liquidations.append((_log(row), row["address"]))
    return list(activities.values())


def _rows(system: System, chain: Chain, table: Table, span: Span) -> pl.LazyFrame:
    """Return the rows of a span: the tail is read before the lake, so that no moving row is missed."""
    import polars as pl

    fresh = in_tail(system.tail, chain.key, table, span)
    in_span = pl.col("height").is_between(span.first, span.last)
    stored = system.lake.scan(table, chain=chain.key, heights=[span]).select(table.names).filter(in_span)
    return pl.concat([fresh.lazy(), stored])


def _rows_of(system: System, chain: Chain, history: Table, accounts: Sequence[str], span: Span) -> pl.DataFrame:
    """Return the rows of a span by account, each once."""
    import polars as pl

    from chainfolio.portfolio.ledger import by_account, rows_of_accounts

    rows = _rows(system, chain, HISTORIES[history.name].source, span).filter(rows_of_accounts(history, accounts))
    return deduplicated(by_account(history, rows).filter(pl.col("account").is_in(accounts)).collect(), history)


def _liquidations(
    system: System, chain: Chain, accounts: Sequence[str], span: Span
) -> list[tuple[str, dict[str, Any]]]:
    """Return the logs of liquidations with the account whose loan it was, in their order."""
    import polars as pl

    by_topic = {f"0x{each.removeprefix('0x').zfill(TOPIC_DIGITS)}": each for each in accounts}
    rows = _rows(system, chain, LOGS, span).filter(pl.col("topic0").is_in([*LIQUIDATIONS])).collect()
    liquidations = []
    for row in deduplicated(rows, LOGS).sort("height", "log_index").to_dicts():
        if (account := by_topic.get(row[LIQUIDATIONS[row["topic0"]]] or "")) is not None:
            liquidations.append((account, row))
    return liquidations


def _grant(row: dict[str, Any]) -> Grant | None:
    """Return what a row of approvals granted; None if it revoked something."""
    raw = None if row["raw"] is None else amounts.raw_from_bytes(row["raw"])
    if row["approved"] is False or raw == 0 or int(row["spender"].removeprefix("0x") or "0", 36) == 0:
        return None
    return Grant(_log(row), row["token"], row["spender"], raw)


def _log(row: dict[str, Any]) -> Log:
    return Log(row["height"], _us(row["time"]), row["tx_hash"], row["log_index"])


def _us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)
