"""Third-party packages, built as wheels and installed in a folder of their own, and commands that find them there."""

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
    """Build a wheel of a copy, and install it in a folder: no network, and nothing is left beside the source."""
    shutil.copytree(package, build, ignore=shutil.ignore_patterns("__pycache__"))
    _run(["hatchling", "build", "-t", "wheel", "-d", "dist"], build)
    (wheel,) = (build / "dist").glob("*.whl")
    _run(["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site), str(wheel)], build)


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Operator:
    """Somebody with a settings file, and a folder of installed packages."""

    config: Path
    site: Path

    def command(self, *words: str, fails: int = 0) -> Any:
        """The JSON of a command, which ends as expected."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CHAINFOLIO_")}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(self.site)])
        asked = [sys.executable, "-m", "chainfolio.cli.main", *words, "--json", "--config", str(self.config)]
        done = subprocess.run(asked, cwd=self.config.parent, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == fails, f"{words}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)
