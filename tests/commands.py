"""Commands that print one JSON document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chainfolio.cli.main import main


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command with `--json` that succeeds; return its document, None if it prints nothing."""
    capsys.readouterr()
    code = main((*arguments, "--json"))
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    return json.loads(printed.out) if printed.out else None
