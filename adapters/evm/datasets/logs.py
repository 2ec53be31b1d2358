"""Raw logs as rows, for logs that no other dataset decodes, and logs rebuilt from these rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.columns import rows_of, table, text
from chainfolio.adapters.evm.datasets import restore
from chainfolio.adapters.evm.datasets.common import log_columns
from chainfolio.adapters.evm.logs import Logs
from chainfolio.tables import LOGS


def rows_of_logs(logs: Logs, chain: str) -> pa.Table:
    """Return rows of `logs`."""
    topics = {f"topic{k}": text(logs.topics[k], logs.topic_count > k) for k in range(4)}
    contents = pa.array([logs.data(row) for row in range(len(logs))], pa.binary())
    return table(LOGS, {**log_columns(logs, chain), "address": text(logs.address), **topics, "data": contents})


def logs_of(rows: pa.Table) -> Logs:
    """Rebuild the logs of stored rows; they have no block hash."""
    logs = restore.logs_without_data(
        rows.rename_columns([{"address": "token"}.get(name, name) for name in rows.column_names]), "0x" + "0" * 64
    )
    columns = [rows_of(rows[f"topic{k}"], 66) for k in range(4)]
    logs.topics = [topic for topic, _ in columns]
    logs.topic_count = np.sum([valid for _, valid in columns], axis=0)
    for row, data in enumerate(rows["data"].to_pylist()):
        logs.data_size[row] = len(data)
        if len(data) == 32:
            logs.word[row] = np.frombuffer(data, np.uint8)
        elif data:
            logs.other[row] = data
    return logs
