"""The private PostgreSQL of the tests: a start that a signal ends is repeated once."""

from __future__ import annotations

import subprocess

import psycopg
import pytest

from tests.storage.stores import NO_POSTGRES, Server, own_server


@pytest.mark.parametrize("has_started", [False, True], ids=["before-the-server", "after-the-server"])
def test_a_start_that_a_signal_ends_is_repeated_once(monkeypatch: pytest.MonkeyPatch, has_started: bool) -> None:
    run = Server._run
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        server.stop()
        starts = []

        def end_first_start(self: Server, program: str, *arguments: str) -> None:
            if arguments[-1] == "start":
                starts.append(program)
            if arguments[-1] != "start" or len(starts) > 1 or has_started:
                run(self, program, *arguments)
            if starts == ["pg_ctl"]:
                starts.append("ended")
                raise subprocess.CalledProcessError(-15, program)

        monkeypatch.setattr(Server, "_run", end_first_start)
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert starts == ["pg_ctl", "ended", "pg_ctl"]
