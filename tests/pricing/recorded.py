"""Recorded answers of vendors, read in place; a test is skipped where they are not there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "prices"


def file(name: str) -> Path:
    """A recorded file."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {name} beside the project")
    return path


def answers(provider: str) -> Iterator[tuple[str, dict[str, str], bytes, Any]]:
    """Path, query, body and the body with its numbers as text, of each good answer of a vendor."""
    with gzip.open(file("api.http.jsonl.gz"), "rt") as lines:
        for line in lines:
            digits = json.loads(line, parse_float=str, parse_int=str)
            if digits["provider"] == provider and digits["status"] == "200":
                body = line[line.index('"json":') + len('"json":') : line.rindex("}")]
                yield digits["path"], digits["query"], body.encode(), digits["json"]
