"""An EVM node of one's own, as long as the process that started it lives."""

import http.client
import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chainfolio.localchain import install
from chainfolio.localchain.errors import NodeFailed, RpcError, TransactionReverted
from chainfolio.localchain.evm import Tx, call_data, checksummed, result

GENESIS_TIME = 1_700_000_000  # fixed, so that the same script gives the same hashes on every day
SECONDS_PER_BLOCK = 12
GAS_LIMIT = 100_000_000  # of a block
IDLE_S = 2.0  # a connection that was idle for longer may be closed by the node: Node.js does so after 5 s
# Above what a wallet of any script pays, below what empties it; fixed, so that the node need not estimate.
FEES = {"maxFeePerGas": hex(50 * 10**9), "maxPriorityFeePerGas": hex(10**9)}

# Ends the node when our end of its standard input closes, however we end: a parent-death signal would go by the
# thread that started it, and would leave the node's cache (gigabytes for a long chain) behind.
GUARD = """
cache=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & node=$!
{ cat <&3 >/dev/null; kill "$node"; sleep 5; kill -9 "$node"; } >/dev/null 2>&1 & watch=$!
exec 3<&-
wait "$node"; status=$?
kill "$watch"
rm -rf "$cache"
exit "$status"
"""


class LocalNode:
    """Foundry's anvil on a free loopback port. By default each transaction gets a separate block."""

    def __init__(  # noqa: PLR0913 - the options of a test node, each with a default
        self,
        *,
        port: int = 0,
        chain_id: int = 31337,
        timestamp: int = GENESIS_TIME,
        seconds_per_block: int | None = None,
        block_time: int | None = None,
        no_mining: bool = False,
        slots_in_an_epoch: int = 32,
        archive: bool = True,
        hardfork: str = "prague",
        extra_args: Sequence[str] = (),
    ) -> None:
        """`safe` is `slots_in_an_epoch` blocks behind the head and `finalized` twice that."""
        self.port = port
        self.chain_id = chain_id
        self.timestamp = timestamp
        self.seconds_per_block = seconds_per_block or block_time or SECONDS_PER_BLOCK
        self.block_time = block_time
        self.no_mining = no_mining
        self.slots_in_an_epoch = slots_in_an_epoch
        self.max_persisted_states = 1_000_000 if archive else None
        self.hardfork = hardfork
        self.extra_args = tuple(extra_args)
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._used_s = 0.0  # when the connection was used last
        self._turn = threading.RLock()
        self._patience_s = 1.0
        self._by_hand = False

    # --- its life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """URL of JSON-RPC over HTTP."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 20) -> Self:
        """Start the node and return when it answers; NodeFailed if it ends or takes too long."""
        assert self._process is None, "it is running"
        attempts = 1 if self._wanted_port else 5
        for attempt in range(attempts):
            self._launch()
            try:
                self._wait_until_it_answers(timeout_s)
                break
            except NodeFailed:
                self.stop()
                if attempt == attempts - 1:
                    raise
                # Another process took the port meanwhile: try another one.
        self._prepare()
        return self

    def _prepare(self) -> None:
        """Apply settings that need a running node."""
        self.rpc("anvil_setBlockTimestampInterval", self.seconds_per_block)

    def stop(self) -> None:
        """End the node and remove its cache; without effect if it is not running."""
        with self._turn:
            self._disconnect()
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    def _launch(self) -> None:
        """Start the process on the wanted or a free port, with a new cache; do not wait for it."""
        self.port = self._wanted_port or free_port()
        self._patience_s = 1.0  # until it has answered once: whatever else listens there may never do
        cache = tempfile.mkdtemp(prefix="localchain-")
        log = Path(cache, "log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "localchain", cache, *self._command(cache)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us to hear first
            )

    def _command(self, cache: str) -> list[str]:
        """Return the program with its arguments; it may write files in the folder `cache`."""
        options: dict[str, object] = {
            "--host": "127.0.0.1",
            "--port": self.port,
            "--chain-id": self.chain_id,
            "--hardfork": self.hardfork,
            "--gas-limit": GAS_LIMIT,
            "--order": "fifo",  # by fee, transactions of equal fee would come in any order
            "--timestamp": self.timestamp,
            "--slots-in-an-epoch": self.slots_in_an_epoch,
            "--cache-path": cache,
        }
        if self.block_time is not None:
            options["--block-time"] = self.block_time
        if self.max_persisted_states is not None:
            options["--max-persisted-states"] = self.max_persisted_states
        flags = ["--quiet", *(["--no-mining"] if self.no_mining else [])]
        program = install.anvil(install.ensure())
        return [str(program), *flags, *(str(part) for pair in options.items() for part in pair), *self.extra_args]

    def _wait_until_it_answers(self, timeout_s: float) -> None:
        """Return when the node answers; NodeFailed if it ends or takes too long."""
        assert self._process is not None
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise NodeFailed(f"the EVM node ended with status {self._process.returncode} instead of listening")
            try:
                self.rpc("eth_chainId")
            except NodeFailed:
                time.sleep(0.01)
                continue
            self._disconnect()
            self._patience_s = 120.0
            return
        raise NodeFailed(f"the EVM node did not answer within {timeout_s} s")

    # --- requests ---------------------------------------------------------------------------------------------------

    def rpc(self, method: str, *params: object) -> Any:
        """Send one JSON-RPC request and return its result; RpcError if the node refuses it."""
        answer = self._post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return _result(method, answer)

    def batch(self, requests: Iterable[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Send requests as one batch and return their results in order; RpcError if one is refused."""
        calls = list(requests)
        body = [{"jsonrpc": "2.0", "id": i, "method": m, "params": p} for i, (m, p) in enumerate(calls)]
        answers = {answer["id"]: answer for answer in self._post(body)} if body else {}
        return [_result(method, answers[i]) for i, (method, _) in enumerate(calls)]

    def call(
        self, to: str, signature: str, *args: object, block: int | str = "latest", sender: str | None = None
    ) -> Any:
        """Read a contract by a signature with its results, such as `balanceOf(address)(uint256)`."""
        request = {"to": to, "data": call_data(signature, *args)} | ({"from": sender} if sender else {})
        return result(signature, self.rpc("eth_call", request, hex(block) if isinstance(block, int) else block))

    def send(self, tx: Tx) -> str:
        """Send a transaction of one of the node's accounts and return its hash, perhaps before it is mined."""
        tx_hash: str = self.rpc("eth_sendTransaction", _request(tx))
        return tx_hash

    @property
    def accounts(self) -> list[str]:
        """Accounts that the node signs for, each with 10 000 ether at first."""
        return [checksummed(account) for account in self.rpc("eth_accounts")]

    @property
    def height(self) -> int:
        """Number of the newest block."""
        return int(self.rpc("eth_blockNumber"), 16)

    def block(self, block: int | str = "latest") -> dict[str, Any]:
        """Return a block with the hashes of its transactions; None if it does not exist."""
        header: dict[str, Any] = self.rpc(
            "eth_getBlockByNumber", hex(block) if isinstance(block, int) else block, False
        )
        return header

    # --- time and history -------------------------------------------------------------------------------------------

    def mine(self, n: int = 1, seconds: int | None = None) -> int:
        """Make `n` blocks, `seconds` of chain time apart, and return the new height."""
        # anvil_mine has an argument for this, but does not heed it while an interval is set.
        odd = seconds is not None and seconds != self.seconds_per_block
        if odd:
            self.rpc("anvil_setBlockTimestampInterval", seconds)
        self.rpc("anvil_mine", hex(n))
        if odd:
            self.rpc("anvil_setBlockTimestampInterval", self.seconds_per_block)
        return self.height

    def settle(self, txs: Iterable[Tx]) -> int:
        """Mine transactions in few blocks and return the height; TransactionReverted if one fails."""
        with self.by_hand():
            labels_by_hash: list[tuple[str, str]] = []
            room = GAS_LIMIT
            for tx in txs:
                # A transaction that no longer fits makes anvil drop those after it, whose nonces are then too high.
                if tx.gas > room:
                    self.mine()
                    room = GAS_LIMIT
                labels_by_hash.append((self.send(tx), tx.label))
                room -= tx.gas
            if room < GAS_LIMIT:
                self.mine()
        receipts = self.batch(("eth_getTransactionReceipt", [transaction]) for transaction, _ in labels_by_hash)
        for (transaction, label), receipt in zip(labels_by_hash, receipts, strict=True):
            if receipt is None or receipt["status"] != "0x1":
                raise TransactionReverted(transaction, label)
        return self.height

    @contextmanager
    def by_hand(self) -> Iterator[None]:
        """Stop automatic blocks within the context, which may be nested: only `mine` makes blocks."""
        if self._by_hand or self.no_mining:
            yield
            return
        self._by_hand = True
        if self.block_time:
            self.rpc("evm_setIntervalMining", 0)
        self.rpc("evm_setAutomine", False)
        try:
            yield
        finally:
            self._by_hand = False
            if self.block_time:
                self.rpc("evm_setIntervalMining", self.block_time)
            else:
                self.rpc("evm_setAutomine", True)

    def reorg(self, depth: int, txs: Sequence[Tx] = ()) -> int:
        """Replace the newest `depth` blocks, with these transactions in the first; return the height."""
        pairs = [[_request(tx), 0] for tx in txs]
        self.rpc("anvil_reorg", depth, pairs)
        return self.height

    def snapshot(self) -> str:
        """Store the chain's state and return its id, which is valid for one `revert`."""
        snapshot: str = self.rpc("evm_snapshot")
        return snapshot

    def revert(self, snapshot: str) -> None:
        """Go back to a snapshot; RpcError if there is no such snapshot."""
        if not self.rpc("evm_revert", snapshot):
            raise RpcError("evm_revert", -32000, f"no snapshot {snapshot}")

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _post(self, body: object) -> Any:
        """Send a request on one shared connection, and return the JSON of the response.

        Raises:
            NodeFailed: The node is not running, or does not answer.
        """
        text = json.dumps(body).encode()
        with self._turn:
            if self._process is None:
                raise NodeFailed("the EVM node is not running")
            if time.monotonic() - self._used_s > IDLE_S:
                self._disconnect()
            self._used_s = time.monotonic()
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._patience_s)
            try:
                self._connection.request("POST", "/", text, {"content-type": "application/json"})
                return json.loads(self._connection.getresponse().read())
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                raise NodeFailed(f"the EVM node does not answer: {error!r}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _request(tx: Tx) -> dict[str, str]:
    request = {"from": tx.sender, "data": tx.data, "value": hex(tx.value), "gas": hex(tx.gas), **FEES}
    return request | ({"to": tx.to} if tx.to else {})


def _result(method: str, answer: dict[str, Any]) -> Any:
    if "error" in answer:
        error = answer["error"]
        raise RpcError(method, error.get("code", 0), error.get("message", ""), error.get("data"))
    return answer["result"]


def free_port() -> int:
    """Return a port of this machine that nothing uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
