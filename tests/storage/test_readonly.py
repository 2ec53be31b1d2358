"""A process that gave up writing reads on, and changes nothing, whatever DuckDB or Python tries in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chainfolio.storage.lake import Lake
from chainfolio.storage.readonly import still_possible
from chainfolio.tables import BLOCKS
from tests.storage.attacker import tree

# These do their work without the file that they wanted.
HARMLESS = {"attach a file", "a profile", "a log", "spilling"}


def attacked(method: str, lake: Lake) -> dict[str, Any]:
    child_run = subprocess.run(
        [sys.executable, "-m", "tests.storage.attacker", method, lake.uri],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    report: dict[str, Any] = json.loads(child_run.stdout)
    return report


@pytest.mark.parametrize("method", ["all", "landlock", "seccomp"])
@pytest.mark.skipif(sys.platform != "linux", reason="these are Linux's; the probe decides at run time elsewhere")
def test_no_route_of_duckdb_or_python_changes_a_byte_of_a_lake(
    lake: Lake, make_rows: Callable[..., pa.Table], method: str
) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", range(50)), stream="s", batch=1)
    before = tree(Path(lake.uri))
    report = attacked(method, lake)
    assert report["changed"] == []
    assert tree(Path(lake.uri)) == before
    assert report["rows"] == 100
    assert {name for name, text in report["refused"].items() if not text} <= HARMLESS
    assert "EXPLAIN" not in report["refused"]["copy under explain"], "it is refused while it runs, not for its words"


def test_without_it_the_same_attempts_do_change_a_lake(lake: Lake, make_rows: Callable[..., pa.Table]) -> None:
    lake.append(BLOCKS, make_rows(BLOCKS, "a", range(50)), stream="s", batch=1)
    assert attacked("none", lake)["changed"] == ["copy"]


def test_a_process_that_can_write_knows_it(tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("x")
    assert {"write", "create", "truncate", "rename"} <= set(still_possible(tmp_path / "probe"))
