"""A Starknet node of one's own: StarkWare's sequencer of 2023 behind JSON-RPC, in an environment with Python 3.9."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chainfolio.localchain import install
from chainfolio.localchain.errors import NodeFailed, NoSuchNode, RpcError

HERE = Path(__file__).parent
START_S = 120.0
COIN = "0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7"
RUN = "from starknet_devnet.server import main; main()"
PRESETS = "openzeppelin/token/{}/presets/{}.cairo"
COMPILER = "starkware/starknet/compiler/v1/sierra-compiler-major-1/bin"
CONTRACTS = {  # published ones in Cairo 0, and our own in Cairo 2 where what is published is younger than this node
    "token": PRESETS.format("erc20", "ERC20Mintable"),
    "collection": PRESETS.format("erc721", "ERC721MintableBurnable"),
    "editions": PRESETS.format("erc1155", "ERC1155MintableBurnable"),
    **{each: str(HERE / "contracts" / f"{each}.cairo") for each in ("young_token", "respelled_token")},
}
CallOf = tuple[str, str, list[int]]  # to whom, which function, its arguments


class Devnet:
    """A devnet on a free loopback port. Every transaction makes a block; its accounts have ether."""

    def __init__(self) -> None:
        self.url = ""
        self.accounts: list[dict[str, str]] = []
        self._where = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Starts the node and returns when it answers."""
        self._where = ensure()
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                str(self._where / "node" / "bin" / "python"),
                "-c",
                RUN,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--seed",
                "0",
                "--accounts",
                "4",
                "--hide-server-logs",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
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
            said = reply.read()
        return json.loads(said) if said else None

    def rpc(self, method: str, *params: Any) -> Any:
        """One JSON-RPC request."""
        answer = self.http("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "error" in answer:
            raise RpcError(method, answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def execute(self, number: int, *calls: CallOf) -> str:
        """Calls of the account with this number, in one transaction and a block of its own. Returns the hash."""
        return self._signed(number, {"calls": calls})

    def deploy(self, number: int, contract: str, *args: int) -> str:
        """A new contract of CONTRACTS, made by an account. Returns its address."""
        return self._signed(number, {"class": list(map(str, compiled(self._where, contract))), "args": args})

    def open_account(self, number: int, key: int, amount: int) -> str:
        """A new account that pays for itself, with ether of an account; its transaction is of the newest block. Returns
        its address."""
        return self._signed(number, {"key": key, "amount": amount})

    def message(self, ethereum: str, to: str, selector: int, payload: Sequence[int]) -> str:
        """What a contract on Ethereum has to say to one here, in a block of its own. Returns the hash."""
        sent = {
            "l1_contract_address": ethereum,
            "l2_contract_address": to,
            "entry_point_selector": hex(selector),
            "payload": [hex(each) for each in payload],
            "paid_fee_on_l1": "0x1",
            "nonce": "0x0",
        }
        made: str = self.http("/postman/send_message_to_l2", sent)["transaction_hash"]
        return made

    def transfer(self, *transfers: tuple[int, str, int]) -> list[str]:
        """Sends ether, each transfer in a block of its own: the number of the sending account, to whom, how much.
        Returns the hashes."""
        return [
            self.execute(number, (COIN, "transfer", [int(to, 16), amount % 2**128, amount >> 128]))
            for number, to, amount in transfers
        ]

    def dump(self, path: Path) -> None:
        """Writes down all that the node knows."""
        self.http("/dump", {"path": str(path)})

    def load(self, path: Path) -> None:
        """Becomes the node that was written down."""
        self.http("/load", {"path": str(path)})

    def _signed(self, number: int, asked: dict[str, Any]) -> str:
        """What the client that signs makes of a request."""
        account = self.accounts[number]
        if self._client is None:
            self._client = subprocess.Popen(
                [str(self._where / "client" / "bin" / "python"), str(HERE / "client.py"), self.url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        assert self._client.stdin is not None, "it is a pipe"
        assert self._client.stdout is not None, "it is a pipe"
        self._client.stdin.write(json.dumps({"account": [account["address"], account["private_key"]], **asked}) + "\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            raise NodeFailed("a transaction could not be signed and sent")
        made: str = json.loads(line)
        return made

    def mine(self, blocks: int) -> None:
        """Blocks with nothing in them."""
        for _ in range(blocks):
            self.http("/create_block", {})

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
        started = self._client, self._process
        self._client = self._process = None
        for process in started:
            if process is not None:
                with process, suppress(ProcessLookupError):  # the node has a worker of its own
                    os.killpg(process.pid, signal.SIGKILL)


def ensure() -> Path:
    """Installs the node and the client that signs, once. NoSuchNode where there is no Python 3.9."""
    python = _python()
    if python is None:
        raise NoSuchNode("the Starknet node needs Python 3.9")
    manifest = HERE / "requirements.toml"
    return install.environments(manifest, install.home() / "starknet", lambda where, run: _fill(where, run, python))


def compiled(where: Path, contract: str) -> list[Path]:
    """The class of a contract of CONTRACTS, compiled once; behind one in Cairo 2, what the node runs of it."""
    packages = next((where / "node" / "lib").glob("python3.9/site-packages"))
    source = packages / CONTRACTS[contract]
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    found = where.parent / "compiled" / f"{contract}-{key}.json"
    casm = found.with_suffix(".casm")
    if "%lang starknet" in source.read_text():
        _made(found, where / "node" / "bin" / "starknet-compile-deprecated", source, "--output", packages=packages)
        return [found]
    _made(found, packages / COMPILER / "starknet-compile", "--single-file", source, packages=packages)
    _made(casm, packages / COMPILER / "starknet-sierra-compile", "--add-pythonic-hints", found, packages=packages)
    return [found, casm]


def _made(found: Path, *command: Path | str, packages: Path) -> None:
    """What a compiler writes where it is told to last, if it is not there yet."""
    if found.exists():
        return
    found.parent.mkdir(exist_ok=True)
    made = found.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [str(each) for each in (*command, made)],
        env={**os.environ, "CAIRO_PATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise NodeFailed(f"{found.stem} cannot be compiled: {done.stderr[-400:]}")
    made.replace(found)


def _fill(where: Path, run: install.Run, python: str) -> None:
    wanted = tomllib.loads((HERE / "requirements.toml").read_text())
    tools = where / "tools" / "bin"
    run("a place for uv, which finds the packages of that time", [sys.executable, "-m", "venv", str(tools.parent)])
    run(wanted["uv"], [str(tools / "python"), "-m", "pip", "install", "--quiet", wanted["uv"]])
    uv = str(tools / "uv")
    for name, place in (("node", "node"), ("client", "client"), ("contracts", "node")):
        package, since = wanted[name]["package"], wanted[name]["since"]
        own = f"{package.split('==')[0]}={since}"
        if name == place:
            run(f"a place for {package}", [uv, "venv", "--python", python, str(where / name)])
        run(
            package,
            [
                uv,
                "pip",
                "install",
                "--python",
                str(where / place / "bin" / "python"),
                "--exclude-newer",
                wanted["before"],
                "--exclude-newer-package",
                own,
                package,
            ],
        )


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
