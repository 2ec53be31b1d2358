"""A simulated rented endpoint in front of a node: limits of rate, ranges and batches, and failures."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import urlsplit

LogId = tuple[str, int]  # the hash of the transaction, and the number of the log in its block


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules of a rented endpoint. A share is a probability of one request, 0 to 1."""

    range_blocks: int = 2_000  # of eth_getLogs
    results: int = 1_000  # of eth_getLogs
    batch: int = 10
    rps: float = 15  # requests a second, so many of them at once; 0: no limit
    counts_calls: bool = False  # True: the rate counts each call of a batch, not the batch
    retry_after: Sequence[str | None] = ("1", None)  # the header of a 429, one chosen at random
    failing: float = 0.01  # share of requests that are answered with HTTP 502
    hanging: float = 0.002  # share of requests that are never answered
    lag: int = 2  # blocks that the head is behind at most
    latency_s: float = 0  # before each answer
    refused: Sequence[str] = ("trace_", "debug_", "ots_", "anvil_", "evm_", "hardhat_")  # first letters of methods
    left_out: frozenset[LogId] = frozenset()  # logs that eth_getLogs does not return; receipts have them


@dataclass
class RentedEndpoint:
    """Serves JSON-RPC of the node at `node_url` under some limits, at random as `seed` says.

    `now_s` is the clock of the rate limit. The counters are totals since the last `reset`.
    """

    node_url: str
    limits: Limits = Limits()
    seed: int = 1
    now_s: Callable[[], float] = time.monotonic
    requests: int = 0
    refusals: int = 0  # requests that were answered with 429
    failures: int = 0  # requests that were answered with 502
    hangs: int = 0  # requests that were never answered
    calls: Counter[str] = field(default_factory=Counter)
    url: str = ""
    _chance: Random = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _credit: float = field(init=False)
    _credit_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self, limits: Limits | None = None) -> None:
        """Reset counters, allowance and randomness, and replace the limits if some are given."""
        with self._lock:
            self.limits = limits or self.limits
            self._chance = Random(self.seed)
            self.requests = self.refusals = self.failures = self.hangs = 0
            self.calls = Counter()
            self._credit, self._credit_s = max(1.0, self.limits.rps), self.now_s()

    # --- one request -------------------------------------------------------------------------------------------------

    def admitted(self, calls: Sequence[Mapping[str, object]]) -> tuple[int, str | None, int]:
        """Count a request; return its HTTP status (0: no answer), `Retry-After`, and how far the head lags."""
        with self._lock:
            self.requests += 1
            self.calls.update(str(call.get("method")) for call in calls)
            if not self._spend(len(calls) if self.limits.counts_calls else 1):
                self.refusals += 1
                return 429, self._chance.choice(self.limits.retry_after), 0
            fate = self._chance.random()
            if fate < self.limits.hanging:
                self.hangs += 1
                return 0, None, 0
            if fate < self.limits.hanging + self.limits.failing:
                self.failures += 1
                return 502, None, 0
            return 200, None, self._chance.randint(0, self.limits.lag)

    def _spend(self, cost: int) -> bool:
        """Take a request from the allowance; False if it is used up."""
        if not self.limits.rps:
            return True
        now_s = self.now_s()
        refilled = self._credit + max(0.0, now_s - self._credit_s) * self.limits.rps
        self._credit, self._credit_s = min(refilled, max(1.0, self.limits.rps)), now_s
        if self._credit < cost:
            return False
        self._credit -= cost
        return True

    def answers(self, calls: Sequence[dict[str, Any]], lag: int, node: "Upstream") -> list[dict[str, Any]]:
        """Return the responses to the calls of a request, in order, with the head `lag` blocks back."""
        head = int(node.post([_ask("eth_blockNumber")])[0]["result"], 16) - lag
        refusals = [self._refusal(call, head) for call in calls]
        passed = [_at_head(call, head) for call, refusal in zip(calls, refusals, strict=True) if refusal is None]
        responses = iter(node.post(passed) if passed else ())
        replies = [
            refusal or self._limited(call, next(responses)) for call, refusal in zip(calls, refusals, strict=True)
        ]
        return [{**reply, "jsonrpc": "2.0", "id": call.get("id")} for call, reply in zip(calls, replies, strict=True)]

    def _refusal(self, call: Mapping[str, Any], head: int) -> dict[str, Any] | None:
        """Return the response to a call that does not reach the node; None for other calls."""
        method, params = str(call.get("method")), call.get("params") or []
        if method.startswith(tuple(self.limits.refused)):
            return _error(-32601, f"the method {method} does not exist/is not available")
        if method == "eth_blockNumber":
            return {"result": hex(head)}
        if method == "eth_getBlockByNumber" and _height(params[0]) > head:
            return {"result": None}
        if method == "eth_getLogs" and "blockHash" not in params[0]:
            first, last = (_height(params[0].get(name, "latest")) for name in ("fromBlock", "toBlock"))
            if (min(last, head) if last >= 0 else head) - first >= self.limits.range_blocks:
                return _error(-32602, f"eth_getLogs is limited to a {self.limits.range_blocks} blocks range")
        if any(_height(param) > head for param in params[1:2]) and method in STATE:
            return _error(-32000, "header not found")
        return None

    def _limited(self, call: Mapping[str, object], reply: dict[str, Any]) -> dict[str, Any]:
        """Return the node's response as far as the endpoint's limits allow."""
        if call["method"] != "eth_getLogs" or "result" not in reply:
            return reply
        logs = reply["result"]
        if len(logs) > self.limits.results:
            return _error(-32005, f"query returned more than {self.limits.results} results")
        return {"result": [log for log in logs if log_id(log) not in self.limits.left_out]}

    # --- its life ----------------------------------------------------------------------------------------------------

    @contextmanager
    def serving(self) -> Iterator["RentedEndpoint"]:
        """Serve at `url`, a free loopback port, until the context ends."""
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self)) as server:
            server.daemon_threads = True
            server.block_on_close = False
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            try:
                yield self
            finally:
                self._closed.set()
                server.shutdown()
                thread.join()

    def wait(self, seconds: float | None) -> None:
        """Wait for some seconds, or until the endpoint is closed; without a limit for None."""
        self._closed.wait(seconds)


STATE = ("eth_call", "eth_getBalance", "eth_getTransactionCount", "eth_getCode")  # the block is the second parameter


def log_id(log: Mapping[str, Any]) -> LogId:
    """Return the transaction hash and the index of a log."""
    return str(log["transactionHash"]), int(log["logIndex"], 16)


class Upstream:
    """Connection of a rented endpoint to its node."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def post(self, calls: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
        """Return the node's responses in the order of the calls, each with only `result` or `error`."""
        body = json.dumps([{**call, "id": number} for number, call in enumerate(calls)])
        self._connection.request("POST", "/", body, {"content-type": "application/json"})
        replies = {reply["id"]: reply for reply in json.loads(self._connection.getresponse().read())}
        return [
            {name: replies[number][name] for name in ("result", "error") if name in replies[number]}
            for number in range(len(calls))
        ]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def __init__(self, endpoint: RentedEndpoint, *args: Any) -> None:
        self.endpoint = endpoint
        super().__init__(*args)  # answers all requests of the connection

    def setup(self) -> None:
        super().setup()
        self.node = Upstream(self.endpoint.node_url)

    def finish(self) -> None:
        self.node.close()
        super().finish()

    def do_POST(self) -> None:
        """Answer a request by the endpoint's limits; a hanging one gets no response."""
        endpoint = self.endpoint
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        calls = body if isinstance(body, list) else [body]
        status, retry_after, lag = endpoint.admitted(calls)
        if status == 0:
            endpoint.wait(None)
            self.close_connection = True
            return
        if endpoint.limits.latency_s:
            endpoint.wait(endpoint.limits.latency_s)
        if status != 200:
            self._reply(status, b"<html>not now</html>", retry_after)
        elif len(calls) > endpoint.limits.batch:
            refusal = _error(-32600, f"batch of more than {endpoint.limits.batch} requests")
            self._reply(200, json.dumps({"jsonrpc": "2.0", "id": None, **refusal}).encode(), None)
        else:
            replies = endpoint.answers(calls, lag, self.node)
            self._reply(200, json.dumps(replies if isinstance(body, list) else replies[0]).encode(), None)

    def _reply(self, status: int, content: bytes, retry_after: str | None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json" if status == 200 else "text/html")
        self.send_header("content-length", str(len(content)))
        if retry_after is not None:
            self.send_header("retry-after", retry_after)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _ask(method: str, *params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _height(tag: object) -> int:
    """Return the height that a parameter names; -1 for a word or a hash."""
    return int(tag, 16) if isinstance(tag, str) and tag.startswith("0x") and len(tag) < 20 else -1


def _at_head(call: dict[str, Any], head: int) -> dict[str, Any]:
    """Return a call with the endpoint's head for `latest` and `pending`, and as the end of log ranges.

    Lower ends of log ranges are kept.
    """
    params: list[Any] = [hex(head) if param in ("latest", "pending") else param for param in call.get("params") or []]
    if call["method"] == "eth_getLogs" and "blockHash" not in params[0]:
        wide = {"fromBlock": hex(head), "toBlock": hex(head), **params[0]}
        last = head if wide["toBlock"] in ("latest", "pending") else min(_height(wide["toBlock"]), head)
        params = [{**wide, "toBlock": hex(last)}]
    return {**call, "params": params}
