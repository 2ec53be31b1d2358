"""Events that protocols' rules ask for, of some contracts: raw in `logs`, and by account in `account_events`.

A filter is one event of one contract, as `0x…contract/0x…topic`; what is covered is told filter by filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from adapters.evm.datasets.dataset import EvmDataset, topic_of
from adapters.evm.integrity import Query
from adapters.evm.logs import Logs
from chainfolio.datasets import AccountRows
from chainfolio.tables import ACCOUNT_EVENTS, LOGS

if TYPE_CHECKING:
    import polars as pl

AS_TOPIC: Final = "0x" + "0" * 24  # how the topic of an address begins
NO_ACCOUNT: Final = "0x" + "0" * 48  # how the topic of a number below 2^64 begins
PLACES: Final = (1, 2, 3)  # of the topics that can name an account
TOPICS: Final = tuple(f"topic{place}" for place in PLACES)


def query(filters: Sequence[str]) -> Query:
    """All logs of some filters in one question, which is answered with any of the events from any of the contracts."""
    contracts, topics = zip(*(each.split("/") for each in filters), strict=True)
    return Query(tuple(sorted(set(topics))), tuple(sorted(set(contracts))))


def wanted(logs: Logs, filters: Sequence[str]) -> Logs:
    """Logs without those of one filter's event from another one's contract: whoever wants those later, fetches them."""
    contracts: dict[str, list[bytes]] = {}
    for contract, topic in (each.split("/") for each in filters):
        contracts.setdefault(topic, []).append(contract.encode())
    addresses = logs.address.view("S42").ravel()
    stray = np.zeros(len(logs), np.bool_)
    for topic, from_these in contracts.items():
        stray |= logs.of(topic) & ~np.isin(addresses, np.array(from_these, "S42"))
    return logs.take(np.flatnonzero(~stray)) if stray.any() else logs


def account_rows(logs: pl.LazyFrame) -> pl.LazyFrame:
    """The accounts that the topics of each log name.

    A topic names an account where it can be an address: its first 12 bytes are zero, and the next 12 are not all zero,
    for a small number could else be one too.
    """
    import polars as pl

    def named(place: int) -> pl.LazyFrame:
        topic = pl.col(f"topic{place}")
        is_account = topic.str.starts_with(AS_TOPIC) & ~topic.str.starts_with(NO_ACCOUNT)
        account = pl.concat_str(pl.lit("0x"), topic.str.slice(len(AS_TOPIC))).alias("account")
        return logs.filter(is_account).with_columns(account, pl.lit(place, pl.Int32).alias("place"))

    return pl.concat([named(place) for place in PLACES])


DATASET = EvmDataset(
    "events", LOGS, filtered_by="event", by_account="logs", parties=TOPICS, written=topic_of,
    history=ACCOUNT_EVENTS.name, account_rows=AccountRows(TOPICS, account_rows),
)  # fmt: skip
