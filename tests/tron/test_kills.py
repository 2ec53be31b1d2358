"""`kill -9` at random moments of a Tron run: the next run continues, without lost or double rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from chainfolio.blocks import Span
from chainfolio.localchain.tron.node import TronNode
from chainfolio.storage.lake import Lake
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TABLES
from tests.chains.index import FETCHED, in_order
from tests.chains.tron import TronSubject
from tests.indexer.test_kills import ROOT, TIMES, killed
from tests.tron.chains import facts

pytestmark = pytest.mark.node
BLOCKS, LAG = 50, 2
KILLS, MOST_MS = 8 * TIMES, 700
DERIVED = (ACCOUNT_TRANSFERS.name, ACCOUNT_TRANSACTIONS.name)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TronSubject]:
    """A chain on which four people do something in every block."""
    with TronNode(lag=LAG) as node:
        yield TronSubject(node, tmp_path_factory.mktemp("tron"), BLOCKS)


def environment(subject: TronSubject, folder: Path) -> dict[str, str]:
    """The settings of a run in a folder."""
    folder.mkdir(exist_ok=True)
    settings = {
        "DATA": folder,
        "CHAINS__TRON__ADAPTER": "tron",
        "CHAINS__TRON__RPC": subject.node.url,
        "CHAINS__TRON__FACTS": facts(subject.node, folder, wrapped=subject.wrapped),
        "CHAINS__TRON__SPAN": 2,
        "CHAINS__TRON__SIGNATURES": "all",
        "CHAINS__TRON__CONCURRENCY": 2,
    }
    variables = {f"CHAINFOLIO_{name}": str(value) for name, value in settings.items()}
    return os.environ | {"PYTHONPATH": str(ROOT)} | variables


def run_to_end(subject: TronSubject, folder: Path) -> None:
    """Run the indexer to its end."""
    command = [sys.executable, "-m", "chainfolio.cli.main", "index", "tron", "--to", str(subject.node.solid)]
    ran = subprocess.run(command, env=environment(subject, folder), cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def stored(folder: Path, table: str) -> pa.Table:
    """The rows of a table, in its order."""
    rows = Lake(str(folder / "lake")).window(TABLES[table], "tron", Span(0, 2**62))
    return rows.sort_by([(name, "ascending") for name in TABLES[table].order])


def test_a_run_that_is_killed_again_and_again_ends_with_the_rows_of_one_that_is_not(
    subject: TronSubject, tmp_path: Path
) -> None:
    disturbed, quiet = tmp_path / "disturbed", tmp_path / "quiet"
    command = ["index", "tron", "--to", str(subject.node.solid)]
    game = killed(KILLS, 11, MOST_MS, command, environment(subject, disturbed), disturbed)
    output, errors = game.communicate(timeout=240)
    assert game.returncode == 0, output + errors
    assert int(output.splitlines()[-1]) >= KILLS // 2, "a run that ends at once shows nothing"
    run_to_end(subject, disturbed)
    run_to_end(subject, quiet)
    for table in (*FETCHED, *DERIVED):
        assert stored(disturbed, table).equals(stored(quiet, table)), table
    rows = subject.rows(Span(0, subject.node.solid))
    for table in ("blocks", "transactions", "transfers", "approvals"):
        names = [name for name in TABLES[table].names if name in rows[table][0]]
        every = stored(disturbed, table).select(names).to_pylist()
        stored_rows = [row for row in every if row.get("standard") != "internal"]  # the other reading has none
        expected = [{name: row[name] for name in names} for row in rows[table]]
        assert in_order(stored_rows) == in_order(expected), table
