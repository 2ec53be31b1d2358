"""Measure the branches of each package that `make test` takes, and those that all tests take.

python -m bench.coverage [tests/portfolio …]

It runs the tests of `make test` and the other tests once each. Without folders this takes the time of
`make test-all` and more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.figures import Figure, main
from bench.places import HERE

ROOT = HERE.parent
LINKS = sorted(path for path in (ROOT / "chainfolio").iterdir() if path.is_symlink())
SOURCES = [
    str(path.resolve()) for path in (ROOT / "chainfolio", *LINKS)
]  # coverage.py resolves links in names of files
MOST_LOST = 2.0  # percentage points of branches
SOME_FAILED, NO_TESTS = 1, 5  # exit codes of pytest
SETTINGS = """[run]
branch = true
parallel = true
patch = subprocess
source = {sources}
data_file = {data}
"""


def run(options: argparse.Namespace) -> list[Figure]:
    """Run both selections and compare the branches that they take in each package."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        failed = [selection for selection in ("not slow", "slow") if not _pass(selection, target, options)]
        files = {selection: sorted(target.glob(f"{selection}.data.*")) for selection in ("not slow", "slow")}
        alone = branches(_report(target / "alone", files["not slow"]))
        combined = branches(_report(target / "together", [*files["not slow"], *files["slow"]]))
    return [
        *(Figure("coverage", f"tests that are {selection}", "some failed", "none", False) for selection in failed),
        *(
            _figure(package, alone.get(package, (0, total)), (count, total))
            for package, (count, total) in sorted(combined.items())
            if total
        ),
    ]


def branches(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return by package how many branches were taken, and how many there are."""
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, file in report["files"].items():
        package = Path(name).parts[0]
        count, total = counts[package]
        summary = file["summary"]
        counts[package] = count + summary["covered_branches"], total + summary["num_branches"]
    return dict(counts)


def _pass(selection: str, target: Path, options: argparse.Namespace) -> bool:
    """Run a selection of tests under coverage, and return True if none failed.

    Raises:
        SystemExit: The tests did not run.
    """
    settings = target / f"{selection}.ini"
    settings.write_text(SETTINGS.format(sources=",".join(SOURCES), data=target / f"{selection}.data"))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
    command += ["-n", str(options.jobs), "--dist", "loadgroup", "-m", selection, *options.tests]
    ended = subprocess.run(command, cwd=ROOT, check=False)
    if ended.returncode not in (0, SOME_FAILED, NO_TESTS):
        sys.exit(f"The tests that are {selection} did not run.")
    return ended.returncode != SOME_FAILED


def _report(data: Path, files: list[Path]) -> dict[str, Any]:
    tool = [sys.executable, "-m", "coverage"]
    subprocess.run([*tool, "combine", "-q", "--keep", f"--data-file={data}", *files], cwd=ROOT, check=True)
    report = data.with_suffix(".json")
    subprocess.run([*tool, "json", "-q", f"--data-file={data}", "-o", report], cwd=ROOT, check=True)
    document: dict[str, Any] = json.loads(report.read_text())
    return document


def _figure(package: str, alone: tuple[int, int], combined: tuple[int, int]) -> Figure:
    shares = [100 * count / total for count, total in (alone, combined)]
    value = f"{shares[0]:.1f} % of branches in `make test`, {shares[1]:.1f} % in all"
    bar = f"≤ {MOST_LOST:g} points less"
    return Figure("coverage", package, value, bar, shares[1] - shares[0] <= MOST_LOST, in_readme=False)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the folders of tests and the number of processes to the options."""
    parser.add_argument("tests", nargs="*", help="folders of tests; all without any")
    parser.add_argument("--jobs", type=int, default=3, help="test processes")


if __name__ == "__main__":
    main(__doc__, run, add)
