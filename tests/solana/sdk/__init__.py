"""What the vendors of Solana's protocols publish in npm, as the other opinion: their coders and their arithmetic."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain import install
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing

HERE = Path(__file__).parent
PATIENCE_S = 300.0
Job = tuple[str, Mapping[str, Any]]


def done(jobs: Sequence[Job], apart: str = "") -> list[Any]:
    """What the SDKs give for some jobs, in their order, or one that lives `apart` in a folder here; skips the test
    where they cannot be installed."""
    folder = HERE / apart
    try:
        home = install.packages(
            folder / "package.json", install.home() / f"solana-sdk{apart and '-'}{apart}", PATIENCE_S
        )
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"the SDKs cannot be installed here: {error}")
    asked = json.dumps([(name, _given(fields)) for name, fields in jobs])
    run = subprocess.run(
        ["node", str(folder / "sdk.cjs"), str(home)],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    answers: list[Any] = _told(json.loads(run.stdout[run.stdout.index("[") :]))
    return answers


def one(name: str, **fields: Any) -> Any:
    """What one job gives."""
    return done([(name, fields)])[0]


def _given(value: Any) -> Any:
    """A value for the SDKs: an int is a big number, unless it is said to be small by a `Small`."""
    match value:
        case bool() | str() | None:
            return value
        case Small():
            return int(value)
        case int():
            return f"{value}n"
        case bytes():
            return {"hex": value.hex()}
        case Mapping():
            return {key: _given(each) for key, each in value.items()}
        case _:
            return [_given(each) for each in value]


class Small(int):
    """A number that JavaScript has as a number."""


def _told(value: Any) -> Any:
    if isinstance(value, str):
        return int(value[:-1]) if re.fullmatch(r"-?[0-9]+n", value) else value
    if isinstance(value, list):
        return [_told(each) for each in value]
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else {k: _told(v) for k, v in value.items()}
    return value
