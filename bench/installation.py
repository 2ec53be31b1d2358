"""Servers and workers of one installation: separate data folders, one PostgreSQL and one lake."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.runs import environment, product
from chainfolio.cli.state_store import open_state
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from chainfolio.storage.state import State

END_S: Final = 90.0  # the time limit of the systemd units
HOLD_S: Final = 15
GRANTS: Final = ("portfolio",)


@dataclass
class Process:
    """One process that can be started repeatedly.

    Attributes:
        arguments: Arguments of the command `chainfolio`.
        variables: Its environment, in addition to that of this process.
        running: None while it does not run.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str]
    log: Path
    running: subprocess.Popen[bytes] | None = None
    _printed: int = 0  # bytes of the log when it was started

    def start(self) -> None:
        """Start it; its output is appended to `log`."""
        with self.log.open("ab") as log:
            command = [*product(), *self.arguments]
            self._printed = log.tell()
            self.running = subprocess.Popen(command, env=environment(self.variables), stdout=log, stderr=log)

    @property
    def has_begun(self) -> bool:
        """True if it has printed a line: servers print their port, and workers report their work."""
        return self.log.stat().st_size > self._printed

    @property
    def printed(self) -> str:
        """Return the output since the last start."""
        return self.log.read_bytes()[self._printed :].decode(errors="replace")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and return its exit code once it has ended; it is killed after `END_S`."""
        assert self.running is not None, "started before"
        running, self.running = self.running, None
        running.send_signal(number)
        try:
            return running.wait(END_S)
        except subprocess.TimeoutExpired:
            running.kill()
            return running.wait()


@dataclass
class Installation:
    """Processes by name.

    Attributes:
        folder: An empty folder for settings, data and logs.
        chains: URL of the node and chain id by the key of each chain.
        database: URL of an empty database.
        lake: Address of an empty lake.
        variables: Environment of all processes, such as credentials.
        watch: Accounts whose histories are indexed.
    """

    folder: Path
    chains: Mapping[str, tuple[str, int]]
    database: str
    lake: str
    variables: Mapping[str, str] = field(default_factory=dict)
    watch: Sequence[str] = ()
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Settings with all chains and a separate data folder."""
        return load(self.config("first", self.chains), {})

    def config(self, name: str, chains: Sequence[str] | Mapping[str, object]) -> Path:
        """Write settings with some of the chains and a data folder called `name`; return their file."""
        store = f'url = "{self.database}"'
        lines = [
            f'data = "{self.folder}/{name}"',
            "[server]\ncache_s = 1\nstop_notice_s = 1",
            f"[limits]\nper_minute = 1000000\nhold_s = {HOLD_S}",
            "[quotas]\naddressbook = 1000000\naddressbook_paid = 1000000",
            f"[accounts]\nwatch = {json.dumps(list(self.watch))}",
            f'[state]\n{store}\n[tail]\n{store}\n[lake]\nuri = "{self.lake}"',
        ]
        for key in chains:
            url, chain_id = self.chains[key]
            facts = (CONFIGS / "chains" / "local.toml").read_text().replace('key = "local"', f'key = "{key}"')
            (self.folder / f"{key}.facts.toml").write_text(facts.replace("31337", str(chain_id)))
            lines.append(f'[chains.{key}]\nrpc = ["{url}"]\nspan = 25\nfacts = "{self.folder}/{key}.facts.toml"')
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join([*lines, ""]))
        return path

    def state(self) -> State:
        """Open the state store; its secret is created if it is missing."""
        return open_state(self.settings)

    def key(self, state: State) -> str:
        """Create an account with plenty of credits and return its key."""
        return state.create_account(f"bench {random.getrandbits(32)}", "PRO", 10**9, GRANTS)[1]

    def add(self, name: str, *arguments: str, port: int = 0, chains: Sequence[str] = ()) -> Process:
        """Create a process with a separate data folder and the state store's secret; do not start it.

        It has all chains if `chains` is empty.
        """
        config = self.config(name, chains or self.chains)
        (self.folder / name).mkdir()
        shutil.copy(self.folder / "first" / "pepper", self.folder / name / "pepper")
        variables = {**self.variables, "CHAINFOLIO_SERVER_PORT": str(port)}
        process = Process([*arguments, "--config", str(config)], variables, self.folder / f"{name}.log")
        self.processes[name] = process
        return process

    def restart_ended(self) -> list[str]:
        """Restart processes that ended by themselves, as systemd does; return exit code and output of each."""
        reasons = []
        for name, process in self.processes.items():
            if process.running is not None and (code := process.running.poll()) is not None:
                reasons.append(f"{name} ended with {code}: {process.printed[-1000:]}")
                process.start()
        return reasons

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            if process.running is not None:
                process.end()
