"""In-memory nodes: a chain, the answers and faults of nodes, and a clock without real waits."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sha3 import keccak_256

from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.events import TRANSFER
from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.integrity import Query
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.spans import LogReader
from chainfolio.blocks import Block
from chainfolio.chain_facts import Native, WrappedNative
from chainfolio.environment import Environment
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.pool import Pool
from tests.evm.contracts import Contracts, RpcRefusal

CHAIN_ID = 31337
GENESIS_TIME = 1_700_000_000
TOKEN, ALICE, BOB = ("0x" + pair * 20 for pair in ("11", "aa", "bb"))
TRANSFERS = Query((TRANSFER,))
Handler = Callable[[list[Any]], Any]


class FakeClock:
    """A clock that moves by each sleep."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


# --- a chain ---------------------------------------------------------------------------------------------------------


def topic_of(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


def transfer(sender: str = ALICE, recipient: str = BOB, raw: int = 1, token: str = TOKEN) -> dict[str, Any]:
    """The log of an ERC-20 transfer, without its place."""
    return {
        "address": token,
        "topics": [TRANSFER, topic_of(sender), topic_of(recipient)],
        "data": f"0x{raw:064x}",
    }


def bloom_of(logs: Sequence[Mapping[str, Any]]) -> str:
    """The bloom of some logs, by the yellow paper: three of 2,048 bits for each address and topic."""
    bits = 0
    for log in logs:
        for value in (log["address"], *log["topics"]):
            digest = keccak_256(bytes.fromhex(value[2:])).digest()
            for k in (0, 2, 4):
                bits |= 1 << (int.from_bytes(digest[k : k + 2], "big") & 2047)
    return f"0x{bits:0512x}"


def errors_of(pool: Pool[Any]) -> dict[str, dict[str, int]]:
    """Return the number of errors by endpoint name and error class; only endpoints with errors."""
    return {each.name: dict(each.errors.counts) for each in pool.endpoints if each.errors.counts}


def hash_of(*parts: object) -> str:
    return "0x" + str(keccak_256(repr(parts).encode()).hexdigest())


class FakeChain:
    """Headers and logs; `mine` adds a block, `reorganise` replaces the newest ones."""

    def __init__(self, blocks: int = 0, *, salt: str = "a") -> None:
        self.salt = salt
        self.headers: list[dict[str, Any]] = []
        self.logs: list[list[dict[str, Any]]] = []
        self.mine()
        for k in range(blocks):
            self.mine(transfer(raw=k + 1))

    @property
    def head(self) -> int:
        return len(self.headers) - 1

    def filled(self, span: range) -> Iterable[int]:
        """Return the heights of a span that have a block."""
        return span

    def block(self, height: int) -> Block:
        header = self.headers[height]
        return Block(height, header["hash"], header["parentHash"], int(header["timestamp"], 16) * 1_000_000)

    def mine(self, *logs: dict[str, Any]) -> None:
        height = len(self.headers)
        parent = self.headers[-1]["hash"] if height else "0x" + "00" * 32
        block_hash = hash_of(self.salt, height, parent, logs)
        time = hex(GENESIS_TIME + 12 * height)
        self.headers.append(
            {
                "number": hex(height),
                "hash": block_hash,
                "parentHash": parent,
                "timestamp": time,
                "logsBloom": bloom_of(logs),
                "gasUsed": "0x5208",
                "gasLimit": "0x1c9c380",
                "miner": "0x" + "00" * 20,
                "baseFeePerGas": "0x7",
                "transactions": [hash_of(block_hash, k) for k in range(len(logs))],
            }
        )
        positions = [
            {
                "blockNumber": hex(height),
                "blockHash": block_hash,
                "transactionHash": hash_of(block_hash, k),
                "transactionIndex": hex(k),
                "logIndex": hex(k),
                "blockTimestamp": time,
                "removed": False,
            }
            for k in range(len(logs))
        ]
        self.logs.append([{**log, **position} for log, position in zip(logs, positions, strict=True)])

    def reorganise(self, first: int, salt: str) -> None:
        """The blocks from `first` on become others with the same events."""
        events = [[{k: log[k] for k in ("address", "topics", "data")} for log in logs] for logs in self.logs[first:]]
        del self.headers[first:], self.logs[first:]
        self.salt = salt
        for logs in events:
            self.mine(*logs)

    def height_of(self, tag: Any) -> int | None:
        """The height that a block parameter means; None where there is no such block."""
        if isinstance(tag, Mapping):
            return next((h for h, header in enumerate(self.headers) if header["hash"] == tag["blockHash"]), None)
        if tag in ("latest", "finalized"):
            return self.head
        height = int(tag, 16)
        return height if height <= self.head else None


# --- a node ----------------------------------------------------------------------------------------------------------


class FakeNode:
    """Answer JSON-RPC requests from a chain.

    `on[method]` replaces an answer; `exchanges` are returned first, in order.
    """

    def __init__(self, chain: FakeChain, contracts: Contracts | None = None, **on: Handler) -> None:
        self.chain = chain
        self.contracts = contracts or Contracts()
        self.on: dict[str, Handler] = dict(on)
        self.exchanges: list[HttpResponse | Exception] = []
        self.always: HttpResponse | Exception | None = None
        self.envelope: Callable[[list[dict[str, Any]]], Any] = lambda replies: replies
        self.batch_limit: int | None = None
        self.batch_refusal: dict[str, Any] = {"code": -32600, "message": "batch requests are not supported"}
        self.asked: list[tuple[str, Any]] = []
        self.bodies: list[int] = []

    def count(self, method: str) -> int:
        return Counter(name for name, _ in self.asked)[method]

    def post(self, body: bytes) -> HttpResponse:
        fault = self.exchanges.pop(0) if self.exchanges else self.always
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        reads = json.loads(body)
        single = isinstance(reads, dict)
        reads = [reads] if single else reads
        self.bodies.append(len(reads))
        if self.batch_limit is not None and len(reads) > self.batch_limit:
            return answered({"jsonrpc": "2.0", "id": None, "error": self.batch_refusal})
        replies = self.envelope([self._reply(ask) for ask in reads])
        return answered(replies[0] if single and isinstance(replies, list) and len(replies) == 1 else replies)

    def _reply(self, ask: dict[str, Any]) -> dict[str, Any]:
        method, params = ask["method"], ask["params"]
        self.asked.append((method, params))
        head = {"jsonrpc": "2.0", "id": ask["id"]}
        try:
            return {**head, "result": self.on.get(method, getattr(self, method, _unknown))(params)}
        except RpcRefusal as refused:
            return {**head, "error": refused.error()}

    def eth_chainId(self, params: list[Any]) -> str:
        return hex(CHAIN_ID)

    def eth_getBlockByNumber(self, params: list[Any]) -> Any:
        height = self.chain.height_of(params[0])
        return None if height is None else self.chain.headers[height]

    def eth_getLogs(self, params: list[Any]) -> list[dict[str, Any]]:
        query = params[0]
        if "blockHash" in query:
            height = self.chain.height_of(query)
            if height is None:
                raise RpcRefusal(-32000, "unknown block")
            span = range(height, height + 1)
        else:
            span = range(int(query["fromBlock"], 16), min(int(query["toBlock"], 16), self.chain.head) + 1)
        entries = [log for height in self.chain.filled(span) for log in self.chain.logs[height]]
        contracts = query.get("address")
        return [
            log
            for log in entries
            if _answers(log["topics"], query.get("topics", []))
            if not contracts or log["address"] in contracts
        ]

    def eth_call(self, params: list[Any]) -> str:
        self._require_block(params[1])
        return self.contracts.call(params[0], params[2] if len(params) > 2 else {})

    def eth_getBalance(self, params: list[Any]) -> str:
        self._require_block(params[1])
        return hex(self.contracts.native.get(params[0], 0))

    def _require_block(self, tag: Any) -> None:
        if self.chain.height_of(tag) is None:
            raise RpcRefusal(-32000, "header not found")


def _answers(topics: Sequence[str], filter_topics: Sequence[Sequence[str] | None]) -> bool:
    """Return True if topics match a filter by position; None matches any topic."""
    enough = len(topics) >= len(filter_topics)
    return enough and all(any_ is None or topic in any_ for topic, any_ in zip(topics, filter_topics, strict=False))


def _unknown(params: list[Any]) -> Any:
    raise RpcRefusal(-32601, "the method does not exist/is not available")


def answered(reply: Any, status: int = 200, retry_after_s: float | None = None) -> HttpResponse:
    """An exchange whose body is this JSON."""
    return HttpResponse(status, retry_after_s, json.dumps(reply, separators=(",", ":")).encode())


@dataclass
class FakeTransport:
    """Posts to nodes in memory by address, and remembers in which order they were asked."""

    nodes: dict[str, FakeNode] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        self.order.append(source)
        return self.nodes[url].post(body)

    async def close(self) -> None:
        self.nodes.clear()


# --- all of it together ----------------------------------------------------------------------------------------------


def facts_of(chain: FakeChain) -> Facts:
    return Facts(
        key="fake",
        kind="evm",
        chain_id=CHAIN_ID,
        name="Fake",
        native=Native("ETH", "Ether", 18, 60),
        genesis=chain.headers[0]["hash"],
        finality=2,
        wrapped=WrappedNative("0x" + "ee" * 20, "WETH"),
    )


@dataclass
class Wired:
    """A chain's nodes as one, over fakes."""

    node: Node
    clock: FakeClock
    transport: FakeTransport

    @property
    def endpoint(self) -> Endpoint:
        return self.node.endpoints[0]

    def node_block(self, height: int) -> Block:
        """A block of the first node's chain."""
        return next(iter(self.transport.nodes.values())).chain.block(height)

    def reader(self, integrity: str = "bloom") -> LogReader:
        return LogReader(self.node, integrity=integrity)


def wired(*nodes: FakeNode, urls: Sequence[str] = (), checked: bool = False) -> Wired:
    """Return a pool of endpoints `one.test`, `two.test` … over these nodes.

    `checked` skips the handshake with chain id and genesis.
    """
    clock = FakeClock()
    environment = Environment(clock=clock, random=random.Random(7))
    names = urls or [f"http://{name}.test" for name, _ in zip(("one", "two", "three"), nodes, strict=False)]
    transport = FakeTransport(dict(zip(names, nodes, strict=True)))
    endpoints = [EvmEndpoint(url, transport, environment) for url in names]
    for endpoint in endpoints:
        endpoint.checked = checked
    return Wired(Node(facts_of(nodes[0].chain), endpoints, environment), clock, transport)
