"""The documentation is true: generated pages are current, links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chainfolio.cli.main import parser
from docs import build_protocols, build_settings
from docs.build_tables import PAGE, page

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
COMMAND = re.compile(r"^\s*(?:\$ )?chainfolio ([a-z-]+)(?: ([a-z]+))?", re.M)


def test_the_table_reference_is_the_tables() -> None:
    assert PAGE.read_text() == page(), "run: python -m docs.build_tables"


def test_the_settings_reference_is_the_settings() -> None:
    assert build_settings.PAGE.read_text() == build_settings.page(), "run: python -m docs.build_settings"


def test_the_page_of_protocols_is_the_files_and_families() -> None:
    assert build_protocols.PAGE.read_text() == build_protocols.page(), "run: python -m docs.build_protocols"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_command_that_is_shown_exists() -> None:
    groups = parser()._subparsers
    assert groups is not None
    commands = set(groups._group_actions[0].choices or ())
    commands_shown = {match[1] for path in PAGES for match in COMMAND.finditer(path.read_text())}
    assert commands_shown, "the documentation shows commands"
    assert commands_shown <= commands, f"not commands: {commands_shown - commands}"
