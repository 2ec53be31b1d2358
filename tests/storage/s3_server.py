"""A local S3 service that fails on demand: run as `python -m tests.storage.s3_server FLAG`.

It prints its port. As long as the file FLAG has a word in it, requests fail so: `slow` with 503 SlowDown, `denied` with
403, `closed` without an answer; and `unanswered` makes a commit, and then answers 500. `once` does so one time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any
from urllib.request import Request, urlopen

ANSWERS = {
    "slow": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "denied": ("403 Forbidden", "InvalidAccessKeyId", "The key does not exist."),
    "once": ("500 Internal Server Error", "InternalError", "We encountered an internal error."),
    "unanswered": ("500 Internal Server Error", "InternalError", "We encountered an internal error."),
}


@dataclass
class S3:
    """A running service: its URL, and the file that makes it fail."""

    url: str
    flag: Path
    buckets: int = 0

    def bucket(self) -> str:
        """Create an empty bucket and return the address of a lake in it."""
        self.buckets += 1
        name = f"lake-{self.buckets}"
        with urlopen(Request(f"{self.url}/{name}", method="PUT"), timeout=10):
            return f"s3://{name}/chain-data"

    @contextmanager
    def failing(self, how: str) -> Iterator[None]:
        """Let every request of the block fail in one of the ways."""
        self.flag.write_text(how)
        try:
            yield
        finally:
            self.flag.unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        """The variables with which a process reaches it."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "eu-central-1",
        }


@contextmanager
def serving(folder: Path) -> Iterator[S3]:
    """Run the service in a child process within the context."""
    flag = folder / "flag"
    command = [sys.executable, "-m", "tests.storage.s3_server", str(flag)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            port = child.stdout.readline().strip()
            yield S3(f"http://127.0.0.1:{port}", flag)
        finally:
            child.kill()


def main(flag: Path) -> None:
    """Serve until it is killed."""
    import logging
    from threading import Lock

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    service, committing = DomainDispatcherApplication(create_backend_app), Lock()

    def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Pass a request on. The service compares `If-None-Match` and stores in two steps: one commit at a time."""
        with committing:
            return service(request, start)  # type: ignore[no-any-return]

    def application(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        how = ""
        with suppress(FileNotFoundError):
            how = flag.read_text()
        if how == "closed":
            request["werkzeug.socket"].shutdown(SHUT_RDWR)
            return []
        is_commit = request["REQUEST_METHOD"] == "PUT" and "/_delta_log/" in request["PATH_INFO"]
        if not how or (how in ("unanswered", "once") and not is_commit):
            return (answer if is_commit else service)(request, start)
        if how in ("unanswered", "once"):
            list(answer(request, lambda *_: None))
        if how == "once":
            flag.unlink()
        status, code, message = ANSWERS[how]
        start(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()]

    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "server")
    main(Path(sys.argv[1]))
