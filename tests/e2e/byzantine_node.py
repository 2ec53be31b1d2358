"""A node that passes a real one's answers on, and changes what its script changes."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.damage import with_results

Lie = Callable[[str, list[Any], Any], Any]


def replacing(method: str, true: str, false: str) -> Lie:
    """The script that puts one text in another's place in the results of a method."""

    def lie(called: str, params: list[Any], result: Any) -> Any:
        return json.loads(json.dumps(result).replace(true, false)) if called == method else result

    return lie


@contextmanager
def byzantine(upstream: str, lie: Lie) -> Iterator[str]:
    """Serves such a node, and gives its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            forwarded = urllib.request.Request(upstream, body, {"content-type": "application/json"})
            with urllib.request.urlopen(forwarded) as answer:
                replies = with_results(json.loads(body), json.loads(answer.read()), lie)
            content = json.dumps(replies).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
