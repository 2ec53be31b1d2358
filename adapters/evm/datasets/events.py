"""Events that protocols' rules ask for, of some contracts: raw in `logs`, and by account in `account_events`.

A filter is one event of one contract, as `0x…contract/0x…topic`; what is covered is told filter by filter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.integrity import Query
from adapters.evm.logs import Logs
from chainfolio.tables import ACCOUNT_EVENTS, LOGS


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


DATASET = EvmDataset(
    "events", LOGS, filtered_by="event", by_account="logs", parties=("topic1", "topic2", "topic3"),
    history=ACCOUNT_EVENTS.name,
)  # fmt: skip
