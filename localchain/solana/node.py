"""A Solana node of one's own, as long as the process that started it lives."""

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from solders.hash import Hash
from solders.instruction import Instruction
from solders.keypair import Keypair
from solders.message import MessageV0
from solders.pubkey import Pubkey
from solders.transaction import VersionedTransaction

from chainfolio.localchain import install
from chainfolio.localchain.errors import NodeFailed, RpcError

HERE = Path(__file__).parent
PATIENCE_S = 300.0
FIRST_BLOCK_S = 20.0


class SolanaNode:
    """Surfpool on a free loopback port; unless told otherwise every transaction makes a slot."""

    def __init__(self) -> None:
        self.url = ""
        self.payer = Keypair()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the node, and return when it has a confirmed block after its first one.

        Raises:
            NodeFailed: It ends instead, or makes no block within 20 s.
        """
        assert self._process is None, "it is running"
        folder = install.packages(HERE / "package.json", install.home() / "solana", PATIENCE_S)
        self._process = subprocess.Popen(
            ["node", str(HERE / "start.cjs")],
            env={"NODE_PATH": str(folder / "node_modules"), "PATH": "/usr/local/bin:/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to hear first
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise NodeFailed("the Solana node ended instead of listening")
        started = json.loads(line)
        self.url, self.payer = started["rpc"], Keypair.from_bytes(bytes(started["secret"]))
        self._wait_for_block()
        return self

    def _wait_for_block(self) -> None:
        """Wait until a block after the first one is confirmed: the node may refuse the block before the first.

        Raises:
            NodeFailed: It takes longer than 20 s.
        """
        first, end_s = self.rpc("getSlot", {"commitment": "processed"}), time.monotonic() + FIRST_BLOCK_S
        while self.rpc("getSlot", {"commitment": "confirmed"}) <= first:
            if time.monotonic() > end_s:
                self.stop()
                raise NodeFailed(f"the Solana node made no block in {FIRST_BLOCK_S:.0f} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the node; without effect if it is not running."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # closes its input, which ends it

    def rpc(self, method: str, *params: object) -> Any:
        """Send one JSON-RPC request and return its result; RpcError if the node refuses it."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer = json.load(reply)
        if "error" in answer:
            raise RpcError(method, answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def send(self, instructions: Sequence[Instruction], *signers: Keypair, fails: bool = False) -> str:
        """Send a transaction of the payer and wait for it; return its signature.

        Raises:
            NodeFailed: The transaction is not done in time, or it failed (with `fails`: succeeded).
        """
        recent = Hash.from_string(self.rpc("getLatestBlockhash")["value"]["blockhash"])
        message = MessageV0.try_compile(self.payer.pubkey(), list(instructions), [], recent)
        signed = VersionedTransaction(message, [self.payer, *signers])
        options = {"encoding": "base64", "skipPreflight": fails}
        signature: str = self.rpc("sendTransaction", base64.b64encode(bytes(signed)).decode(), options)
        for _ in range(1000):
            (status,) = self.rpc("getSignatureStatuses", [signature])["value"]
            if status is not None:
                if (status["err"] is not None) != fails:
                    raise NodeFailed(f"the transaction {signature} ended with {status['err']}")
                return signature
        raise NodeFailed(f"the transaction {signature} is not done")

    def rent(self, size: int) -> int:
        """Return the minimum balance of an account of `size` bytes, in lamports."""
        lamports: int = self.rpc("getMinimumBalanceForRentExemption", size)
        return lamports

    def put(self, address: Pubkey, owner: str, content: bytes, lamports: int) -> None:
        """Write owner, content and balance of an account into the chain, without a signature."""
        account = {"lamports": lamports, "owner": owner, "data": content.hex()}
        self.rpc("surfnet_setAccount", str(address), account)
