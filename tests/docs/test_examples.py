"""Examples in the documentation run: Python is executed, TOML and JSON are read by their readers, commands parsed.

`test_commands` runs the shell blocks with commands of ours, `test_use_the_api` the curl lines, `test_operate` the
installation. What no test can run is in NOT_RUN, with its reason.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from chainfolio.adapters.evm.kit.kit import SCAFFOLD
from chainfolio.cli.main import UsageError, parser
from chainfolio.exports.close.policy import policy_in
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import check_protocol, protocol_of
from chainfolio.pricing.registry import GROUP, build_sources
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.docs.test_commands import FENCES, OURS
from tests.docs.test_commands import PAGES as COMMAND_PAGES
from tests.docs.test_joining import TARGETS
from tests.docs.test_operate import fences
from tests.docs.test_use_the_api import EXAMPLES
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
    (
        "docs/how-to/use-the-dashboard.md",
        'make demo ARGS="--blocks 600"',
    ): "the demo of the other tests, with fewer blocks",
    ("docs/how-to/use-the-api.md", "URL=http://127.0.0.1:8080/v1"): "variables that the tests of the curl lines set",
    (
        "docs/explanation/unattended.md",
        'make soak ARGS="--days 1 --block-ms 2000"       # about five minutes of processor time',
    ): "takes minutes; tests/bench/test_soak.py runs a shorter one",
    ("docs/runbook.md", "rule_files: [prometheus-rules.yml]"): "Prometheus reads it; test_alerts reads the rules",
    (
        "docs/how-to/operate.md",
        "install -m 0644 deploy/systemd/chainfolio.sysusers.conf /etc/sysusers.d/chainfolio.conf",
    ): "it changes the machine; test_operate creates the user in a folder",
    ("docs/how-to/deploy.md", "docker build -f deploy/Dockerfile -t chainfolio ."): "test_deploy runs the steps",
    ("docs/how-to/deploy.md", "umask 077"): "it needs Docker; test_deploy checks the file of the services",
    (
        "docs/how-to/deploy.md",
        "kubectl create namespace chainfolio",
    ): "it needs a cluster; test_deploy checks the files",
    (
        "docs/how-to/operate.md",
        "*/10 * * * * /usr/local/bin/chainfolio status --config "
        "/etc/chainfolio/chainfolio.toml --json > /var/lib/chainfolio/status.json",
    ): "cron and its folders are not here",
    ("api/README.md", '@get("/v1/wallet", tag="Portfolio", summary="Wallet balances, read live")'): "a signature",
    ("docs/architecture.md", "interfaces   cli → api                    parse, call, render"): "a drawing",
}
RUN_ELSEWHERE = ("docs/how-to/use-a-client.md",)  # tests/clients/test_page.py has the packages that it shows
OTHERS = ("python", "toml", "json", "text", "markdown")  # run below, or what commands print and templates
COMMAND = re.compile(r"^(?:\S.*?[ /])?chainfolio (?!-)([a-z][a-z-]*.*)$", re.M)
MAKE = re.compile(r"^make ([a-z-]+)", re.M)
PROGRAM = re.compile(r"^(chainfolio|curl|git|make|pip|python3?|sudo|systemctl) ", re.M)
REDIRECTIONS = frozenset({"|", ">", "<", "&&", "||"})


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    body: str

    @property
    def first(self) -> str:
        """Return its first line."""
        return self.body.strip().splitlines()[0].strip()

    @property
    def is_left_out(self) -> bool:
        """Return True if another test runs it, or NOT_RUN has a reason for it."""
        return self.page in RUN_ELSEWHERE or (self.page, self.first) in NOT_RUN


def blocks() -> Iterator[Block]:
    """Every fenced block of the documentation."""
    for path in PAGES:
        for language, body in FENCES.findall(path.read_text()):
            yield Block(str(path.relative_to(ROOT)), language, body)


def of(language: str) -> list[Block]:
    """The blocks of a language that are run."""
    return [block for block in blocks() if block.language == language and not block.is_left_out]


def block_id(block: Block) -> str:
    """The name of a case."""
    return f"{block.page}: {block.first[:40]}"


@pytest.mark.node
@pytest.mark.xdist_group("demo")
@pytest.mark.parametrize("block", of("python"), ids=block_id)
def test_python_runs_as_it_stands(block: Block, demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(demo.config.parent)
    code = block.body.replace("http://127.0.0.1:8545", demo.node)
    if block.page == "localchain/README.md":  # the page imports in its text
        code = (
            "from chainfolio.localchain.deploy import deploy\nfrom chainfolio.localchain.node import LocalNode\n" + code
        )
        code = "from chainfolio.localchain.trade import trade\n" + code.replace("blocks=300", "blocks=5")
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr


def test_the_family_of_the_page_is_the_file_that_new_protocol_writes() -> None:
    (block,) = [each for each in of("python") if each.page.endswith("add-a-protocol.md")]
    scaffold = SCAFFOLD.format(title="x", key="mystaking")
    code = re.sub(r'^ *""".*"""\n|^from __future__ .*\n', "", scaffold, flags=re.M).strip()
    assert re.sub(r"\n{2,}", "\n", block.body.strip()) == re.sub(r"\n{2,}", "\n", code)


@pytest.mark.parametrize("block", of("toml"), ids=block_id)
def test_toml_is_read(block: Block, tmp_path: Path) -> None:
    tree = tomllib.loads(block.body)
    if {"lots", "override"} & tree.keys():
        policy_in(block.body.encode())
    elif tree.keys() <= {*Settings.__struct_fields__}:
        file = tmp_path / "chainfolio.toml"
        file.write_text(block.body)
        urls = {"CHAINFOLIO_DATABASE": "postgresql://chainfolio@127.0.0.1/chainfolio"}
        load(file, {name: urls.get(name, "http://127.0.0.1:8545") for name in VARIABLE.findall(block.body)})
    elif "project" in tree:  # of the package of a plug-in
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert tree["project"]["entry-points"].keys() <= {*project["entry-points"], GROUP}
    elif tree.keys() & {"families", "transactions"}:
        head = 'key = "myswap"\nname = "MySwap"\nfamilies = ["uniswap_v2"]\ncontracts = {}\n'
        file = tmp_path / "myswap.toml"
        file.write_text(("" if "key" in tree else head) + block.body.replace("0x…", "0x" + "12" * 20))
        check_protocol(protocol_of(file, {"ethereum": "evm"}), families(), {"ethereum": "evm"})
    else:
        assert build_sources(tree, {}, "eip155:1", "evm"), "a file of prices"


@pytest.mark.parametrize("block", of("json"), ids=block_id)
def test_json_is_json(block: Block) -> None:
    assert json.loads(block.body)


def commands() -> Iterator[tuple[str, list[str]]]:
    """The words of each command of ours, with its page; `1` for variables."""
    for block in blocks():
        if block.language in ("cron", "sh", "text"):
            for command in COMMAND.findall(block.body.replace("\\\n", " ")):
                arguments = shlex.split(re.sub(r"\$\w+", "1", command), comments=True)
                end = next(
                    (index for index, argument in enumerate(arguments) if argument in REDIRECTIONS), len(arguments)
                )
                yield block.page, arguments[:end]


def test_every_command_that_is_shown_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Parse all commands, those of the reference too, which no test runs from top to bottom."""
    command_parser, all_commands, refusals = parser(), list(commands()), []
    for page, arguments in all_commands:
        try:
            with suppress(SystemExit):  # after --help
                command_parser.parse_args(arguments)
        except UsageError as error:
            refusals.append((page, arguments, str(error)))
    assert refusals == []
    assert len(all_commands) > 200


def test_every_query_that_is_shown_is_sql() -> None:
    queries = [
        argument
        for _, arguments in commands()
        if arguments[0] == "sql"
        for argument in arguments[1:]
        if not argument.startswith("-")
    ]
    assert all(len(duckdb.extract_statements(query)) == 1 for query in queries)
    assert len(queries) > 5


def test_every_target_of_make_that_is_shown_exists() -> None:
    assert {target for block in blocks() for target in MAKE.findall(block.body)} <= TARGETS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_fence_is_seen_by_these_tests(path: Path) -> None:
    text = path.read_text()
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.M)) == 2 * len(FENCES.findall(text)), "a fence begins its line"


def test_nothing_that_can_be_run_is_shown_as_text() -> None:
    # The test of commands parses these two: values are named by words, and readers do not run them in their order.
    parsed = ("docs/index.md", "docs/reference/cli.md")
    texts = [block for block in blocks() if block.language == "text" and block.page not in parsed]
    assert [(block.page, block.first) for block in texts if PROGRAM.search(block.body)] == []


def test_every_other_block_is_run_by_a_test_or_left_out_with_a_reason() -> None:
    command_pages = {str(page.path.relative_to(ROOT)) for page in COMMAND_PAGES}
    elsewhere = {*(example.command for example in EXAMPLES), fences("sh", "Install")}
    unknown = [
        (block.page, block.first)
        for block in blocks()
        if block.language not in OTHERS
        and not block.is_left_out
        and not (block.page in command_pages and OURS.search(block.body))
        and block.body not in elsewhere
    ]
    assert unknown == []
    positions = {(block.page, block.first) for block in blocks()}
    assert [each for each in NOT_RUN if each not in positions] == [], "a reason for a block that no page has"


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
