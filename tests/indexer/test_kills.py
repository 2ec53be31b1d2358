"""`kill -9` at random moments: the next run goes on by itself, and in the end no row is lost and none is doubled."""

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
    """The same seed each time, and another one if CHAINFOLIO_TESTS asks for luck or for a deep search."""
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
    return begun("killed", [str(kills), str(seed), str(most_ms), *command], env, folder)


def begun(game: str, given: Sequence[str], env: dict[str, str], folder: Path) -> Game:
    """A game that kills."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.indexer.{game}", *given],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def indexed(subject: EvmSubject, folder: Path) -> dict[str, object]:
    """What `index` says of a run that nobody disturbs."""
    said: dict[str, object] = quiet_run(["index", KEY, "--json"], subject, folder)
    return said


def quiet_run(words: Sequence[str], subject: EvmSubject, folder: Path) -> Any:
    """What a command says of a run that nobody disturbs."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "chainfolio.cli.main", *words]
    env = environment(subject, folder, DATASETS)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def repaired(env: dict[str, str], folder: Path) -> None:
    """One more repair, that nobody disturbs."""
    command = [sys.executable, "-m", "chainfolio.cli.main", "check", "--repair", "--json"]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def assert_histories_are_whole(one: Index) -> None:
    """What was derived bit by bit is what is derived at once."""
    transactions = one.stored("transactions").to_pylist()
    others = sum((row["recipient"] or row["created"]) not in (None, row["sender"]) for row in transactions)
    rows = {
        "account_transfers": 2 * one.stored("transfers").num_rows,
        "account_approvals": one.stored("approvals").num_rows,
        "account_transactions": len(transactions) + others,
    }
    for name, count in rows.items():
        before = one.stored(name)
        materialise.rebuild_history(one.lake, one.tail, one.key, name)
        assert one.stored(name) == before
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
    said, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    times = int(said.splitlines()[-1])
    print(f"killed {times} times")
    assert times >= (12 if worker_processes == 1 else 2), "a run that ends at once shows nothing"
    indexed(long, broken)
    assert indexed(long, broken)["rows"] == 0, "there is nothing left to do"
    indexed(long, undisturbed)
    async with index(long, broken, datasets=DATASETS) as one, index(long, undisturbed, datasets=DATASETS) as other:
        whole = Span(0, long.height)  # with the blocks that are not final yet
        for table in FETCHED:
            assert one.rows(table) == other.rows(table), table
        assert one.rows("blocks") == in_order(long.rows(whole)["blocks"])
        assert one.stored("account_transfers") == other.stored("account_transfers")
        assert one.tail.open_batches(KEY) == []
        for dataset in DATASETS:
            assert one.tail.indexed_ranges(KEY, dataset) == Spans([whole])
        await assert_histories_are_whole(one)


@pytest.mark.slow("kills real processes many times")
async def test_a_watch_that_is_killed_again_and_again_is_the_same_watch(long: EvmSubject, tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"{seed=}")
    wallets = [long.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    words, folders = ["watch", *wallets, "--json"], (tmp_path / "broken", tmp_path / "whole")
    folders[0].mkdir()
    game = killed(12 * TIMES, seed, 500, words, environment(long, folders[0], DATASETS), folders[0])
    said, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    assert int(said.splitlines()[-1]) > 2, "a run that ends at once shows nothing"
    shown = [quiet_run(words, long, folder)[0]["accounts"] for folder in folders]
    assert shown[0] == shown[1]
    async with index(long, folders[0]) as one, index(long, folders[1]) as other:
        for table in FETCHED:
            assert one.rows(table) == other.rows(table), table
        for table in ("account_transfers", "account_approvals", "account_transactions", "account_events"):
            assert one.stored(table) == other.stored(table), table
        assert one.rows("transfers"), "there was something to lose"
        assert one.tail.open_batches(KEY) == []


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
        said, complaint = game.communicate()
        assert game.returncode == 0, complaint
        assert int(said.splitlines()[-1]) == kills, "it never ends by itself"
        await assert_followed(moving, tmp_path)


async def go_on(moving: EvmSubject, game: Game, chance: random.Random) -> None:
    """As long as the game lasts, the chain goes on, and changes its mind."""
    while game.poll() is None:
        moving.trade(chance.randint(1, 3), chance.randrange(2**32))
        if chance.random() < 0.3:
            moving.reorg(chance.randint(1, FINALITY - 1))
        await asyncio.sleep(0.1)


async def assert_followed(moving: EvmSubject, folder: Path) -> None:
    """One more step, that nobody disturbs, and everything is there once."""
    async with index(moving, folder) as one:
        assert one.tail.anchor(KEY) is not None, "some life was long enough to get anything done"
        await one.fill_final()
        await one.follower().step()
        await one.materialise()
        await assert_histories_are_whole(one)
        plain = moving.rows(Span(0, moving.height))
        for table in FETCHED:
            assert one.rows(table) == in_order(plain[table]), table
        assert one.tail.open_batches(KEY) == []
        assert one.tail.indexed_ranges(KEY, "transfers") == Spans([Span(0, moving.height)])


@pytest.mark.slow("kills real processes many times; test_supervised.py restarts failed tasks in one process")
async def test_a_worker_that_dies_while_its_failed_tasks_begin_again_has_followed(tmp_path: Path) -> None:
    """A write fails by a fault of our own; while the supervisor takes the task up again, the process dies."""
    seed = chosen_seed()
    print(f"{seed=}")
    with evm(30) as moving:
        game = begun("restarting", [str(TIMES), str(seed)], environment(moving, tmp_path, EVERYTHING), tmp_path)
        await go_on(moving, game, random.Random(seed))
        said, complaint = game.communicate()
        assert game.returncode == 0, complaint
        ends = json.loads(said.splitlines()[-1])
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
    async with index(long, tmp_path, datasets=DATASETS) as one:
        before = {table: one.rows(table) for table in FETCHED}
        tables = "transfers", "blocks", "account_transfers"
        files = [Path(one.lake.files(TABLES[table])[0]) for table in tables]
    for file in files:
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 8
        file.write_bytes(whole)
    env = environment(long, tmp_path, DATASETS)
    game = killed(12 * TIMES, seed, 400, ["check", "--repair", "--json"], env, tmp_path)
    said, complaint = game.communicate(timeout=120)
    assert game.returncode == 0, complaint
    times = int(said.splitlines()[-1])
    assert times > 0, "a repair that ends at once shows nothing"
    indexed(long, tmp_path)
    repaired(env, tmp_path)
    assert indexed(long, tmp_path)["rows"] == 0, "there is nothing left to do"
    async with index(long, tmp_path, datasets=DATASETS) as one:
        assert {table: one.rows(table) for table in FETCHED} == before
        assert one.tail.open_batches(KEY) == []
        await assert_histories_are_whole(one)
        assert {each.state for each in check_files(one.lake, list_files(one.lake), lambda _: None)} == {"sound"}
