"""What is asked of Arrow columns on every write, by NumPy: to load Arrow's own functions takes longer than all that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: Any) -> npt.NDArray[np.int64] | None:
    """A column without nulls as integers, a time as its microseconds; None where it is of another kind."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if flat.null_count or not (pa.types.is_integer(flat.type) or pa.types.is_timestamp(flat.type)):
        return None
    if pa.types.is_timestamp(flat.type):
        flat = flat.view(pa.int64())
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.int64)


def limits(values: Any) -> tuple[int, int]:
    """The least and the greatest of a column of integers that has some, none of them null."""
    plain = numbers(values)
    assert plain is not None, "integers, none of them null"
    return int(plain.min()), int(plain.max())


def are_wide(values: Any, width: int) -> bool:
    """Whether each value of a binary column, but for nulls, has so many bytes."""
    return all(bool((_sizes(part)[_known(part)] == width).all()) for part in _chunks(values))


def is_one(values: Any) -> bool:
    """Whether a column of strings without nulls says the same in every row."""
    first = None
    for part in _chunks(values):
        if len(part) == 0:
            continue
        first = part[0].as_py() if first is None else first
        own = first.encode()
        _, _, body = part.buffers()
        start, end = _offsets(part)[[0, -1]]
        if (_sizes(part) != len(own)).any() or not body[start:end].equals(pa.py_buffer(own * len(part))):
            return False
    return True


def _chunks(values: Any) -> Iterator[pa.Array]:
    return iter(values.chunks) if isinstance(values, pa.ChunkedArray) else iter((values,))


def _offsets(part: pa.Array) -> npt.NDArray[np.int32]:
    assert part.type in (pa.string(), pa.binary()), f"{part.type} has other offsets"
    _, offsets, _ = part.buffers()
    return np.frombuffer(offsets, np.int32)[part.offset : part.offset + len(part) + 1]


def _sizes(part: pa.Array) -> npt.NDArray[np.int32]:
    return np.diff(_offsets(part)) if len(part) else np.zeros(0, np.int32)


def _known(part: pa.Array) -> npt.NDArray[np.bool_]:
    if part.null_count == 0:
        return np.ones(len(part), np.bool_)
    bits = np.unpackbits(np.frombuffer(part.buffers()[0], np.uint8), bitorder="little")
    return bits[part.offset : part.offset + len(part)].astype(np.bool_)
