"""Limits and memory settings of a process at its start."""

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


def run(program: str) -> str:
    """Return what a Python program prints."""
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return process.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("command", ["serve", "worker", "index", "materialise"])
def test_arrow_and_everything_else_have_one_heap(command: str) -> None:
    assert (
        run(
            "import contextlib; from chainfolio.cli.main import main\n"
            f"with contextlib.suppress(SystemExit): main(['{command}', '--help'])\n"
            "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
        )
        == "system"
    )


def resident_growth_mb(prepare: str) -> float:
    """Return the growth in MB of a process that freed 400 MB below a small block in use."""
    return float(
        run(
            "import os, chainfolio.cli.process as process\n"
            "page_mb = os.sysconf('SC_PAGE_SIZE') / 1e6\n"
            "def resident(): return int(open('/proc/self/statm').read().split()[1]) * page_mb\n"
            f"process.{prepare}()\n"
            "before = resident()\n"
            "large = bytearray(b'x') * 30_000_000\n"
            "del large  # the C library raises its threshold to the size of this block\n"
            "blocks = [bytearray(b'x') * 8_000_000 for _ in range(50)]\n"
            "pin = [bytearray(b'x') * 10_000 for _ in range(100)]\n"
            "blocks.clear()\n"
            "print(resident() - before)"
        )
    )


@pytest.mark.skipif(sys.platform != "linux", reason="another C library is left as it is")
def test_a_server_returns_freed_memory_and_a_bulk_run_keeps_it() -> None:
    assert resident_growth_mb("return_freed_memory") < 40
    assert resident_growth_mb("keep_freed_memory") > 300
    assert resident_growth_mb("use_one_heap") > 300, "by default the C library keeps it too"
