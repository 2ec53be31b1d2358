"""Examples in the documentation run: Python is executed, TOML is read by what reads it, tables are well-formed.

`test_commands` runs the shell blocks with commands of ours, `test_use_the_api` the curl lines, `test_operate` the
installation.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainfolio.adapters.evm.kit.kit import SCAFFOLD
from chainfolio.settings import load
from tests.docs.test_commands import FENCES, OURS, is_settings
from tests.docs.test_commands import PAGES as COMMAND_PAGES
from tests.docs.test_use_the_api import PAGES as CURL_PAGES
from tests.e2e.running import ROOT, Demo, environment

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
DELIMITER = re.compile(r"\|( *:?-+:? *\|)+")
CELLS = re.compile(r"(?<!\\)\|")
VARIABLE = re.compile(r'"env:(\w+)"')

# Blocks that cannot be run as they stand, by page and first line, each with the reason.
NOT_RUN = {
    (
        "README.md",
        "make demo      # a real local chain with real contracts, traded on, indexed, priced, served; "
        "prints a key and a curl line",
    ): "`make demo` is the demo of the other tests; `make test` is this run",
    ("docs/how-to/use-the-api.md", 'make demo ARGS="--blocks 600"'): "the demo of the other tests, with fewer blocks",
    ("docs/how-to/use-the-api.md", "URL=http://127.0.0.1:8080/v1"): "variables that the tests of the curl lines set",
    ("docs/how-to/operate.md", "# /etc/systemd/system/chainfolio.service"): "systemd reads it in test_operate",
    ("docs/how-to/operate.md", "# /etc/sysusers.d/chainfolio.conf"): "systemd reads it in test_operate",
    ("docs/how-to/operate.md", "systemd-sysusers                                      # creates the user"): (
        "it changes the machine; test_operate creates the user in a folder"
    ),
    (
        "docs/how-to/operate.md",
        "*/10 * * * * /usr/local/bin/chainfolio status --config "
        "/etc/chainfolio/chainfolio.toml --json > /var/lib/chainfolio/status.json",
    ): "cron and its folders are not here",
    ("api/README.md", '@get("/v1/wallet", tag="Portfolio", summary="Wallet balances, read live")'): "a signature",
    ("docs/architecture.md", "interfaces   cli → api                    parse, call, render"): "a drawing",
}
OTHERS = ("python", "toml", "json", "text", "markdown")  # run above, or what commands print and templates


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    body: str

    @property
    def first(self) -> str:
        """Its first line."""
        return self.body.strip().splitlines()[0].strip()

    @property
    def is_left_out(self) -> bool:
        """Whether NOT_RUN has a reason for it."""
        return (self.page, self.first) in NOT_RUN


def blocks() -> Iterator[Block]:
    """Every fenced block of the documentation."""
    for path in PAGES:
        for language, body in FENCES.findall(path.read_text()):
            yield Block(str(path.relative_to(ROOT)), language, body)


def of(language: str) -> list[Block]:
    """The blocks of a language that are run."""
    return [block for block in blocks() if block.language == language and not block.is_left_out]


def named(block: Block) -> str:
    """The name of a case."""
    return f"{block.page}: {block.first[:40]}"


@pytest.mark.node
@pytest.mark.xdist_group("demo")
@pytest.mark.parametrize("block", of("python"), ids=named)
def test_python_runs_as_it_stands(block: Block, demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(demo.config.parent)
    code = block.body.replace("http://127.0.0.1:8545", demo.node)
    if block.page == "localchain/README.md":  # the page imports in its text
        code = (
            "from chainfolio.localchain.deploy import deploy\nfrom chainfolio.localchain.node import LocalNode\n" + code
        )
        code = "from chainfolio.localchain.trade import trade\n" + code.replace("blocks=300", "blocks=5")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_the_family_of_the_page_is_the_file_that_new_protocol_writes() -> None:
    (block,) = [each for each in of("python") if each.page.endswith("add-a-protocol.md")]
    written = SCAFFOLD.format(title="x", key="mystaking")
    code = re.sub(r'^ *""".*"""\n|^from __future__ .*\n', "", written, flags=re.M).strip()
    assert re.sub(r"\n{2,}", "\n", block.body.strip()) == re.sub(r"\n{2,}", "\n", code)


@pytest.mark.parametrize("block", of("toml"), ids=named)
def test_toml_is_read(block: Block, tmp_path: Path) -> None:
    if not is_settings(block.body):
        assert tomllib.loads(block.body)
        return
    file = tmp_path / "chainfolio.toml"
    file.write_text(block.body)
    places = {"CHAINFOLIO_DATABASE": "postgresql://chainfolio@127.0.0.1/chainfolio"}
    load(file, {name: places.get(name, "http://127.0.0.1:8545") for name in VARIABLE.findall(block.body)})


def test_every_other_block_is_run_by_a_test_or_left_out_with_a_reason() -> None:
    command_pages = {str(page.path.relative_to(ROOT)) for page in COMMAND_PAGES}
    curl_pages = {str(path.relative_to(ROOT)) for path in CURL_PAGES}
    unknown = [
        (block.page, block.first)
        for block in blocks()
        if block.language not in OTHERS
        and not block.is_left_out
        and not (block.page in command_pages and OURS.search(block.body))
        and not (block.page in curl_pages and block.language == "sh")
        and not (block.page == "docs/how-to/operate.md" and block.language == "sh")
    ]
    assert unknown == []
    shown = {(block.page, block.first) for block in blocks()}
    assert [each for each in NOT_RUN if each not in shown] == [], "a reason for a block that no page has"


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_table_is_well_formed(path: Path) -> None:
    for number, rows in tables(path.read_text()):
        assert len(rows) > 1, f"line {number} is no row of a table"
        assert DELIMITER.fullmatch(rows[1]), f"line {number}: a table has a rule below its head"
        assert {len(CELLS.split(row)) for row in rows} == {len(CELLS.split(rows[0]))}, f"line {number}"


def tables(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that look like tables, with the number of the first, outside of fences."""
    is_code, rows = False, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_code ^= line.startswith("```")
        if line.startswith("|") and not is_code:
            rows.append(line.strip())
        elif rows:
            yield number - len(rows), rows
            rows = []
