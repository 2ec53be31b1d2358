"""The databases that the state store runs on: an SQLite file, and a PostgreSQL of our own where one is installed."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from chainfolio.storage.state import open_database

KINDS = ("sqlite", "postgresql")
NO_POSTGRES = "PostgreSQL is not installed (no initdb on the path or under /usr/lib/postgresql)"
_numbers = itertools.count()


def binaries() -> Path | None:
    """The folder of PostgreSQL's own programs."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextmanager
def postgres() -> Iterator[str | None]:
    """A private server on a socket of its own; the URL of its first database, or None where there is no PostgreSQL."""
    programs = binaries()
    if programs is None:
        yield None
        return
    home = Path(tempfile.mkdtemp(prefix="cf-pg-"))
    owner = _owner(home)
    data = home / "data"

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs / program, *arguments], check=True, capture_output=True, user=owner, cwd=home, timeout=120
        )

    try:
        run("initdb", "-D", str(data), "-A", "trust", "-U", "chainfolio", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-k {home} -c listen_addresses='' -c fsync=off -c max_connections=100"
        run("pg_ctl", "-D", str(data), "-o", options, "-w", "-l", str(home / "log"), "start")
        try:
            yield f"postgresql://chainfolio@/postgres?host={home}"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _owner(home: Path) -> int | None:
    """PostgreSQL refuses to run as root: then it is run as somebody else."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    uid = names.get("postgres", names.get("nobody"))
    assert uid is not None, "root, and nobody else to run PostgreSQL as"
    os.chown(home, uid, -1)
    return uid


class Stores:
    """Fresh stores with all their tables: copies of one that was upgraded once."""

    def __init__(self, folder: Path, server: str | None) -> None:
        self.folder, self.server = folder, server
        self._ready: set[str] = set()

    def url(self, kind: str) -> str:
        """The URL of a store that nobody has used."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        if kind == "sqlite":
            model, path = self.folder / "model.db", self.folder / f"{name}.db"
            self._once(kind, f"sqlite:///{model}")
            shutil.copy(model, path)
            return f"sqlite:///{path}"
        if self.server is None:
            pytest.skip(NO_POSTGRES)
        model_url = self.server.replace("/postgres?", "/model?")
        if kind not in self._ready:
            self._run("CREATE DATABASE model")
        self._once(kind, model_url)
        self._run(f"CREATE DATABASE {name} TEMPLATE model")
        return self.server.replace("/postgres?", f"/{name}?")

    def _once(self, kind: str, url: str) -> None:
        if kind not in self._ready:
            open_database(url).close()
            self._ready.add(kind)

    def _run(self, sql: str) -> None:
        assert self.server is not None
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.encode())
