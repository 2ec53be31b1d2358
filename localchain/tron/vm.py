"""Smart contracts of the Tron chain: an EVM node with one block per Tron block; one wei is one sun."""

from dataclasses import dataclass, field
from typing import Any

from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.tron.forms import evm_address, tron

MOST_ENERGY = 100_000_000
BLOCK_GAS = 10**15
CODE_BYTE_ENERGY = 200
FAR = 10**18  # sun that the sender of a question has


@dataclass(frozen=True)
class Call:
    """A transaction of a smart contract; `code` if it creates the contract."""

    owner: str
    contract: str
    data: str  # hex
    value: int
    energy: int
    code: bool = False

    @property
    def intrinsic(self) -> int:
        """Gas that the EVM takes before execution; it is not part of Tron's energy."""
        content = b"" if self.code else bytes.fromhex(self.data)
        return 21_000 + sum(16 if byte else 4 for byte in content)


@dataclass(frozen=True)
class CallOutcome:
    """Outcome of a call."""

    result: str  # SUCCESS, REVERT, OUT_OF_ENERGY or another of java-tron's
    energy: int
    output: str  # hex
    logs: list[dict[str, Any]] = field(default_factory=list)
    internal: list[tuple[str, str, int, bool]] = field(default_factory=list)  # from, to, sun, whether it failed
    created: list[str] = field(default_factory=list)  # contracts that contracts brought into being


class Machine:
    """The EVM node that runs the contracts."""

    def __init__(self, genesis_s: int) -> None:
        self.node = LocalNode(
            timestamp=genesis_s,
            no_mining=True,
            hardfork="cancun",  # later versions have a separate price of call data
            extra_args=("--base-fee", "0", "--gas-price", "0", "--auto-impersonate", "--disable-code-size-limit"),
        )
        self.code: dict[str, tuple[int, str]] = {}  # contract -> since which block, its code

    def start(self) -> None:
        """Start the node, at block 0."""
        self.node.start()
        self.node.rpc("anvil_setBlockGasLimit", hex(BLOCK_GAS))

    def stop(self) -> None:
        """End the node."""
        self.node.stop()

    def set_balance(self, address: str, sun: int) -> None:
        """Set the balance of an account in the node."""
        self.node.rpc("anvil_setBalance", evm_address(address), hex(sun))

    def queue(self, call: Call) -> str:
        """Queue a call for the next block, and return its hash in the node."""
        gas = min(call.energy, MOST_ENERGY) + call.intrinsic
        if call.code:
            self.node.rpc("anvil_setCode", evm_address(call.contract), "0x" + call.data)
        data = "0x" if call.code else "0x" + call.data
        request = {
            "from": evm_address(call.owner),
            "to": evm_address(call.contract),
            "data": data,
            "value": hex(call.value),
        }
        handed: str = self.node.rpc("eth_sendTransaction", {**request, "gas": hex(gas), "gasPrice": "0x0"})
        return handed

    def mine(self, time_s: int) -> None:
        """Make a block of the queued calls."""
        self.node.rpc("evm_setNextBlockTimestamp", time_s)
        self.node.rpc("evm_mine")

    def outcome(self, call: Call, handed: str, height: int) -> CallOutcome:
        """Return the outcome of a call in the newest block; store the code of a created contract."""
        receipt = self.node.rpc("eth_getTransactionReceipt", handed)
        trace = self.node.rpc("debug_traceTransaction", handed, {"tracer": "callTracer"})
        energy = max(0, int(receipt["gasUsed"], 16) - call.intrinsic)
        output, failed = trace.get("output", "0x")[2:], receipt["status"] != "0x1"
        if call.code:
            self._install(call, "" if failed else output, height)
            energy = min(energy + len(output) // 2 * CODE_BYTE_ENERGY, call.energy)
        logs = [
            {"address": log["address"][2:], "topics": [topic[2:] for topic in log["topics"]], "data": log["data"][2:]}
            for log in receipt["logs"]
        ]
        result = "SUCCESS"
        if failed:
            spent = int(receipt["gasUsed"], 16) >= call.energy + call.intrinsic
            result = "OUT_OF_ENERGY" if spent else "REVERT"
        internal = [part for frame in trace.get("calls", ()) for part in _flows(frame, failed)]
        created = [] if failed else [part for frame in trace.get("calls", ()) for part in _created_contracts(frame)]
        return CallOutcome(result, energy, output, [_bare(log) for log in logs], internal, created)

    def _install(self, call: Call, code: str, height: int) -> None:
        self.node.rpc("anvil_setCode", evm_address(call.contract), "0x" + code)
        if code:
            self.code[call.contract] = (height, code)

    def simulate(self, owner: str, contract: str, data: str, value: int = 0) -> CallOutcome:
        """Simulate a call at the newest block and return its outcome."""
        request = {
            "from": evm_address(owner),
            "to": evm_address(contract),
            "data": "0x" + data,
            "value": hex(value),
            "gasPrice": "0x0",
        }
        rich = {evm_address(owner): {"balance": hex(FAR)}} if value else {}
        try:
            output = self.node.rpc("eth_call", {**request, "gas": hex(MOST_ENERGY)}, "latest", rich)
        except RpcError as error:
            revert_data = error.data if isinstance(error.data, str) else "0x"
            return CallOutcome("REVERT", 0, revert_data[2:])
        return CallOutcome("SUCCESS", len(data) // 2 * 16, output[2:])

    def remove_blocks(self, depth: int, height: int) -> None:
        """Remove the newest `depth` blocks, and restore the code of contracts up to `height`."""
        self.node.rpc("anvil_rollback", depth)
        for contract, (created_at, code) in list(self.code.items()):
            if created_at > height:
                del self.code[contract]
            else:  # it was put there after its block was made, which the node does not take for a part of the block
                self.node.rpc("anvil_setCode", evm_address(contract), "0x" + code)


def _bare(log: dict[str, Any]) -> dict[str, Any]:
    """Return a log without the empty fields, which java-tron leaves out."""
    return {name: value for name, value in log.items() if value}


def _created_contracts(frame: dict[str, Any]) -> list[str]:
    """Return the contracts that a frame and its inner calls created, without undone ones."""
    if "error" in frame:
        return []
    contracts = [tron(frame["to"])] if frame["type"] in ("CREATE", "CREATE2") else []
    return contracts + [part for inner in frame.get("calls", ()) for part in _created_contracts(inner)]


def _flows(frame: dict[str, Any], failed: bool) -> list[tuple[str, str, int, bool]]:
    """Return a frame and its inner calls as internal transactions: sender, recipient, sun, failed."""
    failed = failed or "error" in frame
    flows = []
    if frame["type"] in ("CALL", "CREATE", "CREATE2"):
        flows = [(tron(frame["from"]), tron(frame["to"]), int(frame.get("value", "0x0"), 16), failed)]
    return flows + [part for inner in frame.get("calls", ()) for part in _flows(inner, failed)]
