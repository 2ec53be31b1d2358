"""Third-party packages, built as wheels and installed in a temporary folder, and commands that find them there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def installed(package: Path, site: Path, build: Path) -> None:
    """Build a wheel of a copy, and install it in a folder: no network, and no files are left in the source."""
    shutil.copytree(package, build, ignore=shutil.ignore_patterns("__pycache__"))
    _run(["hatchling", "build", "-t", "wheel", "-d", "dist"], build)
    (wheel,) = (build / "dist").glob("*.whl")
    _run(["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site), str(wheel)], build)


def _run(arguments: list[str], folder: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


@dataclass(frozen=True)
class Operator:
    """A user with a settings file, and a folder of installed packages."""

    config: Path
    site: Path

    def command(self, *words: str, fails: int = 0) -> Any:
        """The JSON of a command, which ends as expected."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CHAINFOLIO_")}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(self.site)])
        command_line = [sys.executable, "-m", "chainfolio.cli.main", *words, "--json", "--config", str(self.config)]
        process = subprocess.run(
            command_line, cwd=self.config.parent, env=env, capture_output=True, text=True, check=False
        )
        assert process.returncode == fails, f"{words}: {process.stdout}{process.stderr}"
        return json.loads(process.stdout)
