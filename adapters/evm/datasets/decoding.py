"""Decode logs into the tables of datasets, and restore the logs of stored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.datasets import logs
from chainfolio.adapters.evm.datasets.registry import DATASETS
from chainfolio.adapters.evm.datasets.restore import sorted_logs
from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.logs import Logs


def decode(facts: Facts, all_logs: Logs, datasets: Sequence[str]) -> dict[str, pa.Table]:
    """Return logs as tables: each log in the table that can hold all of it, otherwise raw in `logs`.

    Requested tables may be empty; `logs` is only present with rows. Datasets that are not made from logs are ignored.
    """
    tables: dict[str, pa.Table] = {}
    decoded = np.zeros(len(all_logs), np.bool_)
    wrapped = facts.wrapped.address if facts.wrapped else None
    for name in datasets:
        dataset = DATASETS[name]
        if dataset.decode:
            tables[dataset.table.name], decoded_by_dataset = dataset.decode(all_logs, facts.key, wrapped)
            decoded |= decoded_by_dataset
    if not decoded.all():
        tables["logs"] = logs.rows_of_logs(all_logs.take(np.flatnonzero(~decoded)), facts.key)
    return tables


def restore(stored: Mapping[str, pa.Table]) -> Logs:
    """Return the logs of stored rows in the order of the chain, to be decoded again without a node.

    Args:
        stored: Rows by table; missing tables count as empty.
    """
    parts = [
        dataset.logs_of(stored[dataset.table.name])
        for dataset in DATASETS.values()
        if dataset.logs_of and dataset.table.name in stored and len(stored[dataset.table.name])
    ]
    if "logs" in stored and len(stored["logs"]):
        parts.append(logs.logs_of(stored["logs"]))
    return sorted_logs(parts)
