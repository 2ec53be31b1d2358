"""Install and run the complete beacon node. Compiling it takes minutes, so it is only done on request."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chainfolio.localchain import install
from chainfolio.localchain.errors import LocalChainError, NodeFailed

SOURCES = Path(__file__).parent
COMPILED = ("snappy", "classic-level", "bcrypto", "bigint-buffer", "@chainsafe/blst")
START_S, BEFORE_GENESIS_S = 120.0, 30
SLOT_S, VALIDATORS = 2, 16
NOBODY = "0x" + "00" * 32


def ensure() -> Path:
    """Install the node once and return its folder. Processes may call it in parallel."""
    return install.environments(SOURCES / "package.json", install.home() / "lodestar", _fill)


def installed() -> Path | None:
    """Return the folder of the node; None if it is not installed."""
    return install.environment(SOURCES / "package.json", install.home() / "lodestar")


def _fill(folder: Path, run: install.Run) -> None:
    shutil.copyfile(SOURCES / "package.json", folder / "package.json")
    npm = ["npm", "--prefix", str(folder), "--no-audit", "--no-fund"]
    run("npm install", [*npm, "install", "--ignore-scripts"])
    run("npm rebuild", [*npm, "rebuild", *COMPILED])


class Lodestar:
    """A node with all its validators on free loopback ports. It lives by the clock until it is ended."""

    def __init__(self, folder: Path) -> None:
        self._where = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._data = tempfile.mkdtemp(prefix="lodestar-")
        self.url = ""

    def __enter__(self) -> Self:
        shutil.copyfile(SOURCES / "preload.mjs", self._where / "preload.mjs")
        rest_port, peers = _free_ports(2)
        self.url = f"http://127.0.0.1:{rest_port}"
        options = "--import ./preload.mjs"
        self._process = subprocess.Popen(
            ["node", "node_modules/.bin/lodestar", "dev", *_options(self._data, self.url, rest_port, peers)],
            cwd=self._where,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LODESTAR_PRESET": "minimal", "NODE_NO_WARNINGS": "1", "NODE_OPTIONS": options},
        )
        try:
            self._wait()
        except BaseException:  # whatever it is: no process is left behind
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def call(self, path: str) -> Any:
        """Send a GET request and return the JSON of the response."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def _wait(self) -> None:
        """Return when the node answers; NodeFailed if it ends or takes longer than START_S."""
        assert self._process is not None, "it was started"
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                self.call("/eth/v1/node/version")
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                return
        raise NodeFailed("the complete beacon node did not start")

    def _end(self) -> None:
        """Kill the node and remove its data."""
        if self._process is not None:
            self._process.kill()  # it does not end by a gentler signal
            self._process.wait()
            self._process = None
        shutil.rmtree(self._data, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return different ports of this machine that nothing uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _options(data: str, url: str, rest_port: int, peers: int) -> list[str]:
    """Return options: no peers, a mocked execution client, all forks up to Capella from the first slot."""
    options = {
        "dataDir": data,
        "genesisValidators": VALIDATORS,
        "startValidators": f"0..{VALIDATORS - 1}",
        "genesisTime": int(time.time()) + BEFORE_GENESIS_S,
        "genesisEth1Hash": NOBODY,
        "rest.namespace": "*",
        "rest.port": rest_port,
        "server": url,
        "listenAddress": "127.0.0.1",
        "port": peers,
        "discv5": "false",
        "mdns": "false",
        "targetPeers": 0,
        "sync.isSingleNode": "true",
        "network.allowPublishToZeroPeers": "true",
        "eth1": "false",
        "execution.engineMock": "true",
        "params.SECONDS_PER_SLOT": SLOT_S,
        **{f"params.{name}_FORK_EPOCH": 0 for name in ("ALTAIR", "BELLATRIX", "CAPELLA")},
    }
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def main() -> None:
    """Install the beacon node and print a sentence with its folder; end with a message if that fails."""
    try:
        print(f"the complete beacon node is installed in {ensure()}")
    except LocalChainError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
