"""`install.md`: its commands put the command into a separate environment, upgrade it and take it away."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text()


def test_every_extra_for_users_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == extras


@pytest.mark.slow("builds and installs twice; test_operate.py installs the wheel")
def test_pip_installs_upgrades_and_uninstalls_as_written(tmp_path: Path) -> None:
    """Dependencies come from the environment of the tests, for nothing is downloaded."""
    row = re.search(r"^\| pip \| `pip (.+?)` \| `git pull && pip (.+?)` \| `pip (.+?)` \|$", PAGE, re.M)
    assert row is not None
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    (packages,) = (tmp_path / "v" / "lib").glob("python3.*/site-packages")
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("".join(f"{path}\n" for path in paths))
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed", "--quiet"]
    for arguments in (row[1], row[2]):
        subprocess.run([python, "-m", "pip", *arguments.split(), *offline], cwd=ROOT, check=True)
        print_path = [python, "-P", "-c", "import chainfolio; print(chainfolio.__file__)"]
        assert (
            str(packages) in subprocess.run(print_path, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        )
        subprocess.run([python, "-m", "chainfolio", "--version"], cwd=tmp_path, check=True)
    subprocess.run([python, "-m", "pip", *row[3].split(), "--yes", "--quiet"], cwd=tmp_path, check=True)
    assert not (packages / "chainfolio").exists()
