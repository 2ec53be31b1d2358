"""What documents say about the code: the files that they name exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`([\w./-]+\.(?:py|toml|csv|yul))`")
INVENTED = {"000N_what.py"}  # stands for the next file of a series


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return tuple(name for name in listed.split("\0") if (ROOT / name).is_file())


def readmes() -> list[str]:
    return [
        name for name in tracked() if name.endswith("/README.md") and not name.startswith(("docs/", "bench/peers/"))
    ]


def test_every_file_that_a_decision_names_exists() -> None:
    pages = (ROOT / "docs" / "decisions").glob("0*.md")
    named = {(page.name, file) for page in pages for file in FILE.findall(page.read_text()) if "/" in file}
    assert [(page, file) for page, file in sorted(named) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("readme", readmes())
def test_every_file_that_a_readme_names_exists(readme: str) -> None:
    folder = readme.removesuffix("README.md")
    missing = [
        file
        for file in FILE.findall((ROOT / readme).read_text())
        if Path(file).name not in INVENTED
        and not (ROOT / file).exists()
        and not any(name.startswith(folder) and f"/{name}".endswith(f"/{file}") for name in tracked())
        and not any(name == f"configs/{file}" for name in tracked())
    ]
    assert missing == []
