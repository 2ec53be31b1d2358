"""The recorded logs decoded by a few lines of plain Python that share nothing with the product, and what the product
stored, read with a Delta and a Parquet library and nothing of ours. Both as the same tuples, to be compared.
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
    one: str
    other: str
    raw: int


def decoded(log: dict[str, Any]) -> Event | None:
    """One log of a node as an event; None for any other log."""
    kind = {TRANSFER: "transfer", APPROVAL: "approval"}.get(log["topics"][0] if log["topics"] else "")
    if kind is None or len(log["topics"]) != 3:
        return None
    one, other = ("0x" + topic[26:] for topic in log["topics"][1:])
    height, log_index, tx_index = (int(log[key], 16) for key in ("blockNumber", "logIndex", "transactionIndex"))
    return Event(
        height,
        log_index,
        tx_index,
        kind,
        int(log["blockTimestamp"], 16),
        log["transactionHash"],
        log["address"].lower(),
        one,
        other,
        int(log["data"], 16),
    )


def events(folder: Path, first: int, last: int) -> list[Event]:
    """All events of some recorded blocks."""
    found = []
    with (folder / "logs.jsonl").open() as file:
        for height, line in enumerate(file):
            if first <= height <= last:
                found += [event for log in json.loads(line) if (event := decoded(log)) is not None]
    return found


@cache
def recorded_events(folder: Path, first: int, last: int) -> tuple[Event, ...]:
    """As `events`, kept."""
    return tuple(events(folder, first, last))


def digest(found: Iterable[Event]) -> str:
    """A hash of events in the order of the chain: equal where the rows are, and no other way."""
    total = hashlib.sha256()
    for event in sorted(found):
        total.update(repr(event).encode())
    return total.hexdigest()


def balances(found: Iterable[Event]) -> dict[tuple[str, str], int]:
    """What each (account, token) holds by its transfers; the zero address, which mints and burns, holds nothing."""
    held: dict[tuple[str, str], int] = {}
    for event in found:
        if event.kind == "transfer":
            held[event.one, event.token] = held.get((event.one, event.token), 0) - event.raw
            held[event.other, event.token] = held.get((event.other, event.token), 0) + event.raw
    return {key: raw for key, raw in held.items() if key[0] != NOBODY}


def allowances(found: Iterable[Event]) -> dict[tuple[str, str, str], int]:
    """The last approval of each (owner, token, spender)."""
    return {(e.one, e.token, e.other): e.raw for e in sorted(found) if e.kind == "approval"}


# --- what the product stored -----------------------------------------------------------------------------------------


def live_files(data: Path, table: str) -> list[str]:
    """The files that a table's newest version names."""
    from deltalake import DeltaTable

    where = data / "lake" / table
    return sorted(DeltaTable(str(where)).file_uris()) if (where / "_delta_log").is_dir() else []


def rows(data: Path, table: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as tuples of the named columns."""
    import pyarrow.parquet as pq

    for path in live_files(data, table):
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(columns=columns):
                yield from zip(*(part.column(name).to_pylist() for name in columns), strict=True)


def count(data: Path, table: str) -> int:
    """How many rows a table has, by its files."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in live_files(data, table))


def stored_events(data: Path) -> list[Event]:
    """Everything in `transfers` and `approvals`."""
    place = ["height", "log_index", "tx_index", "time", "tx_hash", "token"]
    found = []
    for table, kind, parties in (
        ("transfers", "transfer", ["sender", "recipient"]),
        ("approvals", "approval", ["owner", "spender"]),
    ):
        for height, log, tx, time, tx_hash, token, one, other, raw in rows(data, table, [*place, *parties, "raw"]):
            seconds = int(time.timestamp())
            found.append(Event(height, log, tx, kind, seconds, tx_hash, token, one, other, int.from_bytes(raw, "big")))
    return found


def stored_balances(data: Path) -> dict[tuple[str, str], int]:
    """The table `balances`."""
    found = rows(data, "balances", ["account", "token", "raw", "short"])
    return {(who, token): int.from_bytes(raw, "big") * (-1 if short else 1) for who, token, raw, short in found}


def stored_allowances(data: Path) -> dict[tuple[str, str, str], int]:
    """The table `allowances`."""
    found = rows(data, "allowances", ["owner", "token", "spender", "raw"])
    return {(owner, token, spender): int.from_bytes(raw, "big") for owner, token, spender, raw in found}
