"""`kill -9` at random moments: the next run continues by itself, and in the end no row is lost and none is doubled."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.indexer import materialise
from chainfolio.indexer.scrub import check_files, list_files
from chainfolio.tables import TABLES
from tests.chains.evm import KEY, EvmSubject, evm
from tests.chains.index import EVERYTHING, FETCHED, Index, in_order, index
from tests.conftest import PROFILE
from tests.indexer.restarting import POINTS

pytestmark = pytest.mark.node
TIMES = 10 if PROFILE == "deep" else 1
ROOT = Path(__file__).parents[2]
FINALITY = 12
DATASETS = ("transfers", "approvals", "blocks")
Game = subprocess.Popen[str]


@pytest.fixture(scope="module")
def long() -> Iterator[EvmSubject]:
    """A chain of some hundred busy blocks."""
    with evm(100) as long:
        long.trade(300, 3)
        yield long


def chosen_seed() -> int:
    """Return the same seed each time, and another one if CHAINFOLIO_TESTS asks for luck or for a deep search."""
    return 1 if PROFILE in ("here", "quick") else random.randrange(2**32)


def environment(
    subject: EvmSubject, folder: Path, datasets: Sequence[str], worker_processes: int = 1
) -> dict[str, str]:
    settings = {
        "DATA": folder,
        "CHAINS__LOCAL__RPC": subject.node.url,
        "CHAINS__LOCAL__FACTS": subject.facts(FINALITY),
        "CHAINS__LOCAL__SPAN": 10,
        "CHAINS__LOCAL__CONCURRENCY": 3,
        "CHAINS__LOCAL__WORKER_PROCESSES": worker_processes,
        "CHAINS__LOCAL__DATASETS": ",".join(datasets),
    }
    return (
        os.environ | {"PYTHONPATH": str(ROOT)} | {f"CHAINFOLIO_{name}": str(value) for name, value in settings.items()}
    )


def killed(kills: int, seed: int, most_ms: int, command: Sequence[str], env: dict[str, str], folder: Path) -> Game:
    """The game of `killed.py`, begun."""
    return start_game("killed", [str(kills), str(seed), str(most_ms), *command], env, folder)


def start_game(game: str, arguments: Sequence[str], env: dict[str, str], folder: Path) -> Game:
    """A game that kills."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.indexer.{game}", *arguments],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def indexed(subject: EvmSubject, folder: Path) -> dict[str, object]:
    """Return the report of an undisturbed `index`."""
    report: dict[str, object] = quiet_run(["index", KEY, "--json"], subject, folder)
    return report


def quiet_run(arguments: Sequence[str], subject: EvmSubject, folder: Path) -> Any:
    """Return the output of an undisturbed command."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "chainfolio.cli.main", *arguments]
    env = environment(subject, folder, DATASETS)
    process = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def repaired(env: dict[str, str], folder: Path) -> None:
    """Repair once more, undisturbed."""
    command = [sys.executable, "-m", "chainfolio.cli.main", "check", "--repair", "--json"]
    process = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


async def assert_histories_are_whole(checked_index: Index) -> None:
    """Check that the histories that were derived in steps equal those derived at once."""
    transactions = checked_index.stored("transactions").to_pylist()
    to_others = sum((row["recipient"] or row["created"]) not in (None, row["sender"]) for row in transactions)
    rows = {
        "account_transfers": 2 * checked_index.stored("transfers").num_rows,
        "account_approvals": checked_index.stored("approvals").num_rows,
        "account_transactions": len(transactions) + to_others,
    }
    for name, count in rows.items():
        before = checked_index.stored(name)
        materialise.rebuild_history(checked_index.lake, checked_index.tail, checked_index.key, name)
        assert checked_index.stored(name) == before
        assert before.num_rows == count


@pytest.mark.slow("kills real processes many times")
@pytest.mark.parametrize(
    ("worker_processes", "kills", "most_ms"), [(1, 14, 300), (2, 4, 1_500)], ids=["one process", "two processes"]
)
async def test_an_index_that_is_killed_again_and_again_is_the_same_index(
    long: EvmSubject, tmp_path: Path, worker_processes: int, kills: int, most_ms: int
) -> None:
    seed = chosen_seed()
    print(f"{seed=}")
    broken, undisturbed = tmp_path / "broken", tmp_path / "undisturbed"
    broken.mkdir()
    env = environment(long, broken, DATASETS, worker_processes)
    game = killed(kills * TIMES, seed, most_ms, ["index", KEY, "--json"], env, broken)
    output, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    times = int(output.splitlines()[-1])
    print(f"killed {times} times")
    assert times >= (12 if worker_processes == 1 else 2), "a run that ends at once shows nothing"
    indexed(long, broken)
    assert indexed(long, broken)["rows"] == 0, "there is nothing left to do"
    indexed(long, undisturbed)
    async with index(long, broken, datasets=DATASETS) as first, index(long, undisturbed, datasets=DATASETS) as second:
        whole_span = Span(0, long.height)  # with the blocks that are not final yet
        for table in FETCHED:
            assert first.rows(table) == second.rows(table), table
        assert first.rows("blocks") == in_order(long.rows(whole_span)["blocks"])
        assert first.stored("account_transfers") == second.stored("account_transfers")
        assert first.tail.open_batches(KEY) == []
        for dataset in DATASETS:
            assert first.tail.indexed_ranges(KEY, dataset) == Spans([whole_span])
        await assert_histories_are_whole(first)


@pytest.mark.slow("kills real processes many times")
async def test_a_watch_that_is_killed_again_and_again_is_the_same_watch(long: EvmSubject, tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"{seed=}")
    wallets = [long.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    arguments, folders = ["watch", *wallets, "--json"], (tmp_path / "broken", tmp_path / "whole")
    folders[0].mkdir()
    game = killed(12 * TIMES, seed, 500, arguments, environment(long, folders[0], DATASETS), folders[0])
    output, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    assert int(output.splitlines()[-1]) > 2, "a run that ends at once shows nothing"
    account_states = [quiet_run(arguments, long, folder)[0]["accounts"] for folder in folders]
    assert account_states[0] == account_states[1]
    async with index(long, folders[0]) as first, index(long, folders[1]) as second:
        for table in FETCHED:
            assert first.rows(table) == second.rows(table), table
        for table in ("account_transfers", "account_approvals", "account_transactions", "account_events"):
            assert first.stored(table) == second.stored(table), table
        assert first.rows("transfers"), "there was something to lose"
        assert first.tail.open_batches(KEY) == []


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow("more of the same kills"))])
async def test_a_follower_that_is_killed_again_and_again_has_followed(tmp_path: Path, kills: int) -> None:
    """While it dies and comes back, the chain goes on, and changes its mind."""
    seed = chosen_seed()
    print(f"{seed=}")
    chance = random.Random(seed)
    with evm(30) as moving:
        kills *= TIMES
        game = killed(kills, seed, 4_000, ["worker"], environment(moving, tmp_path, EVERYTHING), tmp_path)
        await go_on(moving, game, chance)
        output, complaint = game.communicate()
        assert game.returncode == 0, complaint
        assert int(output.splitlines()[-1]) == kills, "it never ends by itself"
        await assert_followed(moving, tmp_path)


async def go_on(moving: EvmSubject, game: Game, chance: random.Random) -> None:
    """Mine blocks and reorganise the chain as long as the game lasts."""
    while game.poll() is None:
        moving.trade(chance.randint(1, 3), chance.randrange(2**32))
        if chance.random() < 0.3:
            moving.reorg(chance.randint(1, FINALITY - 1))
        await asyncio.sleep(0.1)


async def assert_followed(moving: EvmSubject, folder: Path) -> None:
    """Follow once more, undisturbed, and check that every row is there once."""
    async with index(moving, folder) as followed:
        assert followed.tail.anchor(KEY) is not None, "some life was long enough to get anything done"
        await followed.fill_final()
        await followed.follower().step()
        await followed.materialise()
        await assert_histories_are_whole(followed)
        plain = moving.rows(Span(0, moving.height))
        for table in FETCHED:
            assert followed.rows(table) == in_order(plain[table]), table
        assert followed.tail.open_batches(KEY) == []
        assert followed.tail.indexed_ranges(KEY, "transfers") == Spans([Span(0, moving.height)])


@pytest.mark.slow("kills real processes many times; test_supervised.py restarts failed tasks in one process")
async def test_a_worker_that_dies_while_its_failed_tasks_begin_again_has_followed(tmp_path: Path) -> None:
    """A write fails by a fault of our own; while the supervisor takes the task up again, the process dies."""
    seed = chosen_seed()
    print(f"{seed=}")
    with evm(30) as moving:
        game = start_game("restarting", [str(TIMES), str(seed)], environment(moving, tmp_path, EVERYTHING), tmp_path)
        await go_on(moving, game, random.Random(seed))
        output, complaint = game.communicate()
        assert game.returncode == 0, complaint
        ends = json.loads(output.splitlines()[-1])
        print(ends)
        assert ends.keys() >= set(POINTS), "a worker died at each of the points"
        await assert_followed(moving, tmp_path)


@pytest.mark.slow("kills real processes many times")
async def test_a_repair_that_is_killed_again_and_again_leaves_every_row_as_it_was(
    long: EvmSubject, tmp_path: Path
) -> None:
    seed = chosen_seed()
    print(f"{seed=}")
    indexed(long, tmp_path)
    async with index(long, tmp_path, datasets=DATASETS) as repaired_index:
        before = {table: repaired_index.rows(table) for table in FETCHED}
        tables = "transfers", "blocks", "account_transfers"
        files = [Path(repaired_index.lake.files(TABLES[table])[0]) for table in tables]
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 8
        file.write_bytes(content)
    env = environment(long, tmp_path, DATASETS)
    game = killed(12 * TIMES, seed, 400, ["check", "--repair", "--json"], env, tmp_path)
    output, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    times = int(output.splitlines()[-1])
    assert times > 0, "a repair that ends at once shows nothing"
    indexed(long, tmp_path)
    repaired(env, tmp_path)
    assert indexed(long, tmp_path)["rows"] == 0, "there is nothing left to do"
    async with index(long, tmp_path, datasets=DATASETS) as repaired_index:
        assert {table: repaired_index.rows(table) for table in FETCHED} == before
        assert repaired_index.tail.open_batches(KEY) == []
        await assert_histories_are_whole(repaired_index)
        assert {
            each.state for each in check_files(repaired_index.lake, list_files(repaired_index.lake), lambda _: None)
        } == {"sound"}
