"""Token transfers from logs: ERC-20, ERC-721, ERC-1155, and deposits to the wrapped native coin.

A row keeps everything that its log contains, so that `logs_of` can rebuild the log and decode it again without a node.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm import events
from chainfolio.adapters.evm.columns import bytes_of_hex, constant, hex_rows, ints, of_ints, rows_of, table, text
from chainfolio.adapters.evm.datasets import restore
from chainfolio.adapters.evm.datasets.common import log_columns, merge_sorted, null_words
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.adapters.evm.events import Mask, address, is_address
from chainfolio.adapters.evm.logs import Bytes, Logs
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

TOPICS = (events.TRANSFER, events.TRANSFER_SINGLE, events.TRANSFER_BATCH, events.DEPOSIT, events.WITHDRAWAL)
MAX_ITEMS = 10_000  # of a batch
Column: TypeAlias = pa.Array | Bytes


def decode(logs: Logs, chain: str, wrapped: str | None) -> tuple[pa.Table, Mask]:
    """Return rows of `transfers` and a mask of the logs that they are made from.

    Standards are recognised by topics and size of data; other shapes, and batches of more than MAX_ITEMS tokens, stay
    undecoded.

    Args:
        logs: Logs of any events.
        chain: The key of the chain.
        wrapped: The contract of the wrapped native coin; None if the chain has none.
    """
    transfer, single, batch = (logs.of(topic) for topic in TOPICS[:3])
    has_two_parties = is_address(logs.topics[1]) & is_address(logs.topics[2])
    has_three_parties = is_address(logs.topics[3]) & has_two_parties & (logs.topic_count == 4)
    erc20 = transfer & (logs.topic_count == 3) & (logs.data_size == 32) & has_two_parties
    erc721 = transfer & (logs.topic_count == 4) & (logs.data_size == 0) & has_two_parties
    erc1155 = single & has_three_parties & (logs.data_size == 64)
    groups = [_erc20(logs, chain, erc20), _erc721(logs, chain, erc721), _single(logs, chain, erc1155)]
    decoded = erc20 | erc721 | erc1155
    for decoder, candidates in (
        (_unindexed, transfer & (logs.topic_count < 3)),
        (_batch, batch & has_three_parties),
    ):
        for row in np.flatnonzero(candidates):
            rows = decoder(logs, chain, int(row))
            if rows is not None:
                groups.append(rows)
                decoded[row] = True
    if wrapped is not None:
        wraps, mask = _wraps(logs, chain, wrapped)
        groups += wraps
        decoded |= mask
    return merge_sorted(groups, TRANSFERS.schema()), decoded


def _rows(logs: Logs, chain: str, standard: str, **columns: Column) -> pa.Table:
    """Return rows of transfers, whose parties and `raw` are in `columns`; these also replace defaults.

    By default, `item` is 0, and operator, token id and layout are null.
    """
    n = len(logs)
    return table(
        TRANSFERS,
        {
            **log_columns(logs, chain),
            "item": ints(np.zeros(n, np.int32)),
            "standard": constant(standard, n),
            "token": text(logs.address),
            "operator": constant(None, n),
            "token_id": null_words(n),
            "layout": constant(None, n),
            **columns,
        },
    )


def _erc20(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    """Return the rows of ERC-20 transfers: the logs of `mask`."""
    if not mask.all():
        logs = logs.take(np.flatnonzero(mask))
    return _rows(
        logs,
        chain,
        "erc20",
        sender=text(address(logs.topics[1])),
        recipient=text(address(logs.topics[2])),
        raw=logs.word,
    )


def _erc721(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    """Return the rows of ERC-721 transfers, with an amount of 1: the logs of `mask`."""
    logs = logs.take(np.flatnonzero(mask))
    amounts = np.zeros((len(logs), 32), np.uint8)
    amounts[:, 31] = 1
    return _rows(
        logs,
        chain,
        "erc721",
        sender=text(address(logs.topics[1])),
        recipient=text(address(logs.topics[2])),
        token_id=bytes_of_hex(logs.topics[3][:, 2:]),
        raw=amounts,
    )


def _parties(logs: Logs) -> dict[str, pa.Array]:
    operator, sender, recipient = (text(address(logs.topics[k])) for k in (1, 2, 3))
    return {"operator": operator, "sender": sender, "recipient": recipient}


def _single(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    logs = logs.take(np.flatnonzero(mask))
    pairs = _split_words([logs.data(row) for row in range(len(logs))], 2)
    return _rows(logs, chain, "erc1155", **_parties(logs), token_id=pairs[:, 0], raw=pairs[:, 1])


def _split_words(contents: list[bytes], count: int) -> Bytes:
    return np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), count, 32)


def _unindexed(logs: Logs, chain: str, row: int) -> pa.Table | None:
    """Return the row of an old token's Transfer with parties in its data; None for any other log.

    Topics and data must have three words together.
    """
    indexed = int(logs.topic_count[row]) - 1
    fields = b"".join(
        bytes_of_hex(logs.topics[k][row : row + 1, 2:]).tobytes() for k in range(1, indexed + 1)
    ) + logs.data(row)
    if len(fields) != 96 or any(fields[:12]) or any(fields[32:44]):
        return None
    sender, recipient = (constant("0x" + fields[start : start + 20].hex(), 1) for start in (12, 44))
    return _rows(
        logs.take(np.array([row])),
        chain,
        "erc20",
        sender=sender,
        recipient=recipient,
        raw=_split_words([fields[64:]], 1)[:, 0],
        layout=constant(f"indexed{indexed}", 1),
    )


def _batch(logs: Logs, chain: str, row: int) -> pa.Table | None:
    """Return the rows of one ERC-1155 batch; None if its data is not two lists of equal length."""
    pairs = _pairs(logs.data(row))
    if pairs is None:
        return None
    items = logs.take(np.full(len(pairs), row))
    ids, raws = (of_ints([pair[side] for pair in pairs])[0] for side in (0, 1))
    item = ints(np.arange(len(pairs)))
    return _rows(
        items,
        chain,
        "erc1155",
        **_parties(items),
        token_id=ids,
        raw=raws,
        item=item,
        layout=constant("batch", len(pairs)),
    )


def _pairs(data: bytes) -> list[tuple[int, int]] | None:
    """Return ids and amounts of a TransferBatch; None if empty, over MAX_ITEMS, or unusually encoded."""

    def word_at(k: int) -> int:
        return int.from_bytes(data[32 * k : 32 * k + 32], "big")

    if len(data) < 128 or len(data) % 64 or word_at(0) != 64:
        return None
    count = word_at(2)
    if (
        not 0 < count <= MAX_ITEMS
        or len(data) != 128 + 64 * count
        or word_at(1) != 96 + 32 * count
        or word_at(3 + count) != count
    ):
        return None
    return [(word_at(3 + k), word_at(4 + count + k)) for k in range(count)]


def _wraps(logs: Logs, chain: str, wrapped: str) -> tuple[list[pa.Table], Mask]:
    """Return rows of wrapped coins' deposits and withdrawals (WETH9 emits no Transfer), and their mask."""
    candidates = (logs.address == np.frombuffer(wrapped.encode(), np.uint8)).all(axis=1)
    candidates &= (logs.topic_count == 2) & (logs.data_size == 32) & is_address(logs.topics[1])
    groups, decoded = [], np.zeros(len(logs), np.bool_)
    for standard, topic in (("wrap", events.DEPOSIT), ("unwrap", events.WITHDRAWAL)):
        mask = candidates & logs.of(topic)
        wraps = logs.take(np.flatnonzero(mask))
        account, zero = text(address(wraps.topics[1])), text(np.repeat(events.ZERO[None], len(wraps), 0))
        sender, recipient = (zero, account) if standard == "wrap" else (account, zero)
        groups.append(_rows(wraps, chain, standard, sender=sender, recipient=recipient, raw=wraps.word))
        decoded |= mask
    return groups, decoded


_TOPIC0 = {"erc20": events.TRANSFER, "erc721": events.TRANSFER, "wrap": events.DEPOSIT, "unwrap": events.WITHDRAWAL}


def logs_of(rows: pa.Table) -> Logs:
    """Rebuild the logs of stored rows, in the order of the chain: the inverse of `decode`.

    They have no block hashes. Rows of native coins are skipped.
    """
    parts = []
    for (standard, layout), group in restore.groups(rows, "standard", "layout"):
        if standard == "erc1155":
            parts.append(restore.multi(group, batch=layout == "batch"))
        elif standard in _TOPIC0:
            parts.append(_log_of(group, standard, layout))
    return restore.sorted_logs(parts)


def _log_of(rows: pa.Table, standard: str, layout: str | None) -> Logs:
    """Rebuild the logs of rows of one standard and layout."""
    logs = restore.logs_without_data(rows, _TOPIC0[standard])
    sender, recipient = (events.topic_of(rows_of(rows[name], 42)[0]) for name in ("sender", "recipient"))
    amounts = rows_of(rows["raw"], 32)[0]
    if layout is not None:
        restore.into_data(logs, [sender, recipient], amounts, int(layout.removeprefix("indexed")))
        return logs
    parties = {"wrap": [recipient], "unwrap": [sender]}.get(standard, [sender, recipient])
    for k, party in enumerate(parties, 1):
        restore.put_topic(logs, k, party)
    if standard == "erc721":
        restore.put_topic(logs, 3, hex_rows(rows_of(rows["token_id"], 32)[0]))
    else:
        logs.data_size[:], logs.word = 32, amounts
    return logs


DATASET = EvmDataset(
    "transfers",
    TRANSFERS,
    filtered_by="contract",
    history=ACCOUNT_TRANSFERS.name,
    is_restorable=True,
    in_activity=True,
    by_account="logs",
    account_columns=("sender", "recipient", "operator"),
    topics=TOPICS,
    decode=decode,
    logs_of=logs_of,
)
