"""Approvals from logs: ERC-20 amounts, single ERC-721 tokens, operators of ERC-721 and ERC-1155."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from adapters.evm import events
from adapters.evm.columns import bytes_of_hex, constant, hex_rows, rows_of, table, text
from adapters.evm.datasets.common import in_order, place
from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.events import Mask, address, is_address
from adapters.evm.logs import Logs
from chainfolio.tables import ACCOUNT_APPROVALS, APPROVALS

TOPICS = (events.APPROVAL, events.APPROVAL_FOR_ALL)


def decode(logs: Logs, chain: str, wrapped: str | None) -> tuple[pa.Table, Mask]:
    """Rows of `approvals`, and which logs they stand for."""
    two = is_address(logs.topics[1]) & is_address(logs.topics[2])
    approval, for_all = (logs.of(topic) for topic in TOPICS)
    erc20 = approval & two & (logs.topic_count == 3) & (logs.data_size == 32)
    erc721 = approval & two & (logs.topic_count == 4) & (logs.data_size == 0)
    operator = for_all & two & (logs.topic_count == 3) & (logs.data_size == 32)
    operator &= (logs.word[:, :31] == 0).all(axis=1) & (logs.word[:, 31] <= 1)
    groups = []
    for standard, mask in (("erc20", erc20), ("erc721", erc721), ("operator", operator)):
        if not mask.any():
            continue
        some = logs.take(np.flatnonzero(mask))
        groups.append(_rows(some, chain, standard, **_allowed(some, standard)))
    return in_order(groups, APPROVALS.schema()), erc20 | erc721 | operator


def _allowed(logs: Logs, standard: str) -> dict[str, Any]:
    """What is allowed: an amount, one token, or all of them."""
    if standard == "erc20":
        return {"raw": logs.word}
    if standard == "erc721":
        return {"token_id": bytes_of_hex(logs.topics[3][:, 2:])}
    return {"approved": pa.array(logs.word[:, 31] == 1)}


def _rows(logs: Logs, chain: str, standard: str, **columns: Any) -> pa.Table:
    n = len(logs)
    nothing = (np.zeros((n, 32), np.uint8), np.zeros(n, np.bool_))
    return table(APPROVALS, {
        **place(logs, chain), "standard": constant(standard, n), "token": text(logs.address),
        "owner": text(address(logs.topics[1])), "spender": text(address(logs.topics[2])),
        "token_id": nothing, "raw": nothing, "approved": pa.nulls(n, pa.bool_()), **columns,
    })  # fmt: skip


def logs_of(rows: pa.Table) -> Logs:
    """The logs that stored rows stand for: the inverse of `decode`."""
    from adapters.evm.datasets import restore

    parts = []
    for (standard,), some in restore.groups(rows, "standard"):
        logs = restore.start(some, events.APPROVAL_FOR_ALL if standard == "operator" else events.APPROVAL)
        for k, name in enumerate(("owner", "spender"), 1):
            restore.put_topic(logs, k, events.topic_of(rows_of(some[name], 42)[0]))
        if standard == "erc721":
            restore.put_topic(logs, 3, hex_rows(rows_of(some["token_id"], 32)[0]))
            parts.append(logs)
            continue
        logs.data_size[:] = 32
        if standard == "operator":
            logs.word[:, 31] = some["approved"].combine_chunks().cast(pa.uint8()).to_numpy()
        else:
            logs.word = rows_of(some["raw"], 32)[0]
        parts.append(logs)
    return restore.sorted_logs(parts)


DATASET = EvmDataset(
    "approvals", APPROVALS, filtered_by="contract", history=ACCOUNT_APPROVALS.name, restores=True, in_activity=True,
    by_account="logs", parties=("owner", "spender"), topics=TOPICS, decode=decode, logs_of=logs_of,
)  # fmt: skip
