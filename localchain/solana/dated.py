"""A Solana node whose blocks and transactions say when they were.

Surfpool writes a thousandth of the second into blocks and transactions, and the right one into `getBlockTime`; and its
clock can only start from now. The proxy here takes the time from `getBlockTime`, subtracts a number of seconds from all
times, and changes nothing else. Tests may answer some methods in its place, such as rewards, which it never pays.
"""

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.solana.node import SolanaNode

CLOCK = "SysvarC1ock11111111111111111111111111111111"
TIME_AT = 32  # bytes before the time in the clock of the chain


@contextmanager
def dated(
    node: SolanaNode, ago_s: int = 0, overrides: Mapping[str, Callable[[Any], Any]] | None = None
) -> Iterator[str]:
    """Serve a proxy of the node with corrected block times within the context; yield its URL.

    Args:
        node: The node behind the proxy.
        ago_s: Subtracted from all times.
        overrides: Functions that answer some methods in place of the node, from their parameters.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", 2**16

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps({"jsonrpc": "2.0", **_answer(node, request, ago_s, overrides or {})}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(
    node: SolanaNode, request: Any, ago_s: int, overrides: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return the response to one request without `jsonrpc`; batches are refused, as by the node."""
    if isinstance(request, list):
        return {"id": None, "error": {"code": -32600, "message": "Only method calls are supported"}}
    try:
        if request["method"] in overrides:
            return {"id": request["id"], "result": overrides[request["method"]](request.get("params", ()))}
        response = node.rpc(request["method"], *request.get("params", ()))
        if response is not None and request["method"] in ("getBlock", "getTransaction"):
            slot = request["params"][0] if request["method"] == "getBlock" else response["slot"]
            response["blockTime"] = node.rpc("getBlockTime", slot) - ago_s
        elif request["method"] == "getMultipleAccounts" and CLOCK in request["params"][0]:
            data = response["value"][request["params"][0].index(CLOCK)]["data"]
            data[0] = _earlier(data[0], ago_s)
    except RpcError as error:
        return {"id": request["id"], "error": {"code": error.code, "message": error.message}}
    return {"id": request["id"], "result": response}


def _earlier(clock: str, ago_s: int) -> str:
    """Return the clock account in base64, with its time reduced by `ago_s`."""
    content = bytearray(base64.b64decode(clock))
    (time_s,) = struct.unpack_from("<q", content, TIME_AT)
    struct.pack_into("<q", content, TIME_AT, time_s - ago_s)
    return base64.b64encode(content).decode()
