"""Answers of real nodes, recorded by others. They lie next to the repository; without them tests are skipped."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.starknet.facts import load
from chainfolio.adapters.starknet.forms import FullBlock
from chainfolio.adapters.starknet.rows import BlockRows, build_rows

ROOT = Path(__file__).parents[2]
FACTS = load(ROOT / "configs" / "chains" / "starknet.toml")
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "starknet"
BLOCKS = ("mainnet_2500", "mainnet_64820", "sepolia_7", "sepolia_integration_9703")
needs_recordings = pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded data is not here")


def lines(name: str) -> list[Any]:
    """The lines of a recording."""
    with gzip.open(FOLDER / f"{name}.rpc.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def result(name: str, method: str) -> Any:
    """Return a method's result in a recording."""
    return next(each["result"] for each in lines(name) if each["method"] == method)


def recorded_block(name: str) -> Any:
    """A recorded block with its receipts."""
    return result(
        name if "/" in name or name == "sepolia_3100000" else f"blocks/{name}", "starknet_getBlockWithReceipts"
    )


def rows(block: Any) -> BlockRows:
    """The rows of a block."""
    return build_rows("node", block["block_number"], msgspec.convert(block, FullBlock), FACTS)


def expected() -> Any:
    """Return the contents of the recorded blocks, computed by others."""
    return json.loads(gzip.decompress((FOLDER / "blocks.expected.json.gz").read_bytes()))
