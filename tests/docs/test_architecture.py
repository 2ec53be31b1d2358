"""References of documents to the code: the files and functions that they name exist."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}  # a path of these is one of the repository
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
FILE = re.compile(r"`([\w./-]+\.(?:py|toml|csv|yul))`")
STEP = re.compile(r"(\d+)\. `([\w/]+\.py)` `([\w.]+)`: .+\.")
PLACE = re.compile(r"`([\w/]+\.py)` `([\w.]+)`")
INVENTED = {"000N_what.py", "KEY.toml", "mine.py"}  # stand for files that a reader may add
MAX_STEPS = 12


@cache
def tracked() -> tuple[str, ...]:
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return tuple(name for name in output.split("\0") if (ROOT / name).is_file())


def readmes() -> list[str]:
    return [
        name for name in tracked() if name.endswith("/README.md") and not name.startswith(("docs/", "bench/peers/"))
    ]


def walks() -> dict[str, list[str]]:
    """The lines of each walk in `docs/architecture.md`, by its title."""
    _, section = ARCHITECTURE.split("\n## Five walks through the code\n")
    _, *parts = section.split("\n## ")[0].split("\n### ")
    return {title: [line for line in lines if line] for title, *lines in (part.splitlines() for part in parts)}


@cache
def functions(file: str) -> frozenset[str]:
    """The functions of a file, and its methods as `Class.method`."""
    body = ast.parse((ROOT / file).read_text()).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        [node.name for node in body if isinstance(node, kinds)]
        + [f"{owner.name}.{node.name}" for owner in classes for node in owner.body if isinstance(node, kinds)]
    )


def test_there_are_five_walks_and_the_picture() -> None:
    assert len(walks()) == 5
    assert "](images/architecture.svg)" in ARCHITECTURE
    assert (ROOT / "docs" / "images" / "architecture.svg").is_file()


@pytest.mark.parametrize("title", walks())
def test_every_step_of_a_walk_names_a_function_that_exists(title: str) -> None:
    steps = [STEP.fullmatch(line) for line in walks()[title]]
    assert None not in steps, "a step is: number, file, function, sentence"
    numbered = [step.groups() for step in steps if step]
    assert [int(number) for number, *_ in numbered] == list(range(1, len(numbered) + 1))
    assert len(numbered) <= MAX_STEPS
    assert [(file, name) for _, file, name in numbered if name not in functions(file)] == []


@cache
def names(file: str) -> frozenset[str]:
    """The functions and classes of a file, and the fields of its classes as `Class.field`."""
    classes = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.ClassDef)]
    fields = [
        f"{owner.name}.{ast.unparse(node.target)}"
        for owner in classes
        for node in owner.body
        if isinstance(node, ast.AnnAssign)
    ]
    return functions(file) | {owner.name for owner in classes} | set(fields)


def test_every_place_of_a_common_change_exists() -> None:
    _, section = ARCHITECTURE.split("\n## Where a common change belongs\n")
    _, _, *rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [PLACE.findall(row) for row in rows]
    assert cells
    assert [] not in cells, "a row names a file, and what to edit in it"
    assert [(file, name) for row in cells for file, name in row if name not in names(file)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = {file for file in FILE.findall(page.read_text()) if file.split("/")[0] in FOLDERS}
    named = {file for file in named if Path(file).name not in INVENTED}
    assert [file for file in sorted(named) if not (ROOT / file).exists()] == []


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
