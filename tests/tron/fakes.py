"""A Tron node that answers what a test wants it to: for faults that a real one does not have.

Its blocks and transactions are built here as Tron builds them, byte by byte, so that ids are those of their contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from bench.tron_blocks import OWNERS, signature
from chainfolio.adapters.tron.addresses import decode_address, hex_address, parse_address
from chainfolio.adapters.tron.chain import TronChain, build
from chainfolio.adapters.tron.forms import RawHeader, Transaction
from chainfolio.adapters.tron.protobuf import encode_field
from chainfolio.adapters.tron.roots import transactions_root
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer
from chainfolio.transport.exchange import HttpResponse, Sink
from tests.evm.fakes import FakeClock
from tests.tron.recorded import FACTS, ROOT

ALICE, BOB, CAROL = (parse_address("", each) for each in OWNERS)
KEYS = {ALICE: 1, BOB: 2, CAROL: 3}
USDT = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
WITNESS = "41f16412b9a17ee9408646e2a21e16478f72ed1e95"
TRANSFER = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
START_MS, BLOCK_MS = 1_700_000_001_000, 3_000
Answer = Callable[[Any], Any]


class Refuse(Exception):
    """A refusal of the node, with a status and a reason."""

    def __init__(self, reason: str, status: int = 200) -> None:
        self.reason, self.status = reason, status


def packed(kind: int, *fields: tuple[int, int | bytes | str]) -> bytes:
    """Return the signed bytes of a transaction of a type, with the fields of its contract.

    Addresses are text; bytes of the field 0 are appended unchanged.
    """
    value = b"".join(
        each
        if not key and isinstance(each, bytes)
        else encode_field(key, b"\x41" + decode_address(each) if isinstance(each, str) else each)
        for key, each in fields
    )
    contract = encode_field(1, kind) + encode_field(
        2, encode_field(1, b"type.googleapis.com/protocol.X") + encode_field(2, value)
    )
    return encode_field(8, START_MS) + encode_field(11, contract) + encode_field(14, START_MS)


def make_transaction(
    kind: int, *fields: tuple[int, int | bytes | str], ret: str = "SUCCESS", by: Sequence[str] = (), **info: Any
) -> dict[str, Any]:
    """Return a transaction signed by `by`, or by its first address, with its receipt under `info`."""
    data = packed(kind, *fields)
    name = hashlib.sha256(data).digest()
    signed = by or [each for _, each in fields if isinstance(each, str)][:1]
    return {
        "txID": name.hex(),
        "raw_data_hex": data.hex(),
        "ret": [{"contractRet": ret}],
        "signature": [signature(name, KEYS[each]) for each in signed],
        "info": {"id": name.hex(), **info},
    }


def make_transfer(sender: str, recipient: str, amount: int, **info: Any) -> dict[str, Any]:
    """Return a transfer of coins."""
    return make_transaction(1, (1, sender), (2, recipient), (3, amount), **info)


def event(*topics: str, data: str = "", token: str = USDT) -> dict[str, Any]:
    """Return an event of a token; topics are words or addresses."""
    event_topics = [decode_address(each).hex().rjust(64, "0") if each.startswith("T") else each for each in topics]
    return {"address": decode_address(token).hex(), "topics": event_topics, "data": data}


class FakeNode:
    """Answers each path by a function of the body; blocks up to `head`, solid up to `solid`."""

    def __init__(self, **answers: Answer) -> None:
        self.head, self.solid, self.forks = 100, 90, dict[int, int]()
        self.paths: list[str] = []
        self.transactions: dict[int, list[dict[str, Any]]] = {}
        self.wallets: dict[str, dict[str, Any]] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        self.contract: dict[str, Any] | None = None  # what every contract answers
        self.answers: Mapping[str, Answer] = {
            "/wallet/getblock": lambda body: self.header(self._height(body, self.head)),
            "/walletsolidity/getblock": lambda body: self.header(self._height(body, self.solid)),
            "/wallet/getblockbynum": lambda body: self.full_block(body["num"]),
            "/wallet/gettransactioninfobyblocknum": lambda body: self.infos(body["num"]),
            "/wallet/gettransactionbyid": lambda body: self.find_transaction(body["value"])[0],
            "/wallet/gettransactioninfobyid": lambda body: self.find_transaction(body["value"])[1],
            "/wallet/getaccount": lambda body: self.wallets.get(body["address"], {}),
            "/jsonrpc": self.call_contracts,
            **{f"/{name.replace('__', '/')}": each for name, each in answers.items()},
        }

    @staticmethod
    def _height(body: Any, newest: int) -> int:
        return int(body["id_or_num"]) if "id_or_num" in body else newest

    def header(self, height: int) -> dict[str, Any]:
        """A block without its transactions."""
        if not 0 <= height <= self.head:
            return {}
        if not height:
            first = {"parentHash": "00" * 32, "txTrieRoot": "00" * 32, "witness_address": ""}
            return {"blockID": FACTS.genesis, "block_header": {"raw_data": first}}
        raw_data: dict[str, Any] = {
            "number": height,
            "timestamp": START_MS + BLOCK_MS * height,
            "version": self.forks.get(height, 30),
            "parentHash": self.id(height - 1),
            "txTrieRoot": self.root(height),
            "witness_address": WITNESS,
        }
        header = msgspec.convert(raw_data, RawHeader)
        return {"blockID": header.id(), "block_header": {"raw_data": raw_data, "witness_signature": "00"}}

    def id(self, height: int) -> str:
        """The id of a block; another one on a fork (which gives the headers from there on another version)."""
        block_id: str = self._ids(height)
        return block_id

    def _ids(self, height: int) -> str:
        parent_id = FACTS.genesis
        for each in range(1, height + 1):
            raw_data = RawHeader(
                parentHash=parent_id,
                txTrieRoot=self.root(each),
                witness_address=WITNESS,
                number=each,
                timestamp=START_MS + BLOCK_MS * each,
                version=self.forks.get(each, 30),
            )
            parent_id = raw_data.id()
        return parent_id

    def root(self, height: int) -> str:
        """Return the root of transactions in a block's header."""
        try:
            return transactions_root(
                "", [msgspec.convert(each, Transaction) for each in self.transactions.get(height, [])]
            )
        except BadAnswer:  # they are none
            return "00" * 32

    def full_block(self, height: int) -> dict[str, Any]:
        """A block with its transactions."""
        bodies = [{k: v for k, v in each.items() if k != "info"} for each in self.transactions.get(height, [])]
        return {**self.header(height), **({"transactions": bodies} if bodies else {})}

    def infos(self, height: int) -> list[dict[str, Any]]:
        """The receipts of a block."""
        return [{"blockNumber": height, **each["info"]} for each in self.transactions.get(height, [])]

    def find_transaction(self, tx_hash: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a transaction and its receipt, both empty if there is none."""
        for height, transactions in self.transactions.items():
            for each in transactions:
                if each["txID"] == tx_hash:
                    body = {k: v for k, v in each.items() if k != "info"}
                    return body, {"blockNumber": height, **each["info"]}
        return {}, {}

    def call_contracts(self, requests: Any) -> Any:
        """Return the answers of contracts: balances by `tokens`, and the newest block."""
        batch = requests if isinstance(requests, list) else [requests]
        answers = [{"jsonrpc": "2.0", "id": each["id"], **self._call_contract(each)} for each in batch]
        return answers if isinstance(requests, list) else answers[0]

    def _call_contract(self, request: Any) -> dict[str, Any]:
        if request["method"] == "eth_getBlockByNumber":
            time_s = (START_MS + BLOCK_MS * self.head) // 1_000
            ids = {"hash": f"0x{self.id(self.head)}", "parentHash": f"0x{self.id(self.head - 1)}"}
            return {"result": {"number": hex(self.head), "timestamp": hex(time_s), **ids}}
        if self.contract is not None:
            return self.contract
        contract, data = (request["params"][0][name] for name in ("to", "data"))
        if data.startswith("0x70a08231"):
            return {"result": f"0x{self.tokens.get((contract, data[-40:]), 0):064x}"}
        return {"error": {"code": -32000, "message": "REVERT opcode executed"}}

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One request."""
        path = "/" + url.split("/", 3)[3]
        return self._answered(path, json.loads(body))

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """One request without a body."""
        return self._answered("/" + url.split("/", 3)[3], None)

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Answer with status 406: a node has no content for a sink."""
        return HttpResponse(406, None, b"{}")

    def _answered(self, path: str, body: Any) -> HttpResponse:
        self.paths.append(path)
        route = path.partition("?")[0]
        if route not in self.answers:
            return HttpResponse(404, None, b"{}")
        try:
            answer = self.answers[route](path if body is None else body)
        except Refuse as error:
            return HttpResponse(error.status, None, msgspec.json.encode({"Error": error.reason}))
        return HttpResponse(200, None, answer if isinstance(answer, bytes) else msgspec.json.encode(answer))

    async def close(self) -> None:
        """Do nothing: the fake holds no connections."""

    def chain(self, *urls: str, trongrid: bool = False, signatures: str = "all") -> TronChain:
        """The chain of this node; its contracts are called one by one."""
        endpoints = list(urls) or ["http://one.test"]
        settings = TronSettings(adapter="tron", rpc=endpoints, trongrid=trongrid, signatures=signatures)
        environment = Environment(clock=FakeClock(), random=Random(7))
        chain = build("tron", settings, environment, configs=ROOT / "configs", transport=self)
        chain.facts = msgspec.structs.replace(chain.facts, multicall="")
        return chain

    def give(self, account: str, **has: Any) -> None:
        """Let an account have something."""
        self.wallets[hex_address(account)] = {"address": hex_address(account), **has}
