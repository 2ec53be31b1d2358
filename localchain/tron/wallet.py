"""Users of a Tron chain: the official client builds and signs for them, in a child process."""

import json
import subprocess
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from chainfolio.localchain import install
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.errors import NodeFailed
from chainfolio.localchain.tron.forms import base58check, contract_address
from chainfolio.localchain.tron.node import TronNode

HERE = Path(__file__).parent
PATIENCE_S = 300.0
FEE_LIMIT = 1_000_000_000  # sun


class TronWeb:
    """The official client for JavaScript (npm `tronweb`)."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._turn = Lock()

    def __enter__(self) -> Self:
        folder = install.packages(HERE / "package.json", install.home() / "tron", PATIENCE_S)
        self._process = subprocess.Popen(
            ["node", str(HERE / "wallet.cjs")],
            env={"NODE_PATH": str(folder / "node_modules"), "PATH": "/usr/local/bin:/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to hear first
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # closes its input, which ends it

    def do(self, command: str, **request: object) -> Any:
        """Send one request to the process and return its result; NodeFailed if it is refused."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with self._turn:
            process.stdin.write(json.dumps({"do": command, **request}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise NodeFailed("the client of Tron ended")
        answer = json.loads(line)
        if "error" in answer:
            raise NodeFailed(f"the client of Tron: {answer['error']}")
        return answer["result"]

    def ask(self, node: TronNode, part: str, method: str, *args: object, key: str = "") -> Any:
        """Call a method of a part of the client, such as `getBalance` of `trx`, for a node."""
        return self.do("client", url=node.url, path=[part, method], args=list(args), key=key)


class Person:
    """A user with a key, derived from a number so that runs are reproducible."""

    def __init__(self, node: TronNode, web: TronWeb, number: int) -> None:
        self.node, self.web = node, web
        self.key = f"{number + 1000:064x}"
        self.hex: str = web.do("address", key=self.key)["hex"]

    @property
    def address(self) -> str:
        """Address in base58, `T…`."""
        return base58check(self.hex)

    def sign(
        self,
        method: str,
        *args: object,
        memo: str = "",
        permission: int = 0,
        more: list[str] | None = None,
        expires_ms: int = 60_000,
        **options: object,
    ) -> dict[str, Any]:
        """Return a signed transaction of one of the client's builders, such as `sendTrx`."""
        signed: dict[str, Any] = self.web.do(
            "build",
            key=self.key,
            method=method,
            args=list(args),
            options=options,
            memo=memo,
            permission=permission,
            reference=self.node.reference(expires_ms),
            more=more,
        )
        return signed

    def send(self, method: str, *args: Any, **options: Any) -> str:
        """Sign and queue a transaction, and return its id; TransactionRejected if it is not valid."""
        return self.node.send(self.sign(method, *args, **options))

    def pay(self, to: str, sun: int, **options: object) -> str:
        """Send coins, and return the transaction's id."""
        return self.send("sendTrx", to, sun, self.hex, **options)

    def call(self, contract: str, function: str, *args: tuple[str, Any], sun: int = 0, limit: int = FEE_LIMIT) -> str:
        """Send a call of a contract and return the transaction's id; `args` are pairs of type and value."""
        parameters = [{"type": kind, "value": str(value) if kind.startswith("uint") else value} for kind, value in args]
        return self.send("triggerSmartContract", contract, function, parameters, feeLimit=limit, callValue=sun)

    def deploy(self, name: str, *args: object, libraries: dict[str, str] | None = None) -> str:
        """Queue the creation of a published contract, and return its future address in hex."""
        contract = artifact(name)
        options = {
            "abi": contract.abi,
            "bytecode": contract.creation(libraries=libraries)[2:],
            "parameters": list(args),
            "feeLimit": 15 * FEE_LIMIT,
            "name": name,
            "userFeePercentage": 100,
        }
        signed = self.sign("createSmartContract", options)
        return contract_address(self.node.send(signed), self.hex)
