"""Token transfers from logs: ERC-20, ERC-721, ERC-1155, deposits to and withdrawals from the wrapped native coin.

A row says all that its log said, so that `logs_of` gives the log back: what is stored can be decoded again without a
node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from adapters.evm import events
from adapters.evm.columns import bytes_of_hex, constant, hex_rows, ints, of_ints, rows_of, table, text
from adapters.evm.datasets.common import in_order, place
from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.events import Mask, address, is_address
from adapters.evm.logs import Bytes, Logs
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

TOPICS = (events.TRANSFER, events.TRANSFER_SINGLE, events.TRANSFER_BATCH, events.DEPOSIT, events.WITHDRAWAL)
MAX_ITEMS = 10_000


def decode(logs: Logs, chain: str, wrapped: str | None) -> tuple[pa.Table, Mask]:
    """Rows of `transfers`, and which logs they stand for; the others are for somebody else."""
    moved, single, batch = (logs.of(topic) for topic in TOPICS[:3])
    two = is_address(logs.topics[1]) & is_address(logs.topics[2])
    erc20 = moved & (logs.topic_count == 3) & (logs.data_size == 32) & two
    erc721 = moved & (logs.topic_count == 4) & (logs.data_size == 0) & two
    three = is_address(logs.topics[3]) & two & (logs.topic_count == 4)
    groups = [
        _erc20(logs, chain, erc20),
        _erc721(logs, chain, erc721),
        _single(logs, chain, single & three & (logs.data_size == 64)),
    ]
    done = erc20 | erc721 | (single & three & (logs.data_size == 64))
    for decoder, candidates in ((_loose, moved & (logs.topic_count < 3)), (_batch, batch & three)):
        for row in np.flatnonzero(candidates):
            rows = decoder(logs, chain, int(row))
            if rows is not None:
                groups.append(rows)
                done[row] = True
    if wrapped is not None:
        wraps, mask = _wraps(logs, chain, wrapped)
        groups += wraps
        done |= mask
    return in_order(groups, TRANSFERS.schema()), done


def _rows(logs: Logs, chain: str, standard: str, **columns: Any) -> pa.Table:
    n = len(logs)
    nothing = (np.zeros((n, 32), np.uint8), np.zeros(n, np.bool_))
    return table(TRANSFERS, {
        **place(logs, chain), "item": ints(np.zeros(n, np.int32)), "standard": constant(standard, n),
        "token": text(logs.address), "operator": constant(None, n), "token_id": nothing, "layout": constant(None, n),
        **columns,
    })  # fmt: skip


def _erc20(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    some = logs if mask.all() else logs.take(np.flatnonzero(mask))
    return _rows(
        some,
        chain,
        "erc20",
        sender=text(address(some.topics[1])),
        recipient=text(address(some.topics[2])),
        raw=some.word,
    )


def _erc721(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    some = logs.take(np.flatnonzero(mask))
    one = np.zeros((len(some), 32), np.uint8)
    one[:, 31] = 1
    return _rows(
        some, chain, "erc721", sender=text(address(some.topics[1])), recipient=text(address(some.topics[2])),
        token_id=bytes_of_hex(some.topics[3][:, 2:]), raw=one,
    )  # fmt: skip


def _parties(logs: Logs) -> dict[str, pa.Array]:
    operator, sender, recipient = (text(address(logs.topics[k])) for k in (1, 2, 3))
    return {"operator": operator, "sender": sender, "recipient": recipient}


def _single(logs: Logs, chain: str, mask: Mask) -> pa.Table:
    some = logs.take(np.flatnonzero(mask))
    words = _words([some.data(row) for row in range(len(some))], 2)
    return _rows(some, chain, "erc1155", **_parties(some), token_id=words[:, 0], raw=words[:, 1])


def _words(contents: list[bytes], count: int) -> Bytes:
    return np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), count, 32)


def _loose(logs: Logs, chain: str, row: int) -> pa.Table | None:
    """A Transfer whose parties are in the data, as some old tokens wrote it: three words in all, topics first."""
    indexed = int(logs.topic_count[row]) - 1
    words = b"".join(
        bytes_of_hex(logs.topics[k][row : row + 1, 2:]).tobytes() for k in range(1, indexed + 1)
    ) + logs.data(row)
    if len(words) != 96 or any(words[:12]) or any(words[32:44]):
        return None
    one = logs.take(np.array([row]))
    sender, recipient = (constant("0x" + words[start : start + 20].hex(), 1) for start in (12, 44))
    return _rows(
        one, chain, "erc20", sender=sender, recipient=recipient, raw=_words([words[64:]], 1)[:, 0],
        layout=constant(f"indexed{indexed}", 1),
    )  # fmt: skip


def _batch(logs: Logs, chain: str, row: int) -> pa.Table | None:
    pairs = _pairs(logs.data(row))
    if pairs is None:
        return None
    many = logs.take(np.full(len(pairs), row))
    ids, raws = (of_ints([pair[side] for pair in pairs])[0] for side in (0, 1))
    item = ints(np.arange(len(pairs)))
    return _rows(
        many,
        chain,
        "erc1155",
        **_parties(many),
        token_id=ids,
        raw=raws,
        item=item,
        layout=constant("batch", len(pairs)),
    )


def _pairs(data: bytes) -> list[tuple[int, int]] | None:
    """Ids and amounts of a TransferBatch in the one encoding that every compiler writes; None for any other data."""

    def word(k: int) -> int:
        return int.from_bytes(data[32 * k : 32 * k + 32], "big")

    if len(data) < 128 or len(data) % 64 or word(0) != 64:
        return None
    count = word(2)
    if (
        not 0 < count <= MAX_ITEMS
        or len(data) != 128 + 64 * count
        or word(1) != 96 + 32 * count
        or word(3 + count) != count
    ):
        return None
    return [(word(3 + k), word(4 + count + k)) for k in range(count)]


def _wraps(logs: Logs, chain: str, wrapped: str) -> tuple[list[pa.Table], Mask]:
    """Deposits and withdrawals of the wrapped native coin: WETH9 and its kin write no Transfer for them."""
    here = (logs.address == np.frombuffer(wrapped.encode(), np.uint8)).all(axis=1)
    here &= (logs.topic_count == 2) & (logs.data_size == 32) & is_address(logs.topics[1])
    groups, done = [], np.zeros(len(logs), np.bool_)
    for standard, topic in (("wrap", events.DEPOSIT), ("unwrap", events.WITHDRAWAL)):
        mask = here & logs.of(topic)
        some = logs.take(np.flatnonzero(mask))
        who, nobody = text(address(some.topics[1])), text(np.repeat(events.ZERO[None], len(some), 0))
        sender, recipient = (nobody, who) if standard == "wrap" else (who, nobody)
        groups.append(_rows(some, chain, standard, sender=sender, recipient=recipient, raw=some.word))
        done |= mask
    return groups, done


_TOPIC0 = {"erc20": events.TRANSFER, "erc721": events.TRANSFER, "wrap": events.DEPOSIT, "unwrap": events.WITHDRAWAL}


def logs_of(rows: pa.Table) -> Logs:
    """The logs that stored rows stand for: the inverse of `decode`, native transfers left out."""
    from adapters.evm.datasets import restore

    parts = []
    for (standard, layout), some in restore.groups(rows, "standard", "layout"):
        if standard == "erc1155":
            parts.append(restore.multi(some, batch=layout == "batch"))
        elif standard in _TOPIC0:
            parts.append(_log_of(some, standard, layout))
    return restore.sorted_logs(parts)


def _log_of(rows: pa.Table, standard: str, layout: str | None) -> Logs:
    from adapters.evm.datasets import restore

    logs = restore.start(rows, _TOPIC0[standard])
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
    "transfers", TRANSFERS, filtered_by="contract", history=ACCOUNT_TRANSFERS.name, restores=True, in_activity=True,
    by_account="logs", parties=("sender", "recipient", "operator"), topics=TOPICS, decode=decode, logs_of=logs_of,
)  # fmt: skip
