"""Commands whose output has no reader or cannot be written end as other tools do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from chainfolio.cli.main import main; sys.exit(main())",
]
BY_SHELL = 128 + 13  # what a shell says of a tool that SIGPIPE ended
LONG = "select * from range(30000) t(number)"
WORDS = [
    ["--help"],
    ["--version"],
    ["sql", "--help"],
    ["sql", "select 1"],
    ["sql", LONG],
    ["sql", LONG, "--json"],
    ["status", "--json"],
    ["doctor"],
    ["completion", "bash"],
]
FULL = Path("/dev/full")


@pytest.fixture
def environment(here: Path) -> dict[str, str]:
    """Return a user's environment, in which output is buffered."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def printed_into(target: Any, environment: dict[str, str], arguments: list[str]) -> tuple[int, str]:
    """Return the exit code and the complaint of a command that prints into a pipe or a file."""
    ran = subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdout=target,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stderr


@pytest.mark.slow(
    "other commands end in the same way", fast=["--help", "sql select * from range(30000) t(number)", "status --json"]
)
@pytest.mark.parametrize("arguments", WORDS, ids=" ".join)
def test_a_command_whose_reader_has_gone_ends_quietly(
    environment: dict[str, str], closed_pipe: int, arguments: list[str]
) -> None:
    assert printed_into(closed_pipe, environment, arguments) == (BY_SHELL, "")


def test_a_reader_of_errors_that_has_gone_is_none_either(environment: dict[str, str], closed_pipe: int) -> None:
    ran = subprocess.run(
        [*COMMAND, "status"], env=environment, stdout=subprocess.PIPE, stderr=closed_pipe, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (BY_SHELL, b"")


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_reader_that_has_had_enough_ends_a_long_answer(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "sql", LONG, "--limit", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as long:
        assert long.stdout is not None
        assert long.stderr is not None
        assert long.stdout.readline()
        long.stdout.close()
        assert long.stderr.read() == b""
        assert long.wait(120) == BY_SHELL


@pytest.mark.slow("longer answers fail in the same way", fast=["sql select 1"])
@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is full")
@pytest.mark.parametrize("arguments", WORDS[3:6], ids=" ".join)
def test_an_answer_that_cannot_be_written_is_an_error(environment: dict[str, str], arguments: list[str]) -> None:
    with FULL.open("wb") as full:
        code, complaint = printed_into(full, environment, arguments)
    assert code == 5
    assert complaint.startswith("error: output: no space left on the device\n")
    assert "Traceback" not in complaint


PRINTER = """
import signal, sys
from chainfolio.cli import main as command
def run(arguments):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.05)
    sys.stdout.write("x" * 300_000 + chr(10))
    sys.stdout.write("prompt> ")
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 0
command._ended = run
sys.exit(command.main())
"""


@pytest.mark.slow("other settings of the same pipe", fast=["non-blocking-buffered", "blocking-PYTHONUNBUFFERED"])
@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "PYTHONUNBUFFERED"])
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_an_answer_longer_than_a_pipe_is_written_whole(
    environment: dict[str, str], unbuffered: bool, blocking: bool
) -> None:
    """The reader is slow, signals arrive, and another process may have made the pipe non-blocking."""
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        [sys.executable, "-c", PRINTER], cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE
    ) as printer:
        os.close(writer)
        time.sleep(0.5)
        with os.fdopen(reader, "rb") as answer:
            assert answer.read() == b"x" * 300_000 + b"\nprompt> "
        assert printer.stderr is not None
        assert (printer.stderr.read(), printer.wait(60)) == (b"", 0)
