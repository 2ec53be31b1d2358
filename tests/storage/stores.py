"""The databases of the state store: SQLite files, and a private PostgreSQL if it is installed."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from chainfolio.storage.state import open_database
from chainfolio.storage.tail import Tail

KINDS = ("sqlite", "postgresql")
NO_POSTGRES = "PostgreSQL is not installed (no initdb on the path or under /usr/lib/postgresql)"
_numbers = itertools.count()


def binaries() -> Path | None:
    """The folder of PostgreSQL's own programs."""
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


class Server:
    """A private PostgreSQL on its own socket, which can be stopped and started again."""

    def __init__(self, programs: Path, home: Path) -> None:
        self._programs, self.home = programs, home
        self._owner, self._data = _owner(home), home / "data"
        self.url = f"postgresql://chainfolio@/postgres?host={home}"
        arguments = ("-A", "trust", "-U", "chainfolio", "--no-sync", "-E", "UTF8", "--locale=C")
        self._run("initdb", "-D", str(self._data), *arguments)

    def start(self) -> None:
        """Start it and return once it answers; retry once if a signal or a slow machine ended the start."""
        options = f"-k {self.home} -c listen_addresses='' -c fsync=off -c max_connections=100"
        start = ("pg_ctl", "-D", str(self._data), "-o", options, "-w", "-l", str(self.home / "log"), "start")
        try:
            self._run(*start)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            with suppress(subprocess.CalledProcessError):  # what is left of the first start, if anything is
                self.stop()
            self._run(*start)

    def stop(self) -> None:
        """End it as a crash does: connections break, and the next start replays its journal."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")

    def new_database(self, name: str) -> str:
        """Create an empty database, in place of one of this name, and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url.replace("/postgres?", f"/{name}?")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=self._owner, cwd=self.home, timeout=120)


@contextmanager
def own_server() -> Iterator[Server | None]:
    """A running server; None where there is no PostgreSQL."""
    programs = binaries()
    if programs is None:
        yield None
        return
    home = Path(tempfile.mkdtemp(prefix="cf-pg-"))
    try:
        server = Server(programs, home)
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # a test may have stopped it
                server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str | None]:
    """The URL of the first database of a private server; None where there is no PostgreSQL."""
    with own_server() as server:
        yield None if server is None else server.url


def _owner(home: Path) -> int | None:
    """Return the user to run PostgreSQL as, which refuses root; None if the process is not root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    uid = names.get("postgres", names.get("nobody"))
    assert uid is not None, "root, and nobody else to run PostgreSQL as"
    os.chown(home, uid, -1)
    return uid


def _name() -> str:
    return f"t{os.getpid()}_{next(_numbers)}"


class Stores:
    """Fresh stores with all their tables: copies of one that was upgraded once."""

    def __init__(self, folder: Path, server: str | None) -> None:
        self.folder, self.server = folder, server
        self._ready: set[str] = set()

    def url(self, kind: str) -> str:
        """Return the URL of a new state store."""
        if kind == "postgresql":
            return self._copied("model", lambda url: open_database(url).close())
        model, path = self.folder / "model.db", self.folder / f"{_name()}.db"
        if not model.exists():
            open_database(f"sqlite:///{model}").close()
        shutil.copy(model, path)
        return f"sqlite:///{path}"

    def tail(self, kind: str) -> str:
        """Return the path or URL of a new tail."""
        if kind == "postgresql":
            return self._copied("tail_model", lambda url: Tail(url).close())
        return str(self.folder / f"{_name()}.db")

    def _copied(self, model: str, prepare: Callable[[str], None]) -> str:
        if self.server is None:
            pytest.skip(NO_POSTGRES)
        if model not in self._ready:
            self._run(f"CREATE DATABASE {model}")
            prepare(self.server.replace("/postgres?", f"/{model}?"))
            self._ready.add(model)
        name = _name()
        self._run(f"CREATE DATABASE {name} TEMPLATE {model}")
        return self.server.replace("/postgres?", f"/{name}?")

    def _run(self, sql: str) -> None:
        assert self.server is not None
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.encode())
