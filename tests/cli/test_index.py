"""Counts and messages of `chainfolio index`, and queries of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.localchain.node import LocalNode
from chainfolio.storage.tail import Tail
from tests.cli.conftest import ALICE, Run, configure

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = 150
FINALITY = 80  # deeper than an index that counts as live may be behind, as on Ethereum
FINAL = BLOCKS - FINALITY

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as node:
        node.mine(BLOCKS)
        yield node


@pytest.fixture
def configured(here: Path, node: LocalNode) -> Path:
    facts = (ROOT / "configs" / "chains" / "local.toml").read_text().replace("finality = 8", f"finality = {FINALITY}")
    assert f"finality = {FINALITY}" in facts
    (here / "local.toml").write_text(facts)
    configure(here, node.url, chain="local", more='facts = "local.toml"')
    return here


def test_after_an_index_the_newest_transactions_can_be_asked_for(run: Run, configured: Path) -> None:
    assert run("index", "local").code == 0
    ran = run("transactions", ALICE, "--json")
    assert ran.code == 0, ran.out
    assert ran.json["transactions"] == []


def test_what_is_said_to_be_missing_is_what_is_missing(run: Run, configured: Path) -> None:
    """Transfers and approvals are there; what the settings want beside them is not."""
    assert run("index", "local", "--datasets", "blocks,transfers,approvals,events").code == 0
    ran = run("transactions", ALICE, "--json")
    assert (ran.code, ran.error["kind"], ran.error["dataset"]) == (4, "NotIndexed", "transactions")
    assert (ran.error["first"], ran.error["last"]) == (0, BLOCKS)
    assert run("index", "local").code == 0
    assert run("transactions", ALICE, "--json").code == 0


def test_a_block_that_is_read_for_several_datasets_counts_once(run: Run, configured: Path) -> None:
    assert run("index", "local", "--datasets", "transfers", "--to", "30").code == 0
    assert run("index", "local", "--estimate", "--json").json["blocks"] == FINAL + 1
    assert run("index", "local", "--json").json["blocks"] == FINAL + 1


def test_blocks_that_are_left_out_because_they_are_not_final_are_told(run: Run, configured: Path) -> None:
    ran = run("index", "local", "--to", "10_000", "--json")
    assert (ran.code, ran.json["blocks"]) == (0, FINAL + 1)
    assert ran.err == f"local: block {FINAL} is the newest final one; later ones are left out\n"
    assert run("index", "local", "--to", "5").err == ""


def test_status_says_what_is_indexed_what_is_missing_and_the_disk_used(run: Run, configured: Path) -> None:
    assert run("index", "local", "--to", "30", "--datasets", "blocks,transfers").code == 0
    (chain,) = run("status", "--json").json["chains"]
    assert (chain["head"], chain["final"], chain["newest"]) == (BLOCKS, FINAL, 30)
    datasets = {each["dataset"]: each for each in chain["datasets"]}
    assert (datasets["transfers"]["indexed"], datasets["transfers"]["missing"]) == ([[0, 30]], [[31, FINAL]])
    assert (datasets["native"]["blocks"], datasets["native"]["missingBlocks"]) == (0, FINAL + 1)
    assert f"31-{FINAL}" in run("status").out
    assert run("index", "local").code == 0
    report = run("status", "--json").json
    assert report["chains"][0]["behind"] == 0
    assert {each["missingBlocks"] for each in report["chains"][0]["datasets"]} == {0}
    size = sum(path.stat().st_size for path in (configured / "data" / "lake").rglob("*") if path.is_file())
    assert report["disk"]["lake"] == size > 0
    assert "chainfolio index local" not in run("status").out


def test_an_estimate_runs_while_another_process_indexes(run: Run, configured: Path) -> None:
    tail = Tail(configured / "data" / "tail.db")
    with tail.lock("local"):
        assert run("index", "local", "--json").error["kind"] == "Locked"
        assert run("index", "local", "--estimate", "--json").json["blocks"] == FINAL + 1
    tail.close()
