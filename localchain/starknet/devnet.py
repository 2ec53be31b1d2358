"""A Starknet node of one's own: StarkWare's sequencer of 2023 behind JSON-RPC, in an environment with Python 3.9."""

import json
import os
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localchain import install
from localchain.errors import NodeFailed, NoSuchNode, RpcError

HERE = Path(__file__).parent
START_S = 120.0
RUN = "from starknet_devnet.server import main; main()"


class Devnet:
    """A devnet on a free loopback port. Every transaction makes a block; its accounts have ether."""

    def __init__(self) -> None:
        self.url = ""
        self.accounts: list[dict[str, str]] = []
        self._where = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts the node and returns when it answers."""
        self._where = ensure()
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [str(self._where / "node" / "bin" / "python"), "-c", RUN, "--host", "127.0.0.1", "--port", str(port),
             "--seed", "0", "--accounts", "4", "--hide-server-logs"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            self._wait()
            self.accounts = self.http("/predeployed_accounts")
        except BaseException:  # whatever it is: no process is left behind
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def http(self, path: str, body: Any = None) -> Any:
        """One of its own routes, such as `/create_block`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def rpc(self, method: str, *params: Any) -> Any:
        """One JSON-RPC request."""
        answer = self.http("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "error" in answer:
            raise RpcError(method, answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def transfer(self, *transfers: tuple[int, str, int]) -> list[str]:
        """Sends ether, each transfer in a block of its own: the number of the sending account, to whom, how much.
        Returns the hashes."""
        senders = [(self.accounts[number], to, amount) for number, to, amount in transfers]
        asked = [[each["address"], each["private_key"], to, amount] for each, to, amount in senders]
        command = [str(self._where / "client" / "bin" / "python"), str(HERE / "transfers.py"), self.url]
        done = subprocess.run([*command, json.dumps(asked)], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise NodeFailed(f"ether could not be sent: {done.stderr[-400:]}")
        hashes: list[str] = json.loads(done.stdout)
        return hashes

    def forget(self, height: int) -> None:
        """Takes back every block from a height on, as a reorganisation does."""
        block = self.rpc("starknet_getBlockWithTxHashes", {"block_number": height})
        self.http("/abort_blocks", {"startingBlockHash": block["block_hash"]})

    def _wait(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise NodeFailed("the Starknet node ended instead of listening")
            try:
                with urllib.request.urlopen(self.url + "/is_alive", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise NodeFailed("the Starknet node does not answer")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def ensure() -> Path:
    """Installs the node and the client that signs, once. NoSuchNode where there is no Python 3.9 or no uv."""
    uv, python = shutil.which("uv"), _python()
    if uv is None or python is None:
        raise NoSuchNode("the Starknet node needs Python 3.9 and uv")
    manifest = HERE / "requirements.toml"
    return install.environments(manifest, install.home() / "starknet", lambda where, run: _fill(where, run, uv, python))


def _fill(where: Path, run: install.Run, uv: str, python: str) -> None:
    wanted = tomllib.loads((HERE / "requirements.toml").read_text())
    for name in ("node", "client"):
        package, since = wanted[name]["package"], wanted[name]["since"]
        own = f"{package.split('==')[0]}={since}"
        run(f"a place for {package}", [uv, "venv", "--python", python, str(where / name)])
        run(
            package,
            [uv, "pip", "install", "--python", str(where / name / "bin" / "python"), "--exclude-newer",
             wanted["before"], "--exclude-newer-package", own, package],
        )  # fmt: skip


def _python() -> str | None:
    """A Python 3.9 that runs."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which("python3.9"), *map(str, sorted(root.glob("versions/3.9.*/bin/python")))):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
