"""A cold start: the list of commands says what each command says, and imports none of them."""

from __future__ import annotations

import subprocess
import sys

from chainfolio.cli.groups import GROUPS
from chainfolio.cli.main import parser

LARGE = {"asyncio", "msgspec", "numpy", "polars", "pyarrow", "rich"}


def test_the_list_of_commands_says_what_each_command_says() -> None:
    assert parser([], name_only=GROUPS).format_help() == parser().format_help()


def test_help_imports_nothing_large() -> None:
    code = (
        "import sys, chainfolio.cli.main as c; from contextlib import suppress\n"
        "with suppress(SystemExit): c.main(['--help'])\n"
        f"print(sorted({LARGE} & set(sys.modules)), file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stderr == "[]\n"
