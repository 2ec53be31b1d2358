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
    """Return equal-width ASCII rows as a column of strings; null if not valid."""
    return _fixed(pa.string(), rows, valid)


def raw(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    """Return rows of 32 bytes as a binary column; null if not valid."""
    return _fixed(pa.binary(), rows, valid)


def _fixed(kind: pa.DataType, rows: Bytes, valid: Mask | None) -> pa.Array:
    """Return a column of strings or binary values of one width, without copying rows if all are valid.

    Args:
        kind: Arrow's `string` or `binary`.
        rows: A value per row, of shape (values, width); those of null values too, which are not stored.
        valid: False for null values; None if there are none.
    """
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
    """Return Python integers as rows of 32 bytes, and a mask of those that are not None."""
    body = b"".join((value or 0).to_bytes(32, "big") for value in values)
    return np.frombuffer(body, np.uint8).reshape(len(values), 32), np.array([v is not None for v in values], np.bool_)


def constant(value: str | None, n: int) -> pa.Array:
    """Return a column of `n` equal strings or nulls."""
    return pa.repeat(pa.scalar(value, pa.string()), n)


def table(kind: Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return an Arrow table with the schema of `kind`, from columns by name.

    A `raw` column is a matrix of bytes, or a pair of a matrix and a mask of valid rows.
    """
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
    """Return 64-bit integers as a column that shares their memory.

    Arrow's own conversion would import NumPy's masked arrays.
    """
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def ints(values: npt.NDArray[Any]) -> pa.Array:
    """Return a column of 32-bit integers."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int32))])


def times(seconds: npt.NDArray[np.int64]) -> pa.Array:
    """Return Unix seconds as a column of UTC timestamps."""
    return longs(seconds * 1_000_000).view(pa.timestamp("us", tz="UTC"))


def hex_rows(rows: Bytes) -> Bytes:
    """Return rows of bytes as rows of `0x` text."""
    n, width = rows.shape
    text_rows = np.empty((n, 2 + 2 * width), np.uint8)
    text_rows[:, 0], text_rows[:, 1] = ord("0"), ord("x")
    text_rows[:, 2::2] = _HEX_DIGITS[rows >> 4]
    text_rows[:, 3::2] = _HEX_DIGITS[rows & 15]
    return text_rows


def bytes_of_hex(rows: Bytes) -> Bytes:
    """Return rows of lower-case hex digits, without `0x`, as rows of bytes; the digits are not checked."""
    digits = np.ascontiguousarray(rows)
    pairs = ((digits & 15) + (digits >> 6) * 9).view("<u2")
    return (pairs << 4 | pairs >> 8).astype(np.uint8)


def rows_of(array: pa.Array | pa.ChunkedArray, width: int) -> tuple[Bytes, Mask]:
    """Return a column of `width` bytes wide values as a matrix, and a mask of the rows that are not null.

    Rows of nulls are zeros.
    If there are no nulls, the matrix is the column's own memory and must not be written to.
    """
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    n = len(flat)
    if not flat.null_count:
        return _dense(flat, width), np.ones(n, np.bool_)
    valid = np.asarray(flat.is_valid())
    matrix = np.zeros((n, width), np.uint8)
    matrix[valid] = _dense(flat.drop_null(), width)
    return matrix, valid


def _dense(array: pa.Array, width: int) -> Bytes:
    """Return the bytes of an array without nulls as rows; fail if a value has another width."""
    if len(array) == 0:
        return np.zeros((0, width), np.uint8)
    _, offsets, body = array.buffers()
    wide = np.int64 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else np.int32
    first, last = np.frombuffer(offsets, wide)[[array.offset, array.offset + len(array)]]
    assert last - first == width * len(array), f"a value that is not {width} bytes wide"
    return np.frombuffer(body, np.uint8)[first:last].reshape(-1, width)
