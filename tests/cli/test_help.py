"""Help of every command: examples, versions, suggestions, completion; output fits the terminal."""

from __future__ import annotations

import argparse
import csv
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from chainfolio import __version__
from chainfolio.cli.common import show_csv, show_table
from chainfolio.cli.demo import as_called
from chainfolio.cli.examples import EXAMPLES
from chainfolio.cli.main import commands_of, parser
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.cli.conftest import Run, configure

ROOT = Path(__file__).resolve().parents[2]


def leaves(of: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that runs, verbs included."""
    below = commands_of(of)
    for name, subparser in below.items():
        yield from leaves(subparser, (*path, name))
    if not below:
        yield " ".join(path)


def test_every_command_has_examples_that_can_be_meant(run: Run) -> None:
    top = parser()
    assert sorted(EXAMPLES) == sorted(leaves(top))
    for command, examples in EXAMPLES.items():
        assert examples, command
        help_text = run(*command.split(), "--help").out
        for example in examples:
            assert f"  chainfolio {command} {example}".rstrip() in help_text
            arguments = shlex.split(re.split(r" ?[<>] ", f"{command} {example} ")[0])
            assert callable(top.parse_args(arguments).run), example


def test_there_is_one_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"chainfolio {__version__}\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "chainfolio/__init__.py"}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("portfolo", "0x1"), "portfolio"),
        (("account", "creat"), "create"),
        (("doctor", "--jsn"), "--json"),
        (("account", "create", "--name", "x", "--credit", "5", "--plan", "PR"), "PRO"),
        (("key", "list", "--acount", "x", "--account", "y"), "--account"),
    ],
)
def test_a_word_that_is_mistyped_is_told_with_what_was_likely_meant(
    run: Run, arguments: tuple[str], meant: str
) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert f"did you mean {meant}?" in ran.err


@pytest.mark.parametrize(
    "before", [("--config", "mine.toml"), ("--config=mine.toml",), ("--json", "--config", "mine.toml")]
)
def test_options_of_every_command_may_stand_before_it(run: Run, here: Path, before: tuple[str, ...]) -> None:
    (here / "mine.toml").write_text("[server]\nprot = 1")
    assert "did you mean `port`?" in (ran := run(*before, "status")).out + ran.err
    assert ran.code == run("status", *before).code
    assert run("--config").code == 2


def test_a_word_like_no_other_is_told_without_a_guess(run: Run) -> None:
    assert "did you mean" not in run("zzzzzzzzz").err


@pytest.mark.skipif(which("bash") is None, reason="there is no bash here")
def test_the_tab_key_completes_commands_verbs_and_options(run: Run, here: Path) -> None:
    (here / "completion").write_text(run("completion", "bash").out)

    def completed(*words: str) -> set[str]:
        line = " ".join(shlex.quote(argument) for argument in ("chainfolio", *words))
        compressed = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE='{line}'; COMP_POINT={len(line)}"
        ask = f"source ./completion; {compressed}; $(complete -p chainfolio | grep -oE '_shtab[a-z_]+')"
        ask += "; printf '%s\\n' \"${COMPREPLY[@]}\""
        completion = subprocess.run(["bash", "-c", ask], cwd=here, capture_output=True, text=True, check=True)
        return {argument.strip() for argument in completion.stdout.splitlines()}

    assert completed("port") == {"portfolio"}
    assert {"create", "credit"} <= completed("account", "cr")
    assert "--estimate" in completed("index", "--est")
    assert "chainfolio" in run("completion", "zsh").out


# --- the settings file -----------------------------------------------------------------------------------------------


def test_init_writes_a_settings_file_that_is_read_and_none_over_another(run: Run, here: Path) -> None:
    assert run("init", "--chain", "base", "--rpc", "http://127.0.0.1:1").code == 0
    settings = load(here / "chainfolio.toml", {})
    assert settings.chains["base"].endpoints == ["http://127.0.0.1:1"]
    assert settings.server == Settings().server
    before = (here / "chainfolio.toml").read_text()
    assert run("init").code == 2
    assert (here / "chainfolio.toml").read_text() == before
    assert run("init", "--config", "other.toml").code == 0
    assert load(here / "other.toml", {}).chains["ethereum"].endpoints == ["http://127.0.0.1:8545"]


# --- tables and values -----------------------------------------------------------------------------------------------

WIDE = ("0x" + "ab" * 20, "123456789012345678901234567890.123456789", "two words")


@pytest.mark.parametrize("columns", ["80", "60", "120"])
def test_a_table_fits_the_terminal_and_splits_neither_words_nor_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for rows in ([WIDE], [WIDE, ("0x1", "-1", "")], [("a", "1", "b")], []):
        show_table("t", [("address", ""), ("amount", "right"), ("note", "")], rows)
        output = capsys.readouterr().out
        assert all(cell in output or set(cell.split()) <= set(output.split()) for row in rows for cell in row)
        assert max(map(len, output.splitlines())) <= int(columns)


@pytest.mark.parametrize("width", ["200", "12"], ids=["as a table", "as lines"])
def test_no_cell_steers_the_terminal_or_hides_what_stands_beside_it(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    show_table("", [("asset", ""), ("amount", "right")], [("\x1b[2JUS\u202eCD\u200b\x07S", "1\x9b31m\n2")])
    output = capsys.readouterr().out
    assert "[2JUSCDS" in output, "letters stay"
    assert "131m" in output
    assert not {"\x1b", "\x9b", "\x07", "\u202e", "\u200b"} & set(output)


def test_a_column_without_a_word_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("", [("asset", ""), ("position", "")], [("ETH", ""), ("WETH", "")])
    assert "position" not in capsys.readouterr().out


def test_a_query_is_read_from_standard_input_and_answered_as_csv(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS one, 'a,b' AS two, NULL AS three"))
    ran = run("sql", "-", "--csv")
    assert (ran.code, ran.out) == (0, 'one,two,three\n1,"a,b",\n')


def test_a_text_that_a_spreadsheet_would_run_is_plain_text_and_numbers_stay_exact(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", '=HYPERLINK("http://x","y")']
    numbers: list[object] = ["-12.5", "0." + "0" * 17 + "1", "9" * 77, -3, 10**30, None]
    show_csv(["text"], [[each] for each in (*hostile, *numbers)])
    cells = [row[0] for row in csv.reader(io.StringIO(capsys.readouterr().out, newline=""))][1:]
    assert cells == [f"'{each}".replace("\r", " ") for each in hostile] + [
        "" if each is None else str(each) for each in numbers
    ]


# --- status ----------------------------------------------------------------------------------------------------------


def test_status_says_what_it_knows_where_no_node_answers(run: Run, here: Path, dead: str, waited: list[float]) -> None:
    configure(here, dead, chain="local")
    ran = run("status", "--json")
    assert ran.code == 3
    (chain,) = ran.json["chains"]
    assert (chain["newest"], chain["head"], chain["behind"]) == (None, None, None)
    assert "cannot be reached" in chain["problem"]
    assert run("status").out.startswith("local: followed to nothing yet; ")


def test_a_port_that_is_taken_is_told_before_the_demo_begins(run: Run, dead: str, here: Path) -> None:
    port = dead.rpartition(":")[2]
    ran = run("demo", "--port", port)
    assert (ran.code, ran.err) == (
        2,
        f"error: server.port: {port} on 127.0.0.1 is taken\n  remedy: stop the other server or choose another port\n",
    )
    assert list(here.iterdir()) == []


def test_the_demo_names_commands_as_the_users_shell_finds_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = here / "my venv", here / "bin"
    for folder in folders:
        folder.mkdir()
        (folder / "chainfolio").touch(0o755)
    command = str(folders[0] / "chainfolio")
    monkeypatch.setenv("PATH", "")
    assert as_called(command) == "'my venv/chainfolio'"
    assert as_called("-c") == "chainfolio"
    monkeypatch.setenv("PATH", str(folders[1]))
    assert as_called(command) == "'my venv/chainfolio'"
    monkeypatch.setenv("PATH", str(folders[0]))
    assert as_called(command) == "chainfolio"
