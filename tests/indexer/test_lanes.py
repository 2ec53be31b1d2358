"""Several processes side by side leave what one leaves, and none outlives the one that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.tables import APPROVALS, BLOCKS, TRANSFERS
from indexer.lanes import Ends
from localchain.deploy import deploy
from localchain.node import LocalNode
from localchain.trade import trade
from storage.lake import Lake

ROOT = Path(__file__).resolve().parents[2]


def block(height: int, hash: str, parent: str) -> Block:
    return Block(height, hash, parent, 0)


def test_pieces_that_lie_side_by_side_must_be_parent_and_child() -> None:
    ends = Ends("local")
    ends.joins(block(0, "a", "-"), block(9, "b", "x"))
    ends.joins(block(20, "e", "d"), block(29, "f", "y"))
    ends.joins(block(10, "c", "b"), block(19, "d", "z"))
    with pytest.raises(BadAnswer, match="does not follow"):
        ends.joins(block(30, "g", "another"), block(39, "h", "g"))


def command(folder: Path, url: str, lanes: int) -> subprocess.Popen[str]:
    environment = os.environ | {
        "CHAINFOLIO_DATA": str(folder), "CHAINFOLIO_CHAINS__LOCAL__RPC": url, "CHAINFOLIO_CHAINS__LOCAL__SPAN": "10",
        "CHAINFOLIO_CHAINS__LOCAL__LANES": str(lanes), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    arguments = [
        sys.executable,
        "-m",
        "cli.main",
        "index",
        "local",
        "--datasets",
        "transfers,approvals,blocks",
        "--json",
    ]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    lake = Lake(str(folder / "lake"))
    return {t.name: sorted(lake.scan(t).select(t.key).collect().rows()) for t in (TRANSFERS, APPROVALS, BLOCKS)}


@pytest.mark.node
def test_three_lanes_leave_what_one_leaves_even_when_they_are_killed(tmp_path: Path) -> None:
    with LocalNode() as node:
        trade(node, deploy(node), blocks=150)
        alone, _ = command(tmp_path / "one", node.url, 1).communicate(timeout=60)
        killed = command(tmp_path / "three", node.url, 3)
        time.sleep(0.9)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        together, errors = command(tmp_path / "three", node.url, 3).communicate(timeout=60)
    assert json.loads(together)["chain"] == "local", errors
    assert rows(tmp_path / "three") == rows(tmp_path / "one")
    assert json.loads(alone)["events"] > 500
