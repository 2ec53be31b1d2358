"""Folders of the recorded chain, of the peers, and of results."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


class MissingPrerequisite(Exception):
    """A program or file that a benchmark needs is missing; the message says what to install."""


def home() -> Path:
    """Return the folder that `setup.sh` filled: $PEERS_HOME, else `bench/home`."""
    return Path(os.environ.get("PEERS_HOME") or HERE / "home").resolve()


def results() -> Path:
    """Return the folder of results: $BENCH_RESULTS, else `bench/results`; create it."""
    folder = Path(os.environ.get("BENCH_RESULTS") or HERE / "results")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, slots=True)
class RecordedChain:
    """The recorded chain: its blocks with transactions, and the numbers of their events."""

    folder: Path
    first: int
    last: int
    tokens: tuple[str, ...]
    transfers: int
    approvals: int

    @property
    def blocks(self) -> int:
        """Number of blocks with transactions."""
        return self.last - self.first + 1

    @property
    def events(self) -> int:
        """Transfers and approvals together."""
        return self.transfers + self.approvals


@cache
def recorded() -> RecordedChain:
    """Return the chain that `setup.sh` recorded; MissingPrerequisite if there is none."""
    folder = home() / "recorded"
    if not (folder / "chain.json").exists():
        raise MissingPrerequisite("there is no recorded chain: run bench/setup.sh chain, or set PEERS_HOME")
    facts = json.loads((folder / "chain.json").read_text())
    return RecordedChain(
        folder,
        facts["firstBlock"],
        facts["lastBlock"],
        tuple(token.lower() for token in facts["tokens"]),
        facts["transfers"],
        facts["approvals"],
    )


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new folder on the disk of the results, and delete it at the end.

    A file system in memory would be faster than a user's disk.
    """
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=results()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
