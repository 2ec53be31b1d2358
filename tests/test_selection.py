"""Tests that the commands run: `make test` some of every file, `make test-all` all; each slow one has a reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import PROFILE

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
SELECTIONS = dict(
    re.findall(
        r"^(quick|test|test-all):.*\n\t.*loadgroup (?:-m \"([^\"]*)\" )?\$\(ARGS\)"
        r"(?: \\\n\t\t\$\$\(cat tests/quick\.txt\))?$",
        (ROOT / "Makefile").read_text(),
        re.M,
    )
)


def marks(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.Call | None]]:
    """Every `pytest.mark.slow` below a node, with the call that it is part of."""
    calls = {id(each.func): each for each in ast.walk(tree) if isinstance(each, ast.Call)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and ast.unparse(each) == "pytest.mark.slow":
            yield each, calls.get(id(each))


def reasons(text: str) -> list[str]:
    """The reason of every mark; empty where there is none."""
    texts = []
    for _, call in marks(ast.parse(text)):
        values = [each.value for each in call.args if isinstance(each, ast.Constant)] if call else []
        texts.append(values[0].strip() if len(values) == 1 and isinstance(values[0], str) else "")
    return texts


def in_make_test(text: str) -> list[str]:
    """Return the tests of a file that are not slow as a whole; a state machine is the test of its name."""
    tree = ast.parse(text)
    assigned = {ast.unparse(each.targets[0]): each for each in tree.body if isinstance(each, ast.Assign)}
    if "pytestmark" in assigned and any(marks(assigned["pytestmark"])):
        return []
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in assigned if name.startswith("Test")] + [
        each.name
        for each in functions
        if each.name.startswith("test_")
        and not any(_slow_as_a_whole(ast.unparse(decorator)) for decorator in each.decorator_list)
    ]


def _slow_as_a_whole(decorator: str) -> bool:
    return decorator.startswith("pytest.mark.slow") and not re.search(", (fast|only)=", decorator)


def test_the_commands_leave_out_what_they_say() -> None:
    assert SELECTIONS == {"quick": "not node and not slow", "test": "not slow", "test-all": ""}


def test_the_files_of_quick_exist_and_are_some_of_each_package() -> None:
    names = (ROOT / "tests/quick.txt").read_text().splitlines()
    assert names == sorted(set(names))
    assert {ROOT / name for name in names} <= set(FILES)
    # Packages whose tests all need a node, a minute, or what they build.
    slow_alone = {"clients", "e2e", "nodes", "gains", "localchain"}
    assert {path.parent.name for path in FILES} - {Path(name).parent.name for name in names} <= slow_alone


def test_the_rest_of_all_tests_is_run_before_a_change_is_taken() -> None:
    commands = re.findall(r"\bmake (check|test(?:-all ARGS='-m [^']*')?) ", (ROOT / ".ci/run").read_text())
    assert commands == ["check", "test", "test-all ARGS='-m slow'"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_has_a_test_that_is_not_slow_and_slow_ones_say_why(path: Path) -> None:
    text = path.read_text()
    assert in_make_test(text)
    assert all(len(each.split()) >= 4 for each in reasons(text)), "a reason in words"


@pytest.mark.parametrize(
    ("text", "test_names", "expected_reasons"),
    [
        ("@pytest.mark.slow('a')\ndef test_a(): pass\ndef test_b(): pass", ["test_b"], ["a"]),
        ("@pytest.mark.slow\nasync def test_a(): pass", [], [""]),
        ("@pytest.mark.slow()\ndef test_a(): pass", [], [""]),
        ("@pytest.mark.slow('a', fast=['x*'])\ndef test_a(): pass", ["test_a"], ["a"]),
        ("@pytest.mark.slow('a', only=['x*'])\ndef test_a(): pass", ["test_a"], ["a"]),
        ("pytestmark = [pytest.mark.node, pytest.mark.slow('a b')]\ndef test_a(): pass", [], ["a b"]),
        (
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.slow('c'))])\ndef test_a(a): pass",
            ["test_a"],
            ["c"],
        ),
    ],
)
def test_marks_are_read_where_they_stand(text: str, test_names: list[str], expected_reasons: list[str]) -> None:
    assert (in_make_test(text), reasons(text)) == (test_names, expected_reasons)


@settings(max_examples=5_000)
@given(st.booleans())
def test_a_property_that_names_many_examples_runs(value: bool) -> None:
    assert value in (True, False)


def test_a_property_has_at_most_the_examples_of_its_profile_and_the_same_each_time() -> None:
    limits = {"here": (30, True), "quick": (20, True), "luck": (100, False), "deep": (2_000, False)}
    bounded_settings: settings = vars(test_a_property_that_names_many_examples_runs)[
        "_hypothesis_internal_use_settings"
    ]
    for each in (settings(), bounded_settings):
        assert (each.max_examples, each.derandomize) == limits[PROFILE]
