"""NumPy byte matrices to Arrow columns and back, without a Python object per value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainfolio.table import Table

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def text(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    """Equal-width ASCII rows as strings; null where not valid."""
    return _fixed(pa.string(), rows, valid)


def raw(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    """Rows of 32 bytes as binary; null where not valid."""
    return _fixed(pa.binary(), rows, valid)


def _fixed(kind: pa.DataType, rows: Bytes, valid: Mask | None) -> pa.Array:
    n, width = rows.shape
    if valid is not None and not valid.all():
        sizes = np.where(valid, width, 0)
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        body = np.ascontiguousarray(rows[valid])
        return pa.Array.from_buffers(kind, n, [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(body)])
    offsets = np.arange(0, (n + 1) * width, width or 1, dtype=np.int32)[: n + 1]
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))])


def _bitmap(valid: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def of_ints(values: Sequence[int | None]) -> tuple[Bytes, Mask]:
    """Python integers as rows of 32 bytes, with which of them are known."""
    body = b"".join((value or 0).to_bytes(32, "big") for value in values)
    return np.frombuffer(body, np.uint8).reshape(len(values), 32), np.array([v is not None for v in values], np.bool_)


def constant(value: str | None, n: int) -> pa.Array:
    """The same string, or null, `n` times."""
    return pa.repeat(pa.scalar(value, pa.string()), n)


def table(kind: Table, columns: Mapping[str, Any]) -> pa.Table:
    """An Arrow table in the table's own schema from columns by name; a `raw` column is a matrix or (matrix, mask)."""
    arrays: list[pa.Array] = []
    for column in kind.columns:
        value = columns[column.name]
        if column.type == "raw":
            rows, valid = value if isinstance(value, tuple) else (value, None)
            arrays.append(raw(rows, valid))
        else:
            arrays.append(value)
    schema = kind.schema()
    return pa.Table.from_arrays(
        [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )


def longs(values: npt.NDArray[np.int64]) -> pa.Array:
    """64-bit integers as they lie there: Arrow's own way loads NumPy's masked arrays to look whether these are such."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def ints(values: npt.NDArray[Any]) -> pa.Array:
    """32-bit integers."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int32))])


def times(seconds: npt.NDArray[np.int64]) -> pa.Array:
    """Unix seconds as UTC timestamps."""
    return longs(seconds * 1_000_000).view(pa.timestamp("us", tz="UTC"))


def hex_rows(rows: Bytes) -> Bytes:
    """Rows of bytes as rows of `0x` text."""
    n, width = rows.shape
    out = np.empty((n, 2 + 2 * width), np.uint8)
    out[:, 0], out[:, 1] = ord("0"), ord("x")
    out[:, 2::2] = _HEX_DIGITS[rows >> 4]
    out[:, 3::2] = _HEX_DIGITS[rows & 15]
    return out


def bytes_of_hex(rows: Bytes) -> Bytes:
    """Rows of hex digits (no `0x`, lower case, known to be ones) as rows of bytes."""
    digits = np.ascontiguousarray(rows)
    pairs = ((digits & 15) + (digits >> 6) * 9).view("<u2")
    return (pairs << 4 | pairs >> 8).astype(np.uint8)


def rows_of(array: pa.Array | pa.ChunkedArray, width: int) -> tuple[Bytes, Mask]:
    """A string or binary column whose values are `width` bytes wide, back as a matrix with which rows are not null.

    Where none is null the matrix is the column's own memory, not to be written to.
    """
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    n = len(flat)
    if not flat.null_count:
        return _dense(flat, width), np.ones(n, np.bool_)
    valid = np.asarray(flat.is_valid())
    out = np.zeros((n, width), np.uint8)
    out[valid] = _dense(flat.drop_null(), width)
    return out, valid


def _dense(array: pa.Array, width: int) -> Bytes:
    if len(array) == 0:
        return np.zeros((0, width), np.uint8)
    _, offsets, body = array.buffers()
    wide = np.int64 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else np.int32
    first, last = np.frombuffer(offsets, wide)[[array.offset, array.offset + len(array)]]
    assert last - first == width * len(array), f"a value that is not {width} bytes wide"
    return np.frombuffer(body, np.uint8)[first:last].reshape(-1, width)
