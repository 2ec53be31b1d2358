"""Messages between the process that runs a query in SQL and its sandboxed child."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

Format = Literal["json", "csv", "arrow", "parquet"]
Parameter = str | int | bool | None
Parameters = list[Parameter] | dict[str, Parameter]
MEBIBYTE: Final = 1 << 20
DATA: Final = b"D"
SUMMARY: Final = b"S"
HEAD: Final = struct.Struct(">cI")
PART: Final = 1 << 18


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A query and everything that its child process may use.

    Attributes:
        parameters: Values of `?` in their order, or of `$name` by name.
        folder: The folder of `files`.
        files: Paths of the files of each readable table, relative to `folder`.
        refused: The other tables, with the error that a query of them raises.
        limit: The most rows of the result; 0 for all.
        seconds: The longest time of the query.
        memory_mib: Memory for DuckDB; the whole process may use more.
        max_mib: The longest result; 0 for any.
        for_stranger: Hide what DuckDB knows of this machine: the query comes from an account of the API.
        probe: A file that the child tries to change, which must not succeed.
    """

    query: str
    parameters: Parameters = []
    folder: str = ""
    files: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    limit: int = 0
    seconds: int = 60
    memory_mib: int = 1024
    max_mib: int = 0
    format: Format = "json"
    for_stranger: bool = False
    probe: str = ""


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of a result, with its type in DuckDB."""

    name: str
    type: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a query.

    Attributes:
        error: Why there is no result; empty if there is one.
        possible: Ways in which the child could still change files; no query ran if there are any.
        rows: Number of rows in the result.
        more: True if `limit` left out rows.
        has_run: True of an error of a query that may have read rows before.
        bytes_read: Bytes of the files that the query read; None if the system does not count them.
    """

    error: str = ""
    possible: list[str] = []
    columns: list[ResultColumn] = []
    rows: int = 0
    more: bool = False
    has_run: bool = False
    bytes_read: int | None = None


class JsonResult(msgspec.Struct, frozen=True):
    """A result as a JSON document. Cells of numbers that JSON readers would round are text."""

    columns: list[ResultColumn]
    rows: list[list[object]]
    more: bool


def frames(kind: bytes, content: bytes) -> Iterator[bytes]:
    """Yield the bytes of messages of one kind, which have at most `PART` bytes of content each."""
    for start in range(0, max(1, len(content)), PART):
        part = content[start : start + PART]
        yield HEAD.pack(kind, len(part))
        yield part
