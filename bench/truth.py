"""Recorded logs decoded by plain Python, and the product's stored rows, as comparable tuples.

Nothing is shared with the product: stored rows are read with a Delta and a Parquet library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
NOBODY = "0x" + "0" * 40


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One ERC-20 event: `kind` is transfer or approval, `one` and `other` its two accounts."""

    height: int
    log_index: int
    tx_index: int
    kind: str
    time_s: int
    tx_hash: str
    token: str
    party: str
    counterparty: str
    raw: int


def decoded(log: dict[str, Any]) -> Event | None:
    """Return a log of a node as an event; None for a log that is no transfer or approval of ERC-20."""
    kind = {TRANSFER: "transfer", APPROVAL: "approval"}.get(log["topics"][0] if log["topics"] else "")
    if kind is None or len(log["topics"]) != 3:
        return None
    first, second = ("0x" + topic[26:] for topic in log["topics"][1:])
    height, log_index, tx_index = (int(log[key], 16) for key in ("blockNumber", "logIndex", "transactionIndex"))
    return Event(
        height,
        log_index,
        tx_index,
        kind,
        int(log["blockTimestamp"], 16),
        log["transactionHash"],
        log["address"].lower(),
        first,
        second,
        int(log["data"], 16),
    )


def events(folder: Path, first: int, last: int) -> list[Event]:
    """Return the events of the recorded blocks `first` to `last`."""
    decoded_events = []
    with (folder / "logs.jsonl").open() as file:
        for height, line in enumerate(file):
            if first <= height <= last:
                decoded_events += [event for log in json.loads(line) if (event := decoded(log)) is not None]
    return decoded_events


@cache
def recorded_events(folder: Path, first: int, last: int) -> tuple[Event, ...]:
    """Return `events` from a cache."""
    return tuple(events(folder, first, last))


def digest(all_events: Iterable[Event]) -> str:
    """Return a hash of events that does not depend on their order; duplicates count."""
    total = hashlib.sha256()
    for event in sorted(all_events):
        total.update(repr(event).encode())
    return total.hexdigest()


def balances(all_events: Iterable[Event]) -> dict[tuple[str, str], int]:
    """Return balances by (account, token) from transfers, without the zero address."""
    raw_by_owner: dict[tuple[str, str], int] = {}
    for event in all_events:
        if event.kind == "transfer":
            raw_by_owner[event.party, event.token] = raw_by_owner.get((event.party, event.token), 0) - event.raw
            raw_by_owner[event.counterparty, event.token] = (
                raw_by_owner.get((event.counterparty, event.token), 0) + event.raw
            )
    return {key: raw for key, raw in raw_by_owner.items() if key[0] != NOBODY}


def allowances(all_events: Iterable[Event]) -> dict[tuple[str, str, str], int]:
    """Return the last approval of each (owner, token, spender)."""
    return {(e.party, e.token, e.counterparty): e.raw for e in sorted(all_events) if e.kind == "approval"}


# --- what the product stored -----------------------------------------------------------------------------------------


def live_files(data: Path, table: str) -> list[str]:
    """Return the files of a table's newest version; empty without the table."""
    from deltalake import DeltaTable

    folder = data / "lake" / table
    return sorted(DeltaTable(str(folder)).file_uris()) if (folder / "_delta_log").is_dir() else []


def rows(data: Path, table: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table as tuples of the named columns."""
    import pyarrow.parquet as pq

    for path in live_files(data, table):
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(columns=columns):
                yield from zip(*(part.column(name).to_pylist() for name in columns), strict=True)


def count(data: Path, table: str) -> int:
    """Return the number of rows of a table, from its files."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in live_files(data, table))


def stored_events(data: Path) -> list[Event]:
    """Return all rows of `transfers` and `approvals` as events."""
    key_columns = ["height", "log_index", "tx_index", "time", "tx_hash", "token"]
    stored = []
    for table, kind, parties in (
        ("transfers", "transfer", ["sender", "recipient"]),
        ("approvals", "approval", ["owner", "spender"]),
    ):
        for height, log, tx, time, tx_hash, token, party, counterparty, raw in rows(
            data, table, [*key_columns, *parties, "raw"]
        ):
            seconds = int(time.timestamp())
            stored.append(
                Event(height, log, tx, kind, seconds, tx_hash, token, party, counterparty, int.from_bytes(raw, "big"))
            )
    return stored


def stored_balances(data: Path) -> dict[tuple[str, str], int]:
    """Return the table `balances` by account and token; negative balances too."""
    stored = rows(data, "balances", ["account", "token", "raw", "short"])
    return {
        (account, token): int.from_bytes(raw, "big") * (-1 if short else 1) for account, token, raw, short in stored
    }


def stored_allowances(data: Path) -> dict[tuple[str, str, str], int]:
    """Return the table `allowances` by owner, token and spender."""
    stored = rows(data, "allowances", ["owner", "token", "spender", "raw"])
    return {(owner, token, spender): int.from_bytes(raw, "big") for owner, token, spender, raw in stored}
