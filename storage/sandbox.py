"""The child process of `chainfolio sql`, which runs one query over the lake's files.

It has access to nothing else. It reads a task as JSON from standard input and prints the result as JSON. The operating
system limits memory and processor time and refuses every write. The child tests this before it reads the query, and
runs no query if a write succeeds. DuckDB itself may only read the lake's files.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from chainfolio.storage.readonly import give_up_writing, still_possible

MEMORY = 4 * 1024**3
NUMBERS = ("INT", "DECIMAL", "DOUBLE", "FLOAT")


def main() -> None:
    """Run the query of a task from standard input, and write the result as JSON to standard output.

    Before the query, the process gives up writing. If it can still change files, the ways are the result.
    """
    task = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (4 * task["seconds"], 4 * task["seconds"] + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    give_up_writing()  # before DuckDB starts threads: those that run already would not be bound
    possible = still_possible(Path(task["probe"]))
    json.dump({"possible": possible} if possible else run_query(task), sys.stdout)


def run_query(task: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of `_rows` for the query, or only `error`: DuckDB's text, cut to 2,000 characters.

    The query sees only the given files.

    Args:
        task: `files` by table, `query`, `limit` of rows (0: all), `seconds`, and errors of `refused` tables.
    """
    import duckdb

    from chainfolio.storage.views import literal, views

    files = task["files"]
    connection = duckdb.connect(config={"temp_directory": "", "memory_limit": "1GB", "threads": "2"})
    paths = ", ".join(literal(file) for part in files.values() for file in part)
    for setting in (
        f"SET allowed_paths = [{paths}]",
        "SET enable_external_access = false",
        "SET allow_community_extensions = false",
        "SET allow_persistent_secrets = false",
        "SET autoinstall_known_extensions = false",
        "SET autoload_known_extensions = false",
        "SET python_enable_replacements = false",
        f"SET max_execution_time = {task['seconds'] * 1000}",
        "SET TimeZone = 'UTC'",
    ):
        connection.execute(setting)
    try:
        for view in views(files, task.get("refused")):
            connection.execute(view)
        connection.execute("SET lock_configuration = true")
        return _rows(connection, task)
    except duckdb.Error as error:
        return {"error": str(error).split("\n\n")[0][:2000]}


def _rows(connection: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Return at most `limit` rows (0: all) of one SELECT or EXPLAIN; only `error` for other statements.

    Keys are `columns` (names), `kinds` (`number` or `text`), `rows`, and `more`: True if there are other rows.
    """
    statements = connection.extract_statements(task["query"])
    if len(statements) != 1 or str(statements[0].type).rsplit(".", 1)[-1] not in ("SELECT", "EXPLAIN"):
        return {"error": "one SELECT at a time"}
    result = connection.execute(task["query"])
    columns, kinds = [column[0] for column in result.description], [str(column[1]) for column in result.description]
    rows = result.fetchmany(task["limit"] + 1) if task["limit"] else result.fetchall()
    is_truncated = bool(task["limit"]) and len(rows) > task["limit"]
    return {
        "columns": columns,
        "kinds": ["number" if any(name in kind for name in NUMBERS) else "text" for kind in kinds],
        "rows": [[_cell(cell) for cell in row] for row in (rows[: task["limit"]] if is_truncated else rows)],
        "more": is_truncated,
    }


def _cell(cell: Any) -> Any:
    """Return a value as JSON: exact numbers and times as text, bytes as hex.

    Integers of 2^53 and more are text.
    """
    if cell is None or isinstance(cell, bool | str):
        return cell
    if isinstance(cell, int):
        return cell if abs(cell) < 2**53 else str(cell)
    if isinstance(cell, bytes | bytearray | memoryview):
        return "0x" + bytes(cell).hex()
    if isinstance(cell, dict):
        return {str(key): _cell(value) for key, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_cell(value) for value in cell]
    return str(cell)


if __name__ == "__main__":
    main()
