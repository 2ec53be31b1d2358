"""A real node as a provider serves it: without some methods, with limits, with an explorer beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs

import msgspec

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.explorer import Explorer
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.chain_facts import WrappedNative
from chainfolio.environment import Environment
from chainfolio.localchain.deploy import Deployment
from chainfolio.localchain.node import LocalNode
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.evm.anvil import LOCAL

TRACES = ("trace_", "debug_")
SEARCH = ("ots_",)
SIMULATION = ("eth_simulateV1",)
# What providers have beside logs, blocks and state; each leaves out what the others have.
SETS: dict[str, tuple[str, ...]] = {
    "traces": SEARCH + SIMULATION,
    "search": TRACES + SIMULATION,
    "explorer": TRACES + SEARCH + SIMULATION,
    "state": TRACES + SEARCH,
}
Fault = Callable[[dict[str, Any]], dict[str, Any] | None]


@dataclass
class Provider:
    """A transport that refuses methods, and whatever `fault` answers instead of the node."""

    url: str
    without: Sequence[str] = ()
    fault: Fault = lambda ask: None
    largest: int = 10_000
    method_counts: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        call = json.loads(body)
        reads = call if isinstance(call, list) else [call]
        self.requests += 1
        self.method_counts.update(read["method"] for read in reads)
        if len(reads) > self.largest:
            refusal = {"code": -32600, "message": f"batch of more than {self.largest} requests"}
            return _posted({"jsonrpc": "2.0", "id": None, "error": refusal})
        own_answers = {read["id"]: self._local_answer(read) for read in reads}
        forwarded = [read for read in reads if own_answers[read["id"]] is None]
        real = await self._forward(source, forwarded, timeout_s) if forwarded else {}
        answers = [own_answers[read["id"]] or real[read["id"]] for read in reads]
        return _posted(answers if isinstance(call, list) else answers[0])

    def _local_answer(self, read: dict[str, Any]) -> dict[str, Any] | None:
        if read["method"].startswith(tuple(self.without)):
            error = {"code": -32601, "message": f"the method {read['method']} does not exist/is not available"}
            return {"jsonrpc": "2.0", "id": read["id"], "error": error}
        outcome = self.fault(read)
        return None if outcome is None else {"jsonrpc": "2.0", "id": read["id"], **outcome}

    async def _forward(self, source: str, reads: list[dict[str, Any]], timeout_s: float) -> dict[int, dict[str, Any]]:
        posted = await self._real.post(source, self.url, json.dumps(reads).encode(), timeout_s)
        answers = json.loads(posted.body)
        posted.give_back()
        return {answer["id"]: answer for answer in answers}

    async def close(self) -> None:
        await self._real.close()


def _posted(reply: Any) -> HttpResponse:
    return HttpResponse(200, None, json.dumps(reply).encode())


def changing(node: LocalNode, **changes: Callable[[Any], Any]) -> Fault:
    """The results of some methods of the node, changed."""

    def fault(ask: dict[str, Any]) -> dict[str, Any] | None:
        change = changes.get(ask["method"])
        return None if change is None else {"result": change(node.rpc(ask["method"], *ask["params"]))}

    return fault


@dataclass
class Listing:
    """The transport of an explorer that knows every call from the node's traces.

    It lists at most `max_rows` rows; if `is_turned`, the newest ones.
    """

    node: LocalNode
    max_rows: ClassVar[int] = 10_000
    is_turned: ClassVar[bool] = False

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        query = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if query["action"] == "eth_blockNumber":
            return _posted({"jsonrpc": "2.0", "id": 1, "result": hex(self.node.height)})
        rows = self._internal_calls() if query["action"] == "txlistinternal" else self._transactions()
        if "txhash" in query:
            rows = [row for row in rows if row["hash"] == query["txhash"]]
        if "address" in query:
            rows = [row for row in rows if query["address"] in (row["from"], row["to"], row["contractAddress"])]
        first, last = int(query.get("startblock", 0)), int(query.get("endblock", 10**9))
        rows = [row for row in rows if first <= int(row["blockNumber"]) <= last][:: -1 if self.is_turned else 1]
        page = rows[: min(self.max_rows, int(query.get("offset", 10_000)))]
        return _posted({"status": "1", "message": "OK", "result": page})

    def _transactions(self) -> list[dict[str, Any]]:
        return [
            {
                "blockNumber": str(int(tx["blockNumber"], 16)),
                "hash": tx["hash"],
                "from": tx["from"],
                "to": tx["to"] or "",
                "value": str(int(tx["value"], 16)),
                "isError": "0",
                "contractAddress": self.node.rpc("eth_getTransactionReceipt", tx["hash"])["contractAddress"] or "",
            }
            for height in range(self.node.height + 1)
            for tx in self.node.rpc("eth_getBlockByNumber", hex(height), True)["transactions"]
        ]

    def _internal_calls(self) -> list[dict[str, Any]]:
        entries = []
        for height in range(1, self.node.height + 1):
            for trace in self.node.rpc("trace_block", hex(height)):
                action, result = trace["action"], trace.get("result") or {}
                if trace["traceAddress"]:
                    entries.append(
                        {
                            "blockNumber": str(height),
                            "hash": trace["transactionHash"],
                            "type": trace["type"],
                            "callType": action.get("callType", ""),
                            "from": action.get("from") or action.get("address"),
                            "to": action.get("to") or action.get("refundAddress") or "",
                            "value": str(int(action.get("value") or action.get("balance") or "0x0", 16)),
                            "isError": "1" if "error" in trace else "0",
                            "contractAddress": result.get("address", ""),
                        }
                    )
        return entries

    async def close(self) -> None:
        pass


@asynccontextmanager
async def served(
    node: LocalNode,
    deployment: Deployment,
    *providers: Provider,
    explorer: bool = False,
    pays: Sequence[str] = (),
    **settings: Any,
) -> AsyncIterator[EvmChain]:
    """Our chain over some providers; `pays` is what its protocol does."""
    wrapped = WrappedNative(deployment.tokens["WETH"].address.lower(), "WETH")
    facts = msgspec.structs.replace(load(LOCAL), wrapped=wrapped, pays=tuple(pays))
    environment = Environment()
    urls = [f"http://provider-{number}.test" for number, _ in enumerate(providers)]
    endpoints = [EvmEndpoint(url, each, environment) for url, each in zip(urls, providers, strict=True)]
    listing = Explorer("http://explorer.test/api", Listing(node), environment) if explorer else None
    evm_settings = EvmSettings(rpc=urls, **settings)
    nodes = Node(facts, endpoints, environment, quorum=evm_settings.quorum, hashed=evm_settings.integrity == "roots")
    chain = EvmChain(facts, nodes, evm_settings, listing)
    try:
        yield chain
    finally:
        await chain.close()
