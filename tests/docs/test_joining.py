"""The pages for contributors are true: hooks, workflows and pages name the commands of the Makefile."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = ("CONTRIBUTING.md", "SECURITY.md")


def test_hooks_are_the_steps_of_make_check() -> None:
    (body,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    steps = [line.strip().replace("$(BIN)", ".venv/bin") for line in body.splitlines()]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "versions are those of the lock"
    assert [hook["entry"] for hook in repository["hooks"]] == steps
    assert all(hook["pass_filenames"] is False for hook in repository["hooks"])


def test_workflows_run_commands_that_there_are() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    job = workflow["jobs"]["check"]
    commands = [step["run"].split() for step in [*job["steps"], *workflow["jobs"]["all"]["steps"]] if "run" in step]
    targets = {command[1] for command in commands if command[0] == "make"}
    assert {"check", "quick", "test", "test-all", "docs"} <= targets <= TARGETS
    pythons = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == pythons


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_commands_and_files_that_there_are(page: str) -> None:
    text = (ROOT / page).read_text()
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.M)) <= TARGETS
    missing = [link for link in LINK.findall(text) if not (ROOT / link).exists()]
    assert missing == []
    assert len(text.splitlines()) <= 80, "one page"


def test_editors_are_told_the_width_of_lines() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[*any]\n" + (ROOT / ".editorconfig").read_text())
    assert (
        settings["*.py"]["max_line_length"]
        == re.findall(r"^line-length = (\d+)", (ROOT / "pyproject.toml").read_text(), re.M)[0]
    )
    assert settings["Makefile"]["indent_style"] == "tab"


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_forms_and_workflows_are_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)
