"""Write results of SQL in parts, as JSON, CSV, Arrow or Parquet, with exact numbers."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from chainfolio.printable import spreadsheet_text
from chainfolio.storage.sql_task import Format, ResultColumn

if TYPE_CHECKING:
    import pyarrow as pa

Send = Callable[[bytes], None]
Rows = Sequence[tuple[Any, ...]]
MAX_JSON_INTEGER: Final = 2**53
DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# Types whose values Arrow has exactly. HUGEINT and others are text: no type of Arrow has all of their values.
ARROW_TYPES: Final = {
    "BOOLEAN": "bool",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BLOB": "binary",
    "DATE": "date32",
}
MOMENTS: Final = {"TIMESTAMP": None, "TIMESTAMP WITH TIME ZONE": "UTC"}


# Types whose values DuckDB changes for Python: a month is 30 days there, a nanosecond is lost.
INEXACT: Final = re.compile(r"\b(INTERVAL|TIMESTAMP_NS|TIME_NS)\b")
QUOTED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
# DuckDB returns these for infinite times.
INFINITE: Final = {
    date.min,
    date.max,
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
}


class Inexact(ValueError):
    """A result has a type or a value that would not be exact; the message holds no value."""


class Writer(Protocol):
    """Writes the rows of a result."""

    def write(self, rows: Rows) -> None:
        """Write some rows."""

    def close(self, more: bool) -> None:
        """Write the end; `more` says whether rows were left out."""


def writer(format: Format, columns: Sequence[ResultColumn], send: Send) -> Writer:
    """Return a writer that passes the bytes of a file on to `send`.

    Raises:
        Inexact: The values of a column would not be exact.
    """
    for column in columns:
        if INEXACT.search(QUOTED.sub("", column.type)):
            raise Inexact(f"the column {column.name} is of the type {column.type}: cast it to VARCHAR")
    if format == "json":
        return JsonWriter(columns, send)
    if format == "csv":
        return CsvWriter(columns, send)
    return ArrowWriter(format, columns, send)


def warm(format: Format) -> None:
    """Write an empty file of a format to nowhere, so that all libraries are read that a result needs."""
    columns = [ResultColumn("warm", kind) for kind in ("VARCHAR", "DECIMAL(38,0)", *MOMENTS)]
    empty = writer(format, columns, lambda part: None)
    if format in {"arrow", "parquet"}:
        empty.write([("", Decimal(0), datetime.now(UTC), datetime.now(UTC))])
    empty.close(more=False)


class JsonWriter:
    """One document: `columns`, `rows` as lists of cells, and `more`."""

    def __init__(self, columns: Sequence[ResultColumn], send: Send) -> None:
        self._send, self._separator = send, b""
        send(b'{"columns":' + msgspec.json.encode(columns) + b',"rows":[')

    def write(self, rows: Rows) -> None:
        """Write some rows."""
        text = b",".join(msgspec.json.encode([cell(value) for value in row]) for row in rows)
        self._send(self._separator + text)
        self._separator = b","

    def close(self, more: bool) -> None:
        """Write the end of the document."""
        self._send(b'],"more":true}' if more else b'],"more":false}')


class CsvWriter:
    """A header and rows. Null is an empty cell, and no text begins a formula of a spreadsheet."""

    def __init__(self, columns: Sequence[ResultColumn], send: Send) -> None:
        self._send = send
        self.write([tuple(column.name for column in columns)])

    def write(self, rows: Rows) -> None:
        """Write some rows."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
        self._send(text.getvalue().encode())

    def close(self, more: bool) -> None:
        """Do nothing: a CSV file has no end mark."""


class ArrowWriter:
    """A stream of Arrow or a file of Parquet, with unique names of columns.

    Values of types that Arrow lacks are text.
    """

    def __init__(self, format: Format, columns: Sequence[ResultColumn], send: Send) -> None:
        import pyarrow as pa

        names = _unique([column.name for column in columns])
        types = [_arrow_type(column.type) for column in columns]
        self._schema = pa.schema(list(zip(names, types, strict=True)))
        sink = pa.PythonFile(Sink(send), mode="w")
        if format == "arrow":
            self._file: Any = pa.ipc.new_stream(sink, self._schema)
        else:
            import pyarrow.parquet as pq

            self._file = pq.ParquetWriter(sink, self._schema, compression="zstd")

    def write(self, rows: Rows) -> None:
        """Write some rows as one batch."""
        import pyarrow as pa

        columns = zip(*rows, strict=True)
        arrays = [_array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self, more: bool) -> None:
        """Write the end of the file."""
        self._file.close()


class Sink(io.RawIOBase):
    """A file that passes what is written to it on to a function."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send, self._position = send, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._position

    def write(self, content: Any) -> int:
        """Pass some bytes on and return their number."""
        part = bytes(content)
        self._position += len(part)
        self._send(part)
        return len(part)


def cell(value: object) -> object:
    """Return a value as JSON: exact numbers and times as text, bytes as hex.

    Integers of 2^53 and more are text. Raises Inexact for a time that may be infinite.
    """
    _check_time(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < MAX_JSON_INTEGER else str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, dict):
        return {text(key) or "": cell(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cell(each) for each in value]
    return str(value)


def text(value: object) -> str | None:
    """Return a value as text, nested values as JSON; None for null."""
    plain = cell(value)
    if plain is None or isinstance(plain, str):
        return plain
    return msgspec.json.encode(plain).decode()


def _csv_cell(value: object) -> str | None:
    return spreadsheet_text(value) if isinstance(value, str) else text(value)


def _arrow_type(kind: str) -> pa.DataType:
    """Return the type of Arrow for a type of DuckDB; text for those whose values it cannot have exactly."""
    import pyarrow as pa

    if kind in ARROW_TYPES:
        return pa.type_for_alias(ARROW_TYPES[kind])
    if decimal := DECIMAL.fullmatch(kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind in MOMENTS:
        return pa.timestamp("us", MOMENTS[kind])
    return pa.string()


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return a column; raise a ValueError for a value that the type lacks, such as an infinite time."""
    import pyarrow as pa

    for value in values if pa.types.is_temporal(kind) else ():
        _check_time(value)
    return pa.array([text(value) for value in values] if pa.types.is_string(kind) else values, kind)


def _check_time(value: object) -> None:
    """Raise Inexact for a date or time that may be infinite."""
    if isinstance(value, date) and (value.replace(tzinfo=UTC) if isinstance(value, datetime) else value) in INFINITE:
        raise Inexact("a date or time may be infinite: cast it to VARCHAR")


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names, the later ones of equal ones with a number: readers find columns by name."""
    unique: dict[str, None] = {}
    numbers = Counter[str]()
    for name in names:
        free = name
        while free in unique:
            numbers[name] += 1
            free = f"{name}_{numbers[name] + 1}"
        unique[free] = None
    return list(unique)
