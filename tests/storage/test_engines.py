"""Other engines, in environments of their own, count the same rows in every table by every column.

The environments are installed once into `.engines` (or `$CHAINFOLIO_ENGINES_HOME`), and a test is skipped with the
reason where that cannot be done.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chainfolio.storage.lake import Lake
from chainfolio.storage.views import views
from chainfolio.tables import TABLES
from tests.storage.conftest import make

HOME = Path(os.environ.get("CHAINFOLIO_ENGINES_HOME", Path(__file__).parents[2] / ".engines"))
SCRIPT = Path(__file__).with_name("foreign.py")
PATIENCE_S = 150
# What is installed together, and which of its engines are asked.
ENGINES = {
    "oldest": (
        ("duckdb==1.3.2", "pytz", "deltalake==0.25.5", "pyarrow==19.0.1", "pandas==2.2.3"),
        ("duckdb", "pyarrow", "pandas"),
    ),
    "newest": (
        (
            "duckdb==1.5.6",
            "pytz",
            "deltalake==1.6.6",
            "pyarrow==26.0.1",
            "pandas==3.1.1",
            "polars==1.44.2",
            "dbt-core<1.11",
            "dbt-duckdb<1.11",
        ),
        ("duckdb", "pyarrow", "pandas", "polars", "dbt"),
    ),
}
KINDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "raw": ("blob", lambda value: str(value.as_py().hex())),
    "bytes": ("blob", lambda value: str(value.as_py().hex())),
    "time": ("time", lambda value: str(value.value)),
}
Counts = dict[str, dict[str, int]]


def environment(name: str) -> Path:
    """The interpreter of an engine's environment, installed if it is not there yet."""
    folder, requirements = HOME / name, "\n".join(ENGINES[name][0])
    python, stamp = folder / "bin" / "python", folder / ".complete"
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != requirements:
            uv = shutil.which("uv")  # many times faster than pip, where it is installed
            venv.create(folder, clear=True, with_pip=uv is None)
            install = (
                [uv, "pip", "install", "--python", str(python)]
                if uv
                else [str(python), "-m", "pip", "install", "--no-compile"]
            )
            command = [*install, "--quiet", *ENGINES[name][0]]
            try:
                install_run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{name} was not installed within {PATIENCE_S} s")
            if install_run.returncode:
                pytest.skip(f"{name} cannot be installed: {install_run.stderr.strip()[-200:]}")
            stamp.write_text(requirements)
    return python


@pytest.fixture(scope="module")
def count_task(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Counts]:
    """The arguments of the script and the expected counts, for one value of each column."""
    folder = tmp_path_factory.mktemp("engines")
    lake = Lake(str(folder / "lake"))
    filters: dict[str, dict[str, tuple[str, str]]] = {}
    expected: Counts = {}
    for table in TABLES.values():
        parts = [make(table, chain, range(at, at + 10)) for chain in ("a", "0001") for at in (0, 10)]
        for batch, part in enumerate(parts):
            lake.append(table, part, stream="s", batch=batch)
        rows = pa.concat_tables(parts)
        filters[table.name], expected[table.name] = {}, {}
        for column in table.columns:
            values = rows[column.name].drop_null()
            value = values[len(values) // 2]
            kind, text = KINDS.get(column.type, (column.type, lambda value: str(value.as_py())))
            filters[table.name][column.name] = kind, text(value)
            expected[table.name][column.name] = rows.filter(pc.equal(rows[column.name], value)).num_rows
    (folder / "filters.json").write_text(json.dumps(filters))
    (folder / "views.sql").write_text("\n".join(views({name: lake.files(table) for name, table in TABLES.items()})))
    return [lake.uri, str(folder / "filters.json"), str(folder / "views.sql")], expected


def count_rows(python: Path | str, engine: str, arguments: list[str]) -> Counts:
    """Return the counts of an engine."""
    engine_run = subprocess.run(
        [python, str(SCRIPT), engine, *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    # Old deltalake aborts after its last line: its threads outlive the interpreter.
    assert "COUNTS " in engine_run.stdout, engine_run.stderr[-2000:]
    counts: Counts = json.loads(engine_run.stdout.split("COUNTS ")[1].splitlines()[0])
    return counts


@pytest.mark.slow("each engine's environment is installed first; our own engines count the same rows")
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_counts_the_same_rows_by_every_column(name: str, count_task: tuple[list[str], Counts]) -> None:
    arguments, expected = count_task
    python = environment(name)
    for engine in ENGINES[name][1]:
        assert count_rows(python, engine, arguments) == expected, engine


@pytest.mark.slow("a second engine counts the same files", only=["polars"])
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_our_own_engines_count_the_same(engine: str, count_task: tuple[list[str], Counts]) -> None:
    arguments, expected = count_task
    assert count_rows(sys.executable, engine, arguments) == expected
