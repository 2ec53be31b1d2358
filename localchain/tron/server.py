"""HTTP server of the node: routes, and java-tron's form of errors."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chainfolio.localchain.tron.answers import READS
from chainfolio.localchain.tron.asks import ASKS, constant_call
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.grid import grid
from chainfolio.localchain.tron.jsonrpc import rpc
from chainfolio.localchain.tron.views import View

SOLID = {**READS, "triggerconstantcontract": constant_call}


class Server:
    """Serves a node on a free loopback port, in threads."""

    def __init__(self, node: Chain) -> None:
        self._node = node
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """URL of the server."""
        assert self._http is not None, "it is not running"
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        """Start to answer, in threads."""
        node = self._node

        class Handler(_Handler):
            served = node

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop; without effect if it is not running."""
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Chain

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer a request with its parameters in the URL."""
        self._answer(dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self) -> None:
        """Answer a request with its parameters in the body."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            self._answer(json.loads(content) if content else {})
        except json.JSONDecodeError as error:
            self._reply(200, {"Error": f"class com.alibaba.fastjson.JSONException : {error}"})

    def _answer(self, body: object) -> None:
        """Answer a request under the chain's lock; exceptions become a response with status 200."""
        path = urlsplit(self.path).path
        with self.served.turn:
            try:
                status, document = answer(self.served, path, body)
            except (KeyError, TypeError, ValueError) as error:  # java-tron says its exceptions, with status 200
                status, document = 200, {"Error": f"class java.lang.IllegalArgumentException : {error}"}
        self._reply(status, document)

    def _reply(self, status: int, document: object) -> None:
        content = json.dumps(document, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def answer(node: Chain, path: str, body: Any) -> tuple[int, Any]:
    """Return the HTTP status and the response to a request; 404 for an unknown path."""
    if path == "/jsonrpc":
        return 200, [rpc(node, each) for each in body] if isinstance(body, list) else rpc(node, body)
    part, _, name = path.strip("/").partition("/")
    if part == "v1" and node.grid:
        return grid(node, name, body)
    visible = body.get("visible") in (True, "true")
    if part == "wallet" and name in READS | ASKS:
        return 200, (READS | ASKS)[name](View(node, node.head.height, visible), body)
    if part == "walletsolidity" and name in SOLID:
        return 200, SOLID[name](View(node, node.solid, visible), body)
    return 404, {"Error": "not found"}
