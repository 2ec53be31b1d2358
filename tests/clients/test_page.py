"""The how-to about the clients can be followed: its code runs as it stands, against a demo."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain import install
from tests.docs.test_commands import FENCES
from tests.e2e.running import ROOT, Demo

PAGE = (ROOT / "docs" / "how-to" / "use-a-client.md").read_text()


def blocks(language: str, demo: Demo) -> list[str]:
    """The blocks of a language, with the address of the demo and the key of a new account."""
    key = demo.account(f"reads {language}", grants=("portfolio",)).key
    bodies = [body for kind, body in FENCES.findall(PAGE) if kind == language]
    return [body.replace("http://127.0.0.1:8080", demo.url).replace("cf_live_…", key) for body in bodies]


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


TSCONFIG = {
    "compilerOptions": {
        "target": "es2022",
        "lib": ["es2023", "dom", "dom.asynciterable"],
        "module": "nodenext",
        "types": [],
        "strict": True,
        "exactOptionalPropertyTypes": True,
        "noUncheckedIndexedAccess": True,
        "skipLibCheck": True,  # the build has checked them
    },
    "include": ["*.ts"],
}
WRONG = """
import { createClient } from "chainfolio-client";
const client = createClient("");
// @ts-expect-error: an argument that the call does not have
await client.portfolio({ addresses: [], wallets: [] });
// @ts-expect-error: a required argument that is missing
await client.historical({ addresses: [] });
// @ts-expect-error: a value that is none of the enumeration
client.transactions({ addresses: [], sort: "UP" });
await client.addEntries({ entries: [{ address: "" }] }); // a label has a default
// @ts-expect-error: an amount is a text, with which nobody computes by mistake
const sum: number = (await client.nav({ addresses: [] })).nav + 1;
"""


@pytest.mark.node
@pytest.mark.xdist_group("demo")
def test_the_typescript_of_the_page_is_strict_and_runs(project: Path, demo: Demo) -> None:
    (project / "package.json").write_text('{"type": "module"}')
    (project / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    (project / "page.ts").write_text("\n".join(blocks("ts", demo)))
    (project / "wrong.ts").write_text(WRONG)
    tsc = install.home() / "clients" / "node_modules" / ".bin" / "tsc"
    for command in ([str(tsc)], ["node", "page.js"]):
        process = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
    assert re.search(r"^[\d.]{10,} complete$", process.stdout, re.M)
    assert "[ 'treasury' ]" in process.stdout
    assert re.search(r"^400 Validation Failed 400 Validation Failed: ", process.stdout, re.M)


def test_the_page_names_the_files_that_are_built(wheel: Path) -> None:
    paths = re.findall(r"dist/clients/(\S+\*\S+)", PAGE)
    assert len(paths) == 2
    assert wheel.match(paths[0])


@pytest.mark.slow("a minute of type checks; the other tests run the same code")
def test_the_package_and_the_python_of_the_page_pass_strict_type_checks(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(installed, folder)
    code = [body for kind, body in FENCES.findall(PAGE) if kind == "python"]
    (folder / "page.py").write_text("\n".join(code).replace("async def main():", "async def main() -> None:"))
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "chainfolio_client", "page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
