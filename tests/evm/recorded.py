"""Recorded answers of real chains, next to the repository; tests without them are skipped."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "evm"
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


def logs_in(receipts: list[dict[str, Any]], time_s: int) -> Logs:
    """The logs of some receipts, as `eth_getLogs` gives them, with the time of their block."""
    logs = parse("recorded", body([log for receipt in receipts for log in receipt["logs"]]))
    logs.time_s[:] = np.int64(time_s)
    return logs


def numbers(column: Any) -> list[int]:
    """A column of 32-byte raws as numbers."""
    return [int.from_bytes(value, "big") for value in column.to_pylist()]
