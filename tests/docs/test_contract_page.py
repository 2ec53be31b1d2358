"""The pages of promises are whole: every rule names a test, every test that they name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

from chainfolio.api.errors import TITLES
from chainfolio.storage.state.refusals import Code

ROOT = Path(__file__).resolve().parents[2]
PAGE, OTHER = ((ROOT / "docs" / name).read_text() for name in ("contract.md", "bad-input.md"))
ROWS, OTHERS = (
    [line.strip("|").split("|") for line in page.splitlines() if re.match(r"\| (?!Rule |# |What comes )", line)]
    for page in (PAGE, OTHER)
)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Codes that the service description does not have.
OURS = {"FORBIDDEN", "ALREADY_SUBSCRIBED"}


@cache
def found_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_refusal_is_in_the_table_of_the_how_to() -> None:
    table = (ROOT / "docs" / "how-to" / "use-the-api.md").read_text().partition("## When it says no")[2]
    statuses = [status for row in re.findall(r"^\| ([0-9, ]+) \|", table, re.M) for status in row.split(", ")]
    assert sorted(map(int, statuses)) == sorted(TITLES)


def test_every_test_that_is_named_exists() -> None:
    names = NAMED.findall(PAGE + OTHER)
    assert len(names) > 230
    assert [f"{path}::{name}" for path, name in names if name not in found_in(path)] == []
    assert all(name.startswith("test_") for _, name in names)


def test_no_rule_is_without_a_test() -> None:
    assert len(ROWS) > 130
    assert len(OTHERS) > 30
    for row in ROWS + OTHERS:
        assert all(cell.strip() for cell in row), row
        test_names = row[-1].strip().split("<br>")
        assert all(NAMED.fullmatch(each) for each in test_names), row


def test_every_decision_has_its_row() -> None:
    numbers = [int(row[0]) for row in ROWS if row[0].strip().isdigit() and len(row) == 3]
    assert numbers == list(range(1, 33))


def test_every_code_of_a_refusal_has_its_row() -> None:
    assert [code for code in get_args(Code) if code not in PAGE and code not in OURS] == []
