"""Obstacles to an installation are reported before any download, by a script that old interpreters can run."""

from __future__ import annotations

import ast
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "ready.py"
READY = runpy.run_path(str(SCRIPT))


def problems(
    version: tuple[int, int] = (3, 12),
    system: str = "Linux",
    libc: str = "glibc",
    machine: str = "x86_64",
    *,
    compiler: bool = True,
    root: Path = ROOT,
) -> str:
    return "\n".join(READY["problems"](str(root), version, system, libc, machine, compiler))


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
@pytest.mark.parametrize("machine", ["x86_64", "arm64", "aarch64"])
def test_a_machine_with_wheels_is_ready_without_a_compiler(version: tuple[int, int], machine: str) -> None:
    assert problems(version, machine=machine, compiler=False) == ""


@pytest.mark.parametrize("version", [(2, 7), (3, 10), (3, 14)])
def test_a_python_of_another_release_is_named(version: tuple[int, int]) -> None:
    assert f"this one is {version[0]}.{version[1]}. Choose another: make PYTHON=python3.12" in problems(version)


def test_musl_is_refused_with_the_packages_that_have_no_wheels_for_it() -> None:
    text = problems(libc="musl")
    assert all(name in text for name in READY["WITHOUT_MUSL_WHEELS"])


def test_a_processor_without_wheels_needs_a_compiler() -> None:
    assert "no compiler" in problems(machine="riscv64", compiler=False)
    assert problems(machine="riscv64", compiler=True) == ""


@pytest.mark.parametrize("machine", ["arm64", "x86_64"])
def test_macos_needs_the_command_line_tools(machine: str) -> None:
    text = problems(system="Darwin", libc="", machine=machine, compiler=False)
    assert "xcode-select --install" in text
    assert all(name in text for name in READY["WITHOUT_MACOS_WHEELS"])
    assert problems(system="Darwin", libc="", machine=machine, compiler=True) == ""


def test_a_checkout_without_links_is_told_how_to_clone(tmp_path: Path) -> None:
    (tmp_path / "chainfolio").mkdir()
    (tmp_path / "chainfolio" / "storage").write_text("../storage")  # what git writes where it can make no link
    assert "core.symlinks=true" in problems(root=tmp_path)


def test_old_interpreters_can_read_the_script() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_every_target_that_installs_asks_first(tmp_path: Path) -> None:
    """A copy of the Makefile beside a folder without links: nothing is installed."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "chainfolio").mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for target in ("check", "docs", "serve"):
        process = subprocess.run(["make", target], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (process.returncode, "core.symlinks=true" in process.stderr) == (2, True), (
            process.stdout + process.stderr
        )
        assert not (tmp_path / ".venv").exists()
