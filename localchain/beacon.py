"""A local beacon chain with the consensus rules of a released client, advanced on demand."""

import json
import os
import select
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chainfolio.localchain import install
from chainfolio.localchain.errors import NodeFailed

SOURCES = Path(__file__).parent / "beacon_runtime"
INSTALL_S = 300.0
START_S = 120.0
GENESIS_S = 1_606_824_023


def ensure() -> Path:
    """Install the runtime once and return its script. Processes may call it in parallel."""
    folder = install.packages(SOURCES / "package.json", install.home() / "beacon", INSTALL_S)
    script = folder / "beacon_runtime.mjs"
    if not script.exists() or script.read_bytes() != (SOURCES / script.name).read_bytes():
        fresh = folder / f".{os.getpid()}.mjs"
        shutil.copyfile(SOURCES / script.name, fresh)
        fresh.replace(script)
    return script


class BeaconRuntime:
    """Lodestar's state transition behind the Beacon API, on a free loopback port, advanced on demand."""

    def __init__(
        self,
        *,
        preset: str = "minimal",
        fork: str = "electra",
        validators: int = 64,
        slots: int = 0,
        seed: int = 1,
        genesis_s: int = GENESIS_S,
    ) -> None:
        self.preset = preset
        self._options = ["--validators", str(validators), "--slots", str(slots), "--fork", fork, "--seed", str(seed)]
        self._options += ["--genesis", str(genesis_s)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        script = ensure()
        self._process = subprocess.Popen(
            ["node", str(script), "--port", "0", *self._options],
            env={**os.environ, "LODESTAR_PRESET": self.preset},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        try:
            self.url = json.loads(self._first_line())["url"]
        except BaseException:  # whatever it is: no process is left behind
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _first_line(self) -> str:
        """Return the first line that the process prints; NodeFailed after START_S or at its end."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "its output is read"
        end_s = time.monotonic() + START_S
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end_s - time.monotonic()))
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise NodeFailed("the beacon runtime did not start")
        return line

    def _end(self) -> None:
        """Kill the process; without effect if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    # --- control -----------------------------------------------------------------------------------------------------

    def call(self, path: str, body: object = None) -> Any:
        """Send a request, as POST if it has a body, and return the JSON of the response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return json.load(answer)

    def advance(self, slots: int, miss: Sequence[int] = ()) -> int:
        """Make `slots` slots and return the newest; the slots in `miss` get no block."""
        return int(self.call("/local/advance", {"slots": slots, "miss": list(miss)})["head"])

    def do(self, command: str, **arguments: object) -> None:
        """Send another control, such as `exit` with `validators=[9]`, for the next block."""
        self.call(f"/local/{command}", arguments)
