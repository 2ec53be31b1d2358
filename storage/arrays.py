"""Check Arrow columns on every write, in NumPy: importing Arrow's compute functions takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Column: TypeAlias = pa.Array | pa.ChunkedArray


def numbers(values: Column) -> npt.NDArray[np.int64] | None:
    """Return a column of integers, or of times in their own unit, as int64.

    None for other types and for columns with nulls.
    """
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if flat.null_count or not (pa.types.is_integer(flat.type) or pa.types.is_timestamp(flat.type)):
        return None
    if pa.types.is_timestamp(flat.type):
        flat = flat.view(pa.int64())
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.int64)


def limits(values: Column) -> tuple[int, int]:
    """Return minimum and maximum of an integer column that is not empty and has no nulls."""
    plain = numbers(values)
    assert plain is not None, "integers, none of them null"
    return int(plain.min()), int(plain.max())


def have_width(values: Column, width: int) -> bool:
    """Return True if each value of a binary column, except nulls, has `width` bytes."""
    return all(bool((_sizes(part)[_valid(part)] == width).all()) for part in _chunks(values))


def is_constant(values: Column) -> bool:
    """Return True if a string column without nulls has one value in all rows; also if it has no rows."""
    first = None
    for part in _chunks(values):
        if len(part) == 0:
            continue
        first = part[0].as_py() if first is None else first
        encoded = first.encode()
        _, _, body = part.buffers()
        start, end = _offsets(part)[[0, -1]]
        if (_sizes(part) != len(encoded)).any() or not body[start:end].equals(pa.py_buffer(encoded * len(part))):
            return False
    return True


def _chunks(values: Column) -> Iterator[pa.Array]:
    return iter(values.chunks) if isinstance(values, pa.ChunkedArray) else iter((values,))


def _offsets(part: pa.Array) -> npt.NDArray[np.int32]:
    assert part.type in (pa.string(), pa.binary()), f"{part.type} has other offsets"
    _, offsets, _ = part.buffers()
    return np.frombuffer(offsets, np.int32)[part.offset : part.offset + len(part) + 1]


def _sizes(part: pa.Array) -> npt.NDArray[np.int32]:
    return np.diff(_offsets(part)) if len(part) else np.zeros(0, np.int32)


def _valid(part: pa.Array) -> npt.NDArray[np.bool_]:
    if part.null_count == 0:
        return np.ones(len(part), np.bool_)
    bits = np.unpackbits(np.frombuffer(part.buffers()[0], np.uint8), bitorder="little")
    return bits[part.offset : part.offset + len(part)].astype(np.bool_)
