"""Recorded responses of real nodes, next to the repository; tests without them are skipped."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "solana"
needs_recordings = pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded data is not here")


def lines(name: str) -> list[Any]:
    """The lines of a recording."""
    with gzip.open(FOLDER / name, "rt") as file:
        return [json.loads(line) for line in file]


def expected(name: str) -> Any:
    """The answers to check against."""
    return json.loads((FOLDER / name).read_text())


def body(result: Any) -> bytes:
    """A result as a node sends it."""
    return json.dumps(result, separators=(",", ":")).encode()
