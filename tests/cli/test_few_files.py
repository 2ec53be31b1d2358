"""A process with a low limit of open files raises it, or names the limit and the fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "chainfolio.cli.main"]


def limited(here: Path, flags: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a shell with `ulimit` so."""
    shell = ["sh", "-c", f'ulimit {flags} && exec "$@"', "sh", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(shell, cwd=here, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow("other numbers below the same limit", fast=["8", "31"])
@pytest.mark.parametrize("limit", [8, 12, 16, 20, 28, 31])
def test_a_process_that_may_open_next_to_nothing_says_so_and_how_to_allow_more(here: Path, limit: int) -> None:
    ran = limited(here, f"-n {limit}", *COMMAND, "status", "--json")
    assert ran.returncode == 5, ran.stderr
    error = json.loads(ran.stdout)["error"]
    assert error["kind"] == "TooManyFiles"
    assert "ulimit -n" in error["remedy"]
    assert not ran.stderr


def test_a_shell_that_begins_with_few_is_no_limit_where_it_may_allow_more(here: Path) -> None:
    assert limited(here, "-S -n 20", *COMMAND, "sql", "select 1").returncode == 0
