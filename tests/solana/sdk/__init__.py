"""Coders and arithmetic of the SDKs that Solana protocols publish on npm, as an independent reference."""

from __future__ import annotations

import atexit
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain import install
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing

HERE = Path(__file__).parent
PATIENCE_S = 300.0
Job = tuple[str, Mapping[str, Any]]


def run_jobs(jobs: Sequence[Job], apart: str = "") -> list[Any]:
    """Run jobs in the vendors' SDKs and return their results in order.

    `apart` names a folder here with an installation of a single SDK. Skips the test if the SDKs cannot be
    installed.
    """
    process = _started(apart)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([(name, _encode(fields)) for name, fields in jobs]) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        kind, _, text = line.partition(" ")
        assert kind != "FAILED", json.loads(text)
        if kind == "ANSWERS":
            answers: list[Any] = _decode(json.loads(text))
            return answers
    raise AssertionError(f"the SDKs ended with {process.wait()}")


@cache
def _started(apart: str) -> subprocess.Popen[str]:
    """The process that has some SDKs loaded; it ends with this one."""
    folder = HERE / apart
    try:
        home = install.packages(
            folder / "package.json", install.home() / f"solana-sdk{apart and '-'}{apart}", PATIENCE_S
        )
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"the SDKs cannot be installed here: {error}")
    pipe = subprocess.PIPE
    process = subprocess.Popen(["node", str(folder / "sdk.cjs"), str(home)], stdin=pipe, stdout=pipe, text=True)
    atexit.register(process.kill)
    return process


def run_job(name: str, **fields: Any) -> Any:
    """Run one job and return its result."""
    return run_jobs([(name, fields)])[0]


def _encode(value: Any) -> Any:
    """Encode a value for the SDKs: an int becomes a big number, a `Small` a plain number."""
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
            return {key: _encode(each) for key, each in value.items()}
        case _:
            return [_encode(each) for each in value]


class Small(int):
    """A number that JavaScript has as a number."""


def _decode(value: Any) -> Any:
    if isinstance(value, str):
        return int(value[:-1]) if re.fullmatch(r"-?[0-9]+n", value) else value
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else {k: _decode(v) for k, v in value.items()}
    return value
