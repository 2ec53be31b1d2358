"""Approvals from logs: ERC-20 amounts, single ERC-721 tokens, operators of ERC-721 and ERC-1155."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm import events
from chainfolio.adapters.evm.columns import bytes_of_hex, constant, hex_rows, rows_of, table, text
from chainfolio.adapters.evm.datasets import restore
from chainfolio.adapters.evm.datasets.common import log_columns, merge_sorted, null_words
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.adapters.evm.events import Mask, address, is_address
from chainfolio.adapters.evm.logs import Bytes, Logs
from chainfolio.tables import ACCOUNT_APPROVALS, APPROVALS

TOPICS = (events.APPROVAL, events.APPROVAL_FOR_ALL)


def decode(logs: Logs, chain: str, wrapped: str | None) -> tuple[pa.Table, Mask]:
    """Return rows of `approvals` and a mask of the logs that they are made from. `wrapped` is not used.

    Standards are recognised by topics and size of data; other shapes stay undecoded.
    """
    has_two_parties = is_address(logs.topics[1]) & is_address(logs.topics[2])
    approval, for_all = (logs.of(topic) for topic in TOPICS)
    erc20 = approval & has_two_parties & (logs.topic_count == 3) & (logs.data_size == 32)
    erc721 = approval & has_two_parties & (logs.topic_count == 4) & (logs.data_size == 0)
    operator = for_all & has_two_parties & (logs.topic_count == 3) & (logs.data_size == 32)
    operator &= (logs.word[:, :31] == 0).all(axis=1) & (logs.word[:, 31] <= 1)
    groups = []
    for standard, mask in (("erc20", erc20), ("erc721", erc721), ("operator", operator)):
        if not mask.any():
            continue
        approvals = logs.take(np.flatnonzero(mask))
        groups.append(_rows(approvals, chain, standard, **_allowance(approvals, standard)))
    return merge_sorted(groups, APPROVALS.schema()), erc20 | erc721 | operator


def _allowance(logs: Logs, standard: str) -> dict[str, pa.Array | Bytes]:
    """Return the column that says what is approved: an amount, a token id, or all tokens."""
    if standard == "erc20":
        return {"raw": logs.word}
    if standard == "erc721":
        return {"token_id": bytes_of_hex(logs.topics[3][:, 2:])}
    return {"approved": pa.array(logs.word[:, 31] == 1)}


def _rows(logs: Logs, chain: str, standard: str, **columns: pa.Array | Bytes) -> pa.Table:
    """Return rows of approvals with owner and spender of the topics.

    Args:
        columns: Columns that replace the defaults: `token_id`, `raw` and `approved` are null by default.
    """
    n = len(logs)
    return table(
        APPROVALS,
        {
            **log_columns(logs, chain),
            "standard": constant(standard, n),
            "token": text(logs.address),
            "owner": text(address(logs.topics[1])),
            "spender": text(address(logs.topics[2])),
            "token_id": null_words(n),
            "raw": null_words(n),
            "approved": pa.nulls(n, pa.bool_()),
            **columns,
        },
    )


def logs_of(rows: pa.Table) -> Logs:
    """Rebuild the logs of stored rows, in the order of the chain: the inverse of `decode`.

    They have no block hashes.
    """
    parts = []
    for (standard,), group in restore.groups(rows, "standard"):
        logs = restore.logs_without_data(group, events.APPROVAL_FOR_ALL if standard == "operator" else events.APPROVAL)
        for k, name in enumerate(("owner", "spender"), 1):
            restore.put_topic(logs, k, events.topic_of(rows_of(group[name], 42)[0]))
        if standard == "erc721":
            restore.put_topic(logs, 3, hex_rows(rows_of(group["token_id"], 32)[0]))
            parts.append(logs)
            continue
        logs.data_size[:] = 32
        if standard == "operator":
            logs.word[:, 31] = group["approved"].combine_chunks().cast(pa.uint8()).to_numpy()
        else:
            logs.word = rows_of(group["raw"], 32)[0]
        parts.append(logs)
    return restore.sorted_logs(parts)


DATASET = EvmDataset(
    "approvals",
    APPROVALS,
    filtered_by="contract",
    history=ACCOUNT_APPROVALS.name,
    is_restorable=True,
    in_activity=True,
    by_account="logs",
    account_columns=("owner", "spender"),
    topics=TOPICS,
    decode=decode,
    logs_of=logs_of,
)
