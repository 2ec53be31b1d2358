"""What a process sets before it begins."""

from __future__ import annotations

import atexit
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from chainfolio.cli import process
from chainfolio.cli.main import main
from chainfolio.loop import THRESHOLD

ROOT = Path(__file__).parents[2]


def test_while_a_command_runs_the_collector_looks_seldom_and_afterwards_as_before() -> None:
    before = gc.get_threshold()
    with process.rare_garbage_collection():
        assert gc.get_threshold() == THRESHOLD != before
    with pytest.raises(SystemExit):
        main(["--version"])
    assert gc.get_threshold() == before


def test_a_process_looks_for_no_rings_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    with process.rare_garbage_collection():
        assert registered == [gc.freeze]


@pytest.mark.skipif(sys.platform != "linux", reason="another C library is left as it is")
def test_a_bulk_run_has_one_heap_for_arrow_and_everything_else() -> None:
    said = (
        "import chainfolio.cli.process as it; it.keep_freed_memory(); "
        "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    )
    ran = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "system"
