"""A child process that gives up writing, then tries every call that could change a lake.

DuckDB runs without restrictions, so that each refusal is the kernel's. Prints the text of each refusal.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from chainfolio.storage import readonly

QUERIES = {
    "copy": "COPY (SELECT 1) TO '{file}' (FORMAT csv, USE_TMP_FILE false)",
    "copy over a temporary file": "COPY (SELECT 1) TO '{file}' (FORMAT parquet)",
    "copy under explain": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (FORMAT csv, USE_TMP_FILE false)",
    "copy under explain, replacing": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (OVERWRITE_OR_IGNORE true)",
    "copy in partitions": "COPY (SELECT 1 AS a, 2 AS b) TO '{table}' (FORMAT parquet, PARTITION_BY a, OVERWRITE true)",
    "copy a file for each thread": "COPY (SELECT 1) TO '{table}' (FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE true)",
    "export": "EXPORT DATABASE '{table}'",
    "attach a new database": "ATTACH '{table}/new.db' AS fresh",
    "attach a file": "ATTACH '{file}' AS own",
    "a secret that stays": "CREATE PERSISTENT SECRET kept (TYPE s3)",
    "a profile": "SET enable_profiling = 'json'; SET profiling_output = '{table}/p.json'; SELECT 1",
    "a log": "CALL enable_logging(storage = 'file', storage_path = '{table}'); SELECT 1",
    "spilling": "SET temp_directory = '{table}/spill'; SET memory_limit = '8MB'; "
    "SELECT count(*) FROM (SELECT DISTINCT range || 'x' AS a FROM range(400000))",
    "an extension": "SET extension_directories = ['{table}']; INSTALL '{file}'",
    "an extension of the network": "INSTALL httpfs FROM 'http://127.0.0.1:9'",
}
CALLS: dict[str, Callable[[Path], object]] = {
    **readonly.PROBES,
    "remove a folder": lambda path: os.rmdir(path.parent),
}
# What Landlock leaves alone.
OTHER_CALLS: dict[str, Callable[[Path], object]] = {
    "change the mode": lambda path: path.chmod(0),
    "change the times": lambda path: os.utime(path, (0, 0)),
    "start a program": lambda path: os.execv("/bin/rm", ["rm", str(path)]),
}


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder with its mode, its time, and its bytes."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def main(method: str, lake: Path) -> None:
    """Give up writing by `method` ("all", "landlock" or "seccomp"), then make all attempts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if method == "all":
        readonly.give_up_writing()
    elif method in ("landlock", "seccomp"):
        libc.prctl(readonly.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        {"landlock": readonly._landlock, "seccomp": readonly._seccomp}[method](libc)
    file = next(lake.rglob("*.parquet"))
    before, refusals, changed = tree(lake), {}, []
    for name, attempt in _attempts(file, CALLS if method == "landlock" else CALLS | OTHER_CALLS).items():
        refusals[name] = _alone(attempt)
        if tree(lake) != before:
            changed.append(name)
            break
    print(json.dumps({"refused": refusals, "changed": changed, "rows": 0 if changed else _rows(file)}))


def _alone(attempt: Callable[[], object]) -> str:
    """Make an attempt in a child process and return the text of its refusal, or the signal that ended it."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            attempt()
        except Exception as error:  # the parent checks the text
            os.write(writing, str(error).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return text or (f"ended by signal {status}" if status else "")


def _attempts(file: Path, calls: dict[str, Callable[[Path], object]]) -> dict[str, Callable[[], object]]:
    paths = {"file": str(file), "table": str(file.parents[1])}

    def run_query(text: str) -> None:
        with duckdb.connect() as connection:
            connection.execute(text.format(**paths)).fetchall()

    return {name: partial(run_query, text) for name, text in QUERIES.items()} | {
        name: partial(call, file) for name, call in calls.items()
    }


def _rows(file: Path) -> int:
    with duckdb.connect() as connection:
        return int(connection.execute(f"SELECT count(*) FROM read_parquet('{file}')").fetchall()[0][0])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
