"""A machine that is not well while it indexes Tron: its clock jumps, it has few descriptors left."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chainfolio.adapters.tron.chain import TronChain, build
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment, SystemClock
from chainfolio.localchain.tron.node import TronNode
from tests.chains.index import FETCHED
from tests.chains.tron import TronSubject
from tests.tron.chains import facts
from tests.tron.test_kills import environment, run_to_end, stored

pytestmark = pytest.mark.node
DATASETS = ("blocks", "transactions", "native", "internal", "transfers", "approvals")
YEARS_US = 10 * 365 * 86_400 * 1_000_000


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TronSubject]:
    """A chain on which four people do something in every block."""
    with TronNode(lag=2) as node:
        yield TronSubject(node, tmp_path_factory.mktemp("tron"), 12)


@dataclass
class Jumping(SystemClock):
    """Says another time whenever it is asked, years before or after."""

    chance: random.Random = field(default_factory=lambda: random.Random(3))

    def now_us(self) -> int:
        """Return a random time."""
        return super().now_us() + self.chance.randrange(-YEARS_US, YEARS_US)


def reads(subject: TronSubject, folder: Path, environment: Environment) -> TronChain:
    """The adapter with a clock."""
    path = facts(subject.node, folder, wrapped=subject.wrapped)
    settings = TronSettings(adapter="tron", rpc=[subject.node.url], facts=str(path))
    return build("tron", settings, environment, configs=folder)


async def test_a_clock_that_jumps_changes_no_row(subject: TronSubject, tmp_path: Path) -> None:
    runs = []
    for world in (Environment(), Environment(clock=Jumping())):
        chain = reads(subject, tmp_path, world)
        heads = await chain.heads()
        collected = await chain.collect(Span(0, heads.latest.height), DATASETS)
        await chain.close()
        assert not collected.unexplained
        runs.append((heads, collected.tables, collected.blocks))
    assert runs[0] == runs[1]


@pytest.mark.slow("runs commands as processes with few descriptors")
@pytest.mark.parametrize("limit", [16, 24, 48])
def test_few_descriptors_end_a_run_with_a_typed_error_or_let_it_end(
    subject: TronSubject, tmp_path: Path, limit: int
) -> None:
    poor, quiet = tmp_path / "poor", tmp_path / "quiet"
    command = [sys.executable, "-m", "chainfolio.cli.main", "index", "tron", "--to", str(subject.node.solid)]
    limited = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *command]
    ran = subprocess.run(limited, env=environment(subject, poor), cwd=poor, capture_output=True, text=True)
    assert ran.returncode in (0, 3, 5), ran.stdout + ran.stderr
    assert not ran.returncode or any(line.startswith("error: ") for line in ran.stderr.splitlines()[-2:])  # and a fix
    assert "Traceback" not in ran.stderr
    run_to_end(subject, poor)
    run_to_end(subject, quiet)
    for table in FETCHED:
        assert stored(poor, table).equals(stored(quiet, table)), table
