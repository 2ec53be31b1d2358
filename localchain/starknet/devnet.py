"""A local Starknet node: StarkWare's sequencer of 2023 behind JSON-RPC, run with Python 3.9."""

import hashlib
import json
import os
import shutil
import signal
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
from chainfolio.localchain.node import free_port

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
        """Start the node, and return when it answers."""
        self._where = ensure()
        port = free_port()
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

    def http(self, path: str, body: object = None) -> Any:
        """Call a route of the devnet, such as `/create_block`; return its JSON, None if empty."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def rpc(self, method: str, *params: object) -> Any:
        """Send one JSON-RPC request and return its result; RpcError if the node refuses it."""
        answer = self.http("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "error" in answer:
            raise RpcError(method, answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def execute(self, number: int, *calls: CallOf) -> str:
        """Send calls of an account as one transaction, in a separate block; return its hash."""
        return self._signed(number, {"calls": calls})

    def deploy(self, number: int, contract: str, *args: int) -> str:
        """Deploy a contract of CONTRACTS by an account of the devnet; return its address."""
        return self._signed(number, {"class": list(map(str, compiled(self._where, contract))), "args": args})

    def open_account(self, number: int, key: int, amount: int) -> str:
        """Deploy an account with ether of another one, in the newest block; return its address."""
        return self._signed(number, {"key": key, "amount": amount})

    def message(self, ethereum: str, to: str, selector: int, payload: Sequence[int]) -> str:
        """Send a message of an Ethereum contract to a contract here, in a separate block; return its hash."""
        content = {
            "l1_contract_address": ethereum,
            "l2_contract_address": to,
            "entry_point_selector": hex(selector),
            "payload": [hex(each) for each in payload],
            "paid_fee_on_l1": "0x1",
            "nonce": "0x0",
        }
        tx_hash: str = self.http("/postman/send_message_to_l2", content)["transaction_hash"]
        return tx_hash

    def transfer(self, *transfers: tuple[int, str, int]) -> list[str]:
        """Send ether, each transfer in a separate block; return the hashes.

        A transfer is the number of the sending account, the recipient, and the raw amount.
        """
        return [
            self.execute(number, (COIN, "transfer", [int(to, 16), amount % 2**128, amount >> 128]))
            for number, to, amount in transfers
        ]

    def dump(self, path: Path) -> None:
        """Write the state of the node to a file."""
        self.http("/dump", {"path": str(path)})

    def load(self, path: Path) -> None:
        """Replace the state of the node by that in a file of `dump`."""
        self.http("/load", {"path": str(path)})

    def _signed(self, number: int, request: dict[str, Any]) -> str:
        """Let the client sign and send a request; return its result. NodeFailed if the client ended."""
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
        self._client.stdin.write(
            json.dumps({"account": [account["address"], account["private_key"]], **request}) + "\n"
        )
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            raise NodeFailed("a transaction could not be signed and sent")
        result: str = json.loads(line)
        return result

    def mine(self, blocks: int) -> None:
        """Make blocks without transactions."""
        for _ in range(blocks):
            self.http("/create_block", {})

    def forget(self, height: int) -> None:
        """Remove all blocks from a height on, as a reorganisation does."""
        block = self.rpc("starknet_getBlockWithTxHashes", {"block_number": height})
        self.http("/abort_blocks", {"startingBlockHash": block["block_hash"]})

    def _wait(self) -> None:
        """Return when the node answers; NodeFailed if it ends or takes longer than START_S."""
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
        """Kill the client and the node with its workers."""
        started = self._client, self._process
        self._client = self._process = None
        for process in started:
            if process is not None:
                with process, suppress(ProcessLookupError):  # the node has a separate worker process
                    os.killpg(process.pid, signal.SIGKILL)


def ensure() -> Path:
    """Install the node and its client once and return their folder; NoSuchNode without Python 3.9."""
    python = _python()
    if python is None:
        raise NoSuchNode("the Starknet node needs Python 3.9")
    manifest = HERE / "requirements.toml"
    return install.environments(manifest, install.home() / "starknet", lambda where, run: _fill(where, run, python))


def compiled(folder: Path, contract: str) -> list[Path]:
    """Compile a contract once; return its class file, for Cairo 2 also its CASM file."""
    packages = next((folder / "node" / "lib").glob("python3.9/site-packages"))
    source = packages / CONTRACTS[contract]
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    sierra = folder.parent / "compiled" / f"{contract}-{key}.json"
    casm = sierra.with_suffix(".casm")
    if "%lang starknet" in source.read_text():
        compiler = folder / "node" / "bin" / "starknet-compile-deprecated"
        # Without debug information, which is most of the file: each declaration sends, parses and hashes all of it.
        _compile(sierra, compiler, source, "--no_debug_info", "--output", packages=packages)
        return [sierra]
    _compile(sierra, packages / COMPILER / "starknet-compile", "--single-file", source, packages=packages)
    _compile(casm, packages / COMPILER / "starknet-sierra-compile", "--add-pythonic-hints", sierra, packages=packages)
    return [sierra, casm]


def _compile(target: Path, *command: Path | str, packages: Path) -> None:
    """Run a compiler that writes to `target` unless that exists; NodeFailed if it fails."""
    if target.exists():
        return
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}")
    process = subprocess.run(
        [str(each) for each in (*command, temporary)],
        env={**os.environ, "CAIRO_PATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if process.returncode:
        raise NodeFailed(f"{target.stem} cannot be compiled: {process.stderr[-400:]}")
    temporary.replace(target)


def _fill(folder: Path, run: install.Run, python: str) -> None:
    """Install the node, the client and the contracts into environments of Python 3.9."""
    manifest = tomllib.loads((HERE / "requirements.toml").read_text())
    tools = folder / "tools" / "bin"
    run("a place for uv, which finds the packages of that time", [sys.executable, "-m", "venv", str(tools.parent)])
    run(manifest["uv"], [str(tools / "python"), "-m", "pip", "install", "--quiet", manifest["uv"]])
    uv = str(tools / "uv")
    for name, environment in (("node", "node"), ("client", "client"), ("contracts", "node")):
        package, date = manifest[name]["package"], manifest[name]["since"]
        exception = f"{package.split('==')[0]}={date}"
        if name == environment:
            run(f"a place for {package}", [uv, "venv", "--python", python, str(folder / name)])
        run(
            package,
            [
                uv,
                "pip",
                "install",
                "--python",
                str(folder / environment / "bin" / "python"),
                "--exclude-newer",
                manifest["before"],
                "--exclude-newer-package",
                exception,
                package,
            ],
        )


def _python() -> str | None:
    """Return the path of a Python 3.9 that runs; None if there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in (shutil.which("python3.9"), *map(str, sorted(root.glob("versions/3.9.*/bin/python")))):
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None
