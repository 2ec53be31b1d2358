"""The environment of a timed command, and the facts that are known after it."""

from __future__ import annotations

import os
import sys

import pytest

from bench import runs


def test_a_timed_run_keeps_byte_code_and_takes_no_settings_of_somebodys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("CHAINFOLIO_DATA", "elsewhere")
    environment = runs.environment({"CHAINFOLIO_LOG_LEVEL": "info"})
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert {name for name in environment if name.startswith("CHAINFOLIO_")} == {"CHAINFOLIO_LOG_LEVEL"}


def test_the_last_line_is_the_answer_and_the_code_says_how_it_ended() -> None:
    run_result = runs.run([sys.executable, "-c", "print('hello'); print('{\"rows\": 3}')"], runs.environment())
    assert run_result.checked().json() == {"rows": 3}


def test_a_run_that_ends_badly_says_what_it_complained_of() -> None:
    failed = runs.run([sys.executable, "-c", "raise SystemExit('no such thing')"], runs.environment())
    assert failed.code == 1
    with pytest.raises(AssertionError, match="no such thing"):
        failed.checked()


def test_a_process_is_in_its_own_tree() -> None:
    assert os.getpid() in runs.tree(os.getpid())
