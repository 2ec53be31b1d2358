"""Events of single contracts for protocols' rules: raw in `logs`, by account in `account_events`.

A filter is one event of one contract, written `0x…contract/0x…topic`. Indexed ranges are recorded per filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from chainfolio.adapters.evm.datasets.dataset import EvmDataset, topic_of
from chainfolio.adapters.evm.integrity import Query
from chainfolio.adapters.evm.logs import Logs
from chainfolio.datasets import AccountRows
from chainfolio.tables import ACCOUNT_EVENTS, LOGS

if TYPE_CHECKING:
    import polars as pl

ADDRESS_PREFIX: Final = "0x" + "0" * 24  # of the topic of an address
NUMBER_PREFIX: Final = "0x" + "0" * 48  # of the topic of a number below 2^64
TOPIC_POSITIONS: Final = (1, 2, 3)  # of topics that can name an account; topic 0 is the event
TOPICS: Final = tuple(f"topic{position}" for position in TOPIC_POSITIONS)


def query(filters: Sequence[str]) -> Query:
    """Return one query for several filters. Its answer has each of the events from each of the contracts."""
    contracts, topics = zip(*(each.split("/") for each in filters), strict=True)
    return Query(tuple(sorted(set(topics))), tuple(sorted(set(contracts))))


def matching_logs(logs: Logs, filters: Sequence[str]) -> Logs:
    """Return logs without those of a filter's event from contracts for which no filter has it.

    Logs of events that no filter has stay.
    """
    contracts: dict[str, list[bytes]] = {}
    for contract, topic in (each.split("/") for each in filters):
        contracts.setdefault(topic, []).append(contract.encode())
    addresses = logs.address.view("S42").ravel()
    is_unrequested = np.zeros(len(logs), np.bool_)
    for topic, emitters in contracts.items():
        is_unrequested |= logs.of(topic) & ~np.isin(addresses, np.array(emitters, "S42"))
    return logs.take(np.flatnonzero(~is_unrequested)) if is_unrequested.any() else logs


def account_rows(logs: pl.LazyFrame) -> pl.LazyFrame:
    """Return each log once for each topic that names an account, with the columns `account` and `place`.

    `place` is the number of the topic. A log that names one account in two topics comes twice.
    A topic names an account if its first 12 bytes are zero and the next 12 are not all zero: those are small numbers.
    So the events of an invented address such as 0x0...01 are not found. No key has such an address.
    """
    import polars as pl

    def rows_of_topic(position: int) -> pl.LazyFrame:
        topic = pl.col(f"topic{position}")
        is_account = topic.str.starts_with(ADDRESS_PREFIX) & ~topic.str.starts_with(NUMBER_PREFIX)
        account = pl.concat_str(pl.lit("0x"), topic.str.slice(len(ADDRESS_PREFIX))).alias("account")
        return logs.filter(is_account).with_columns(account, pl.lit(position, pl.Int32).alias("place"))

    return pl.concat([rows_of_topic(position) for position in TOPIC_POSITIONS])


DATASET = EvmDataset(
    "events",
    LOGS,
    filtered_by="event",
    by_account="logs",
    account_columns=TOPICS,
    account_text=topic_of,
    history=ACCOUNT_EVENTS.name,
    account_rows=AccountRows(TOPICS, account_rows),
)
