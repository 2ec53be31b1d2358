"""Exit codes and lines of `.ci/run`, with a `make` that ends as a test says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci/run"
MAKE = """#!/usr/bin/env bash
case $1 in
check) exit "$CHECK" ;;
test) echo "$OUTPUT"; echo "== 3 passed in 1 s =="; exit "$TEST" ;;
esac
ended() { echo "$REST"; exit 2; }
trap ended INT
if [ -n "$HANGS" ]; then for _ in $(seq 300); do sleep 0.1; done; fi
echo "$REST"
exit "$SLOW"
"""


def run(
    folder: Path, *, check: int = 0, test: int = 0, slow: int = 0, slow_output: str, limit: int = 60
) -> tuple[int, str]:
    """The exit code and the last line of `.ci/run`; the slow tests hang where the limit is short."""
    code, lines = run_with_output(folder, check=check, test=test, slow=slow, slow_output=slow_output, limit=limit)
    return code, lines[-1]


def run_with_output(
    folder: Path, *, check: int = 0, test: int = 0, slow: int = 0, slow_output: str, output: str = "", limit: int = 60
) -> tuple[int, list[str]]:
    """Return the exit code and the lines of `.ci/run`; its tests print `output`, its slow tests `slow_output`."""
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CHECK": str(check),
        "TEST": str(test),
        "SLOW": str(slow),
        "REST": slow_output,
        "OUTPUT": output,
        "HANGS": "yes" if limit < 10 else "",
        "CI_SECONDS": str(limit),
    }
    ended = subprocess.run([RUN], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout.splitlines()


def test_all_that_passes_is_taken(tmp_path: Path) -> None:
    code, line = run(tmp_path, slow_output="== 5 passed in 2 s ==")
    assert code == 0
    assert "3 passed" in line
    assert "5 passed" in line
    assert "not all" not in line


@pytest.mark.parametrize("fault", [{"check": 1}, {"test": 2}, {"slow": 1}])
def test_one_command_that_fails_refuses_all_and_the_others_run(tmp_path: Path, fault: dict[str, int]) -> None:
    code, line = run(tmp_path, slow_output="== 5 passed in 2 s ==", **fault)
    assert code == 1
    assert "3 passed" in line
    assert "5 passed" in line


@pytest.mark.parametrize(
    ("slow_output", "code"),
    [
        ("== 5 passed in 2 s ==", 0),
        ("== 1 failed, 5 passed in 2 s ==", 1),
        ("== 5 passed, 1 error in 2 s ==", 1),
        ("no tests ran", 1),
    ],
)
def test_slow_tests_that_the_clock_ends_count_as_they_ran(tmp_path: Path, slow_output: str, code: int) -> None:
    ended, line = run(tmp_path, slow_output=slow_output, limit=1)
    assert ended == code
    assert ("not all of them: the time was over" in line) is (code == 0)


@pytest.mark.parametrize("limit", [60, 1], ids=["all-run", "interrupted"])
def test_names_of_failed_tests_are_the_last_lines_of_both_parts(tmp_path: Path, limit: int) -> None:
    failed = "FAILED tests/a.py::test_a - AssertionError: 1 is not 2"
    broken = "ERROR tests/b.py::test_b[x] - OSError: " + 400 * "x"
    code, lines = run_with_output(
        tmp_path,
        test=1,
        slow=1,
        output=f"{failed}\nSKIPPED tests/c.py::test_c",
        slow_output=f"{broken}\n== 1 error, 5 passed in 2 s ==",
        limit=limit,
    )
    assert code == 1
    assert lines[-3:-1] == [failed, broken[:300]]
    assert "1 error, 5 passed" in lines[-1]


def test_a_failed_test_is_named_with_its_reason_on_a_line_without_a_terminal(tmp_path: Path) -> None:
    root = RUN.parents[1]
    name = f"test_{60 * 'a'}"
    path = tmp_path / "test_failing.py"
    path.write_text(f"import pytest\ndef {name}():\n    pytest.fail('{60 * 'why '}')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--rootdir={root}"]
    command += ["-c", str(root / "pyproject.toml"), f"--confcutdir={root}", "-p", "tests.conftest", str(path)]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    lines = [each for each in ended.stdout.splitlines() if each.startswith("FAILED ")]
    assert len(lines) == 1, ended.stdout + ended.stderr
    (line,) = lines
    assert "Failed: why why why" in line
