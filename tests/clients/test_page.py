"""The how-to about the clients can be followed: its code runs as it stands, against a demo."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_commands import FENCES
from tests.e2e.running import ROOT, Demo

PAGE = (ROOT / "docs" / "how-to" / "use-a-client.md").read_text()


def blocks(language: str, demo: Demo) -> list[str]:
    """The blocks of a language, with the address of the demo and the key of a new account."""
    key = demo.account(f"reads {language}", grants=("portfolio",)).key
    found = [body for kind, body in FENCES.findall(PAGE) if kind == language]
    return [body.replace("http://127.0.0.1:8080", demo.url).replace("cf_live_…", key) for body in found]


@pytest.mark.node
@pytest.mark.xdist_group("demo")
def test_the_python_of_the_page_runs(
    package: Any, demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for body in blocks("python", demo):
        before = names.get("client")
        exec(compile(body, "use-a-client.md", "exec"), names)
        if before is not None and names["client"] is not before:
            before.close()
    names["client"].close()
    printed = capsys.readouterr().out
    assert (tmp_path / "holdings.csv").stat().st_size > 100
    assert re.search(r"^usdc [\d.]+ [\d.]+$", printed, re.M)
    assert "treasury" in printed
    assert "fees_fiat_decimal" in printed
    assert "is malformed" in printed


def test_the_page_names_the_files_of_this_version(wheel: Path) -> None:
    assert f"dist/clients/{wheel.name}[polars]" in PAGE


@pytest.mark.slow("a minute of type checks; the other tests run the same code")
def test_the_package_and_the_python_of_the_page_pass_strict_type_checks(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(installed, folder)
    code = [body for kind, body in FENCES.findall(PAGE) if kind == "python"]
    (folder / "page.py").write_text("\n".join(code).replace("async def main():", "async def main() -> None:"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "chainfolio_client", "page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
