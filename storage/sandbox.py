"""The child process that runs one query over the lake's files, and nothing else.

It has access to nothing else. It reads a `Task` from standard input, and writes the result and a `Summary` to standard
output. The operating system limits memory and processor time and refuses every write. The child tests this before it
reads the query, and runs no query if a write succeeds. DuckDB itself may only read the files of the task.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.storage.lake_sources import tables_in
from chainfolio.storage.readonly import give_up_writing, still_possible
from chainfolio.storage.sql_files import Inexact, warm, writer
from chainfolio.storage.sql_task import DATA, MEBIBYTE, SUMMARY, ResultColumn, Summary, Task, frames

if TYPE_CHECKING:
    import duckdb

ADDRESS_SPACE_MIB: Final = 3072  # in addition to the memory of DuckDB: for libraries, and what is reserved but not used
DATA_MIB: Final = 400  # in addition to it: for Python, stacks and the rows of a batch
BATCH_ROWS: Final = 4096  # of up to
BATCH_COLUMNS: Final = 16  # columns; fewer of more
MAX_ERROR: Final = 2000
COUNTERS: Final = Path("/proc/self/io")
OUT_OF_MEMORY_SCORE: Final = Path("/proc/self/oom_score_adj")
NO_VALUES: Final = "its text may hold data and is not shown; TRY(expression) is null where the expression fails"
ONE_SELECT: Final = "one SELECT at a time"
# Names that tell about this machine, and functions that run a text as SQL, so that no name can hide in one.
HIDDEN_PREFIXES: Final = ("duckdb_", "pg_", "pragma_")
HIDDEN: Final = frozenset(
    {"current_setting", "which_secret", "getenv", "query", "query_table", "json_execute_serialized_sql"}
)


class ResultTooLarge(Exception):
    """The result has more bytes than the task allows."""


def main() -> None:
    """Run the query of a task from standard input, and write messages with its result to standard output.

    Before the query, the process gives up writing. If it can still change files, the ways are the result.
    """
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    memory = (task.memory_mib + ADDRESS_SPACE_MIB) * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_CPU, (4 * task.seconds, 4 * task.seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    data = (task.memory_mib + DATA_MIB) * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    with contextlib.suppress(OSError):  # Linux: without memory, the system ends this process and not its parent
        OUT_OF_MEMORY_SCORE.write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    give_up_writing()  # before DuckDB starts threads: those that run already would not be bound
    output = sys.stdout.buffer

    def send(content: bytes) -> None:
        output.writelines(frames(DATA, content))

    possible = still_possible(Path(task.probe))
    summary = Summary(possible=possible) if possible else run_query(task, send)
    output.writelines(frames(SUMMARY, msgspec.json.encode(summary)))
    output.flush()


def run_query(task: Task, send: Callable[[bytes], None]) -> Summary:
    """Run the query and send its result in the format of the task, in parts; return how it ended.

    Errors of the query are in the summary; what was sent before is then no result.
    """
    import duckdb

    if task.folder and task.files:  # a new lake has no folder yet
        os.chdir(task.folder)
    with duckdb.connect(config=_config(task)) as connection:
        try:
            _prepare(connection, task)
            if reason := _refusal(connection, task):
                return Summary(error=reason)
        except duckdb.Error as error:
            return Summary(error=_text(error))
        connection.execute("SELECT now(), 1.5, uuid()").fetchall()
        warm(task.format)  # libraries that are read now are not counted
        before = _bytes_read()
        try:
            return msgspec.structs.replace(_result(connection, task, send), bytes_read=_since(before))
        except (duckdb.Error, ResultTooLarge, TypeError, ValueError, OverflowError, MemoryError) as error:
            read = _since(before)
            if task.for_stranger and isinstance(error, duckdb.Error) and _is_of_plan(connection, task, error):
                return Summary(error=_text(error))
            return Summary(error=_failure(task, error)[:MAX_ERROR], has_run=True, bytes_read=read)


def _failure(task: Task, error: Exception) -> str:
    """Return the error of a query that failed as it ran; for strangers without the values in it."""
    import duckdb

    if isinstance(error, ResultTooLarge):
        return f"the result is longer than {task.max_mib} MiB: select fewer rows or columns"
    if isinstance(error, MemoryError):
        return "Out of Memory Error: the result needs too much memory"
    if not isinstance(error, duckdb.Error):  # of the writer of the result
        hides = task.for_stranger and not isinstance(error, Inexact)
        return f"a value does not fit into this format: {'cast it to VARCHAR' if hides else error}"
    if not task.for_stranger or isinstance(error, duckdb.InterruptException | duckdb.OutOfMemoryException):
        return _text(error)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Exception"))
    return f"{kind} Error: {NO_VALUES}"


def _is_of_plan(connection: duckdb.DuckDBPyConnection, task: Task, error: duckdb.Error) -> bool:
    """Return True if the plan of the query alone raises the same error: then it holds nothing of any row."""
    import duckdb

    if isinstance(error, duckdb.InterruptException | duckdb.OutOfMemoryException):
        return False
    try:
        connection.execute(f"EXPLAIN {task.query}", task.parameters or None).fetchall()
    except duckdb.Error as of_plan:
        return _text(of_plan) == _text(error)  # the rest shows the line, which begins otherwise
    return False


def _text(error: duckdb.Error) -> str:
    return str(error).split("\n\n")[0][:MAX_ERROR]


def _config(task: Task) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings with which DuckDB starts. No folder of it exists, because it may use none."""
    return {
        "temp_directory": "",
        "memory_limit": f"{task.memory_mib}MiB",
        "threads": "2",
        "home_directory": "/none",
        "secret_directory": "/none",
        "extension_directory": "/none",
    }


def _prepare(connection: duckdb.DuckDBPyConnection, task: Task) -> None:
    """Make the views of the tables, allow their files and nothing else, and lock the settings."""
    from chainfolio.storage.views import literal, views

    paths = ", ".join(literal(file) for part in task.files.values() for file in part)
    for setting in (
        f"SET allowed_paths = [{paths}]",
        "SET enable_external_access = false",
        "SET allow_community_extensions = false",
        "SET allow_persistent_secrets = false",
        "SET autoinstall_known_extensions = false",
        "SET autoload_known_extensions = false",
        "SET python_enable_replacements = false",
        f"SET max_execution_time = {task.seconds * 1000}",
        "SET TimeZone = 'UTC'",
        *views(task.files, task.refused),
        "SET lock_configuration = true",
    ):
        connection.execute(setting)


def _refusal(connection: duckdb.DuckDBPyConnection, task: Task) -> str:
    """Return why the query may not run; empty for one SELECT or EXPLAIN.

    Strangers get no EXPLAIN, no function in `HIDDEN` and no refused table.
    """
    statements = connection.extract_statements(task.query)
    kinds = ("SELECT",) if task.for_stranger else ("SELECT", "EXPLAIN")
    if len(statements) != 1 or str(statements[0].type).rsplit(".", 1)[-1] not in kinds:
        return ONE_SELECT
    return _hidden(connection, task) if task.for_stranger else ""


def _result(connection: duckdb.DuckDBPyConnection, task: Task, send: Callable[[bytes], None]) -> Summary:
    """Run the query, send at most `limit` rows (0: all), and return the summary, without the bytes read."""
    result = connection.execute(task.query, task.parameters or None)
    columns = [ResultColumn(column[0], str(column[1])) for column in result.description]
    file = writer(task.format, columns, _bounded(send, task.max_mib * MEBIBYTE))
    count, more = 0, False
    for rows in _batches(result, task.limit):
        more = bool(task.limit) and count + len(rows) > task.limit
        file.write(rows[: task.limit - count] if more else rows)
        count = min(count + len(rows), task.limit or sys.maxsize)
    file.close(more)
    return Summary(columns=columns, rows=count, more=more)


def _batches(result: duckdb.DuckDBPyConnection, limit: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a result in batches, up to one row more than `limit` (0: all)."""
    pending = limit + 1 if limit else sys.maxsize
    most = min(BATCH_ROWS, max(1, BATCH_ROWS * BATCH_COLUMNS // len(result.description)))
    while pending and (rows := result.fetchmany(min(most, pending))):
        pending -= len(rows)
        yield rows


def _bounded(send: Callable[[bytes], None], most: int) -> Callable[[bytes], None]:
    """Return `send` with a limit of bytes (0: none), above which it raises ResultTooLarge."""
    length = 0

    def bounded(content: bytes) -> None:
        nonlocal length
        length += len(content)
        if most and length > most:
            raise ResultTooLarge
        send(content)

    return bounded


def _hidden(connection: duckdb.DuckDBPyConnection, task: Task) -> str:
    """Return why a query may not run because of a name in it; empty if it may.

    DuckDB's own parser names the functions and tables, however they are written.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [task.query]).fetchone()
    assert row is not None, "one row of one function"
    try:
        tree = msgspec.json.decode(row[0])
    except (msgspec.DecodeError, RecursionError):
        return "the query is nested too deeply"
    if tree["error"]:
        return ONE_SELECT
    tables: set[str] = set()
    own: set[str] = set()  # names that the query itself gives
    for node in _nodes(tree):
        function, table, key = (str(node.get(name, "")).lower() for name in ("function_name", "table_name", "key"))
        if function in HIDDEN or function.startswith(HIDDEN_PREFIXES) or table.startswith(HIDDEN_PREFIXES):
            return f"{function or table} is not available: a query reads the tables of the lake and nothing else"
        tables |= tables_in(function) | (tables_in(table) if node.get("type") == "BASE_TABLE" else set())
        own.add(key)
    return next((task.refused[name] for name in sorted(tables - own) if name in task.refused), "")


def _nodes(tree: object) -> Iterator[dict[str, object]]:
    """Yield all objects of a JSON document."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def _bytes_read() -> int | None:
    """Return how many bytes this process has read so far; None if the system does not count them."""
    try:
        lines = COUNTERS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.removeprefix("rchar:")) for line in lines if line.startswith("rchar:")), None)


def _since(before: int | None) -> int | None:
    after = _bytes_read()
    return None if before is None or after is None else after - before


if __name__ == "__main__":
    main()
