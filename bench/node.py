"""A context with the replay node, which has recorded responses, optional faults and counters."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.places import HERE, MissingPrerequisite, recorded


@dataclass(frozen=True, slots=True)
class ReplayNode:
    """A running replay node."""

    url: str

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            read: dict[str, Any] = json.loads(answer.read())
        return read

    def stats(self) -> dict[str, Any]:
        """Return counters since the last reset: `http`, `calls`, `bytes`, `rejected`, `failed`, `asked` spans."""
        return self._get("/stats")

    def reset(self) -> None:
        """Set all counters to 0."""
        self._get("/reset")


@contextmanager
def replay(*flags: str, folder: Path | None = None) -> Iterator[ReplayNode]:
    """Run a replay node of the recorded chain, or of one in another folder, on a free port; yield it."""
    data = ["--data", str(folder or recorded().folder)]
    script = ["--max-old-space-size=12000", str(HERE / "chain" / "replay_node.mjs")]
    with served(["node", *script, *data, "--port", "0", *flags]) as url:
        yield ReplayNode(url)


@contextmanager
def served(command: Sequence[str]) -> Iterator[str]:
    """Run a server within the context; yield its URL. MissingPrerequisite without Node.js."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise MissingPrerequisite("node was not found: install Node.js 20 or newer") from None
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


def fetched_blocks(spans: Sequence[Sequence[Any]]) -> int:
    """Return the number of requested blocks, counting repeated ones each time."""
    return sum(last - first + 1 for first, last, _ in spans)
