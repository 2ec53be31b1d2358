"""Run a command and measure wall time, CPU time and peak memory of its process tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.places import ROOT, recorded

EVENTS = "transfers,approvals"
WATCH_S = 0.01
# The default datasets without traces, which the replayed node does not serve.
USUAL = (
    "blocks,transactions,native,transfers,approvals,events,"
    "account_transfers,account_approvals,account_transactions,account_events"
)
FULL = "transfers,approvals,blocks,balances,allowances"


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run. `cpu_s` is the system's figure for the process and its children.

    `peak_mb` is of all its processes together, memory that they share counted once; 0 if it was not watched.
    """

    code: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str
    errors: str = ""

    def checked(self) -> Self:
        """Return this run; raise AssertionError with its output if its exit code is not 0."""
        assert self.code == 0, f"a run ended with {self.code}: {self.output[-300:]} {self.errors[-1500:]}"
        return self

    def json(self) -> dict[str, Any]:
        """Return the JSON on the last line of its output."""
        read: dict[str, Any] = json.loads(self.output.strip().splitlines()[-1])
        return read


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment for a timed process: with byte code caches, without CHAINFOLIO_ settings."""
    variables = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE" and not k.startswith("CHAINFOLIO_")
    }
    return {**variables, **extra}


def run(command: Sequence[str], env: Mapping[str, str], *, limit_s: float = 600, watched: bool = False) -> Run:
    """Run a command to its end, or kill it after `limit_s`. With `watched`, its peak memory is measured."""
    start_s = time.perf_counter()
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(command, env=dict(env), cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        peak = _Peak(process.pid) if watched else None
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        timer.cancel()
        peak_mb = peak.close() if peak else 0.0
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        errors = complaints.read().decode(errors="replace")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(process.returncode, wall_s, cpu_s, peak_mb, output.decode(errors="replace"), errors)


class _Peak:
    """Measures the peak memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak_kb, self._is_over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(WATCH_S):
            self._peak_kb = max(self._peak_kb, sum(map(_memory_kb, tree(self._pid))))

    def close(self) -> float:
        """Stop watching, and return the peak in MB."""
        self._is_over.set()
        self._thread.join()
        return self._peak_kb / 1024


def tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    processes, waiting = [], [pid]
    while waiting:
        processes.append(waiting.pop())
        for task in Path(f"/proc/{processes[-1]}/task").glob("*/children"):
            try:
                waiting += map(int, task.read_text().split())
            except OSError:  # it has just ended
                continue
    return processes


def _memory_kb(pid: int) -> int:
    """Return the memory of a process in kB, shared memory by its share; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def product() -> list[str]:
    """Return the command of the product: as installed with this interpreter, else from the source tree."""
    script = Path(sys.executable).parent / "chainfolio"
    return [str(script)] if script.exists() else [sys.executable, "-m", "chainfolio.cli.main"]


def product_env(url: str, data: Path) -> dict[str, str]:
    """Return the environment of the product's command: a replay node at `url`, data in `data`."""
    settings = {"CHAINFOLIO_DATA": str(data), "CHAINFOLIO_CHAINS__LOCAL__RPC": url}
    return environment({**settings, "PYTHONPATH": str(ROOT)})


def index(
    url: str,
    data: Path,
    *more: str,
    datasets: str = EVENTS,
    first: int | None = None,
    last: int | None = None,
    limit_s: float = 600,
    watched: bool = False,
) -> Run:
    """Run `chainfolio index` over the filled blocks of the recorded chain; the exit code is not checked."""
    chain = recorded()
    span = ["--from", str(chain.first if first is None else first), "--to", str(chain.last if last is None else last)]
    command = [*product(), "index", "local", *span, "--datasets", datasets, "--json", *more]
    return run(command, product_env(url, data), limit_s=limit_s, watched=watched)


def empty(folder: Path) -> Path:
    """Delete a folder and create it again, empty; return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
