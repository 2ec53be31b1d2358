"""Rows of unfinalised blocks, decoded once: a new block costs the decoding of its rows only."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

MAX_BYTES: Final = 96 * 2**20  # of the encoded rows of all tables; what exceeds it is decoded at each read
MAX_CHUNKS: Final = 32

Streams = Sequence[tuple[int, bytes]]  # by ascending height


@dataclass(frozen=True, slots=True)
class _TableRows:
    streams: Streams
    ends: Sequence[int]  # number of rows up to the end of each stream
    rows: pl.DataFrame
    size: int  # bytes of the streams


class DecodedRows:
    """The last decoded rows of each table. Safe to use from several threads.

    A stream is compared with the one that was decoded, byte by byte: a block that a reorganisation replaced is decoded
    again.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tables: dict[Hashable, _TableRows] = {}
        self._lock = threading.Lock()

    @property
    def byte_count(self) -> int:
        """Bytes of the encoded rows that are kept."""
        with self._lock:
            return sum(each.size for each in self._tables.values())

    def of(
        self, table: Hashable, streams: Streams, decode: Callable[[Sequence[bytes]], tuple[pl.DataFrame, list[int]]]
    ) -> pl.DataFrame | None:
        """Return the rows of streams in their order; None without streams.

        Streams that were decoded before are taken from memory, and the rows stored there if there is room.

        Args:
            table: The name under which they are kept.
            decode: Returns the rows of streams in one frame, and the number of rows of each stream. Polars takes longer
                to make a frame than to fill it with the rows of a hundred blocks.
        """
        with self._lock:
            before = self._tables.get(table)
        kept = 0
        ends: list[int] = []
        frames: list[pl.DataFrame] = []
        if before is not None and streams:
            start = bisect_left(before.streams, streams[0][0], key=lambda each: each[0])
            kept = _common(before.streams[start:], streams)
            if kept:
                first = before.ends[start - 1] if start else 0
                ends = [end - first for end in before.ends[start : start + kept]]
                frames.append(before.rows.slice(first, ends[-1]))
        if kept < len(streams):
            frame, counts = decode([stream for _, stream in streams[kept:]])
            ends += accumulate(counts[1:], initial=(ends[-1] if ends else 0) + counts[0])
            frames.append(frame)
        if not frames:
            return None
        rows = _concatenate(frames)
        is_longer = before is None or len(streams) >= len(before.streams) or kept < len(streams)
        if is_longer:
            self._keep(table, _TableRows(streams, ends, rows, sum(len(stream) for _, stream in streams)))
        return rows

    def _keep(self, table: Hashable, decoded: _TableRows) -> None:
        """Replace the rows of a table, or drop them if there is no room."""
        with self._lock:
            self._tables.pop(table, None)
            if decoded.size + sum(each.size for each in self._tables.values()) <= self._max_bytes:
                self._tables[table] = decoded


def _common(before: Streams, streams: Streams) -> int:
    """Return how many streams are the same from the start."""
    count = 0
    for old, new in zip(before, streams, strict=False):
        if old != new:
            break
        count += 1
    return count


def _concatenate(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    rows = pl.concat(frames, rechunk=False) if len(frames) > 1 else frames[0]
    return rows.rechunk() if rows.n_chunks() > MAX_CHUNKS else rows
