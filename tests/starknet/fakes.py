"""A Starknet node that answers what a test wants it to: for faults that a real one does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.environment import Environment
from tests.evm.fakes import FakeClock
from tests.json_rpc import JsonRpcNode, Refuse
from tests.starknet.recorded import FACTS, ROOT

COIN = hex(int(FACTS.coin, 16))
TOKEN, WALLET = "0x53c9", "0x7e00d496e324876bbc8531f2d9a82bf154d1a04a50218ee74cdd372f75a551a"
TRANSFER = "0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9"
Answer = Callable[[Any], Any]


class FakeNode(JsonRpcNode):
    """A node that answers each method by a function of its parameters; blocks up to `head`, final up to `final`."""

    def __init__(self, **answers: Answer) -> None:
        self.head, self.final = 100, 90
        self.forks: dict[int, int] = {}
        self.asked: list[str] = []
        self.transactions: dict[int, list[Any]] = {}
        self.answers: Mapping[str, Answer] = {
            "starknet_chainId": lambda params: "0x534e5f4d41494e",
            "starknet_specVersion": lambda params: "0.9.0",
            "starknet_getBlockWithTxHashes": lambda params: self.header(self.height(params[0])),
            "starknet_getBlockWithReceipts": lambda params: self.whole(self.height(params[0])),
            "starknet_call": lambda params: ["0x0", "0x0"],
            "starknet_getNonce": lambda params: hex(self.sent(params[1], self.height(params[0]))),
            "starknet_getEvents": lambda params: {"events": self.listed(params[0])},
            **answers,
        }

    def height(self, block: Any) -> int:
        """The height that a block id means."""
        if block in ("latest", "l1_accepted"):
            return self.head if block == "latest" else self.final
        if "block_hash" in block:
            height = int(block["block_hash"], 16) % 1000
            if int(self.hash(height), 16) != int(block["block_hash"], 16):
                raise Refuse(24, "Block not found")
            return height
        return int(block["block_number"])

    def hash(self, height: int) -> str:
        """The hash of a block; another one on a fork."""
        return hex(1000 * (self.forks.get(height, 0) + 1) + height)

    def header(self, height: int) -> dict[str, Any]:
        """A block without its transactions."""
        if not 0 <= height <= self.head:
            raise Refuse(24, "Block not found")
        return {
            "block_hash": self.hash(height),
            "parent_hash": self.hash(height - 1) if height else "0x0",
            "block_number": height,
            "timestamp": 1_700_000_000 + 4 * height,
            "sequencer_address": "0x1176",
            "status": "ACCEPTED_ON_L1" if height <= self.final else "ACCEPTED_ON_L2",
            "transactions": [],
        }

    def whole(self, height: int) -> dict[str, Any]:
        """A block with its transactions and receipts."""
        return {**self.header(height), "transactions": self.transactions.get(height, [])}

    def sent(self, account: str, height: int) -> int:
        """Return the nonce of an account after a block."""
        bodies = [
            transaction["transaction"]
            for at, transactions in self.transactions.items()
            if at <= height
            for transaction in transactions
        ]
        return sum(int(each["sender_address"], 16) == int(account, 16) for each in bodies)

    def listed(self, event_filter: Any) -> list[Any]:
        """The events with such keys in some blocks."""
        span = range(event_filter["from_block"]["block_number"], event_filter["to_block"]["block_number"] + 1)
        return [
            {
                **said,
                "block_number": height,
                "block_hash": self.hash(height),
                "transaction_hash": transaction["receipt"]["transaction_hash"],
            }
            for height in sorted(set(self.transactions) & {*span})
            for transaction in self.transactions[height]
            for said in transaction["receipt"]["events"]
            if len(said["keys"]) >= len(event_filter["keys"])
            and all(
                not alternatives or key in alternatives
                for alternatives, key in zip(event_filter["keys"], said["keys"], strict=False)
            )
        ]

    def answer(self, method: str, params: Any) -> Any:
        """Return the result of the method's function."""
        self.asked.append(method)
        if method not in self.answers:
            raise Refuse(-32601, "Method not found")
        return self.answers[method](params)

    def chain(self, *urls: str) -> StarknetChain:
        """The chain of this node."""
        settings = StarknetSettings(adapter="starknet", rpc=list(urls) or ["http://one.test"])
        return build("starknet", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=self)


def invoked(number: int, *events: Any, fee: Any = None, status: str = "SUCCEEDED", **body: Any) -> dict[str, Any]:
    """An account's transaction with its receipt."""
    return {
        "transaction": {
            "type": "INVOKE",
            "version": "0x3",
            "sender_address": WALLET,
            "nonce": "0x1",
            "calldata": [],
            **body,
        },
        "receipt": {
            "transaction_hash": hex(number),
            "actual_fee": fee or {"amount": "0x0", "unit": "FRI"},
            "execution_status": status,
            "events": list(events),
            "type": "INVOKE",
        },
    }


def event(*said: str, keys: int = 1, token: str = TOKEN) -> dict[str, Any]:
    """A Transfer: its first words stand in the keys, the others in the data."""
    all_said = (TRANSFER, *said)
    return {"from_address": token, "keys": list(all_said[:keys]), "data": list(all_said[keys:])}
