"""An installation on PostgreSQL answers as one on files does, also during restarts of the server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.indexer import queue_worker
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.job_queue import opened
from chainfolio.indexer.queue_worker import QueueWorker
from chainfolio.indexer.wiring import System
from chainfolio.localchain.node import LocalNode
from chainfolio.settings_file import load
from tests.cli.conftest import Run
from tests.e2e.running import Running, free_port, printed, process, until_indexed
from tests.storage.stores import NO_POSTGRES, Server, Stores, own_server

pytestmark = pytest.mark.node


@pytest.fixture
def machine() -> Iterator[Server]:
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        yield server


def set_stores(folder: Path, url: str, extra: str = "") -> None:
    """Let the settings of a folder name a database, and start with nothing."""
    settings = folder / "chainfolio.toml"
    settings.write_text(f'{settings.read_text()}\n{extra}\n[tail]\nurl = "{url}"\n[state]\nurl = "{url}"\n')
    shutil.rmtree(folder / "data")


def answers(run: Run, wallets: dict[str, str]) -> dict[str, Any]:
    """Return the documents of the commands, without the used disk space."""
    commands = [("status",), *(("transactions", wallet) for wallet in wallets.values())]
    return {" ".join(command): run(*command, "--json").json for command in commands}


@pytest.mark.slow("the next test indexes on PostgreSQL too, and tests/storage compares both stores")
def test_an_index_on_postgresql_gives_the_answers_of_one_on_files(
    run: Run, here: Path, wallets: dict[str, str], stores: Stores
) -> None:
    on_files = answers(run, wallets)
    set_stores(here, stores.url("postgresql"))
    assert run("index", "local").code == 0
    on_postgresql = answers(run, wallets)
    assert not (here / "data" / "tail.db").exists()
    for each in (on_files, on_postgresql):
        del each["status"]["disk"]
    assert on_postgresql == on_files
    assert any(each.get("transactions") for each in on_postgresql.values()), "the wallets did something"


@pytest.mark.slow("accounts are parts of the same queue", only=["accounts"])
@pytest.mark.parametrize("watched", [False, True], ids=["blocks", "accounts"])
def test_workers_index_parts_of_one_chain_at_once_as_one_command_does(
    run: Run, here: Path, wallets: dict[str, str], stores: Stores, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    monkeypatch.setattr(queue_worker, "RANGE_BLOCKS", 20)
    monkeypatch.setattr(queue_worker, "ACCOUNTS_MS", 0)
    settings, url = here / "chainfolio.toml", stores.url("postgresql")
    if watched:
        names = ", ".join(f'"{wallet}"' for wallet in wallets.values())
        settings.write_text(f"{settings.read_text()}\n[accounts]\nwatch = [{names}]\n".replace('"all"', '"accounts"'))
        shutil.rmtree(here / "data")
        assert run("index", "local").code == 0
    on_files = answers(run, wallets)
    set_stores(here, url)

    async def work() -> tuple[set[str], int, int]:
        systems = [System(load(settings)) for _ in range(2)]
        running, peak, overlap = 0, 0, asyncio.Event()
        index = Collector.index

        async def index_counted(self: Collector, *arguments: Any) -> None:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            if peak > 1:
                overlap.set()
            async with asyncio.timeout(60):  # the first one waits for another, which it would be too quick to meet
                await overlap.wait()
            await index(self, *arguments)
            running -= 1

        monkeypatch.setattr(Collector, "index", index_counted)
        try:
            async with opened(url) as first, opened(url) as second:
                workers = [QueueWorker(system, queue) for system, queue in zip(systems, (first, second), strict=True)]
                await workers[0].add_due()
                assert await workers[1].add_due() == 0, "they wait already"
                kinds = {job.kind for job in await first.jobs()}
                await asyncio.gather(*(worker.run(wait=False) for worker in workers))
                assert await first.jobs() == []
                return kinds, peak, await workers[0].add_due()
        finally:
            for system in systems:
                await system.close()

    kinds, peak, added = asyncio.run(work())
    assert kinds >= ({"accounts"} if watched else {"index"})
    assert (peak > 1, added) == (True, 0), "jobs of the chain ran at the same time, and left nothing"
    assert run("index", "local", "--json").json["blocks"] == 0
    on_postgresql = answers(run, wallets)
    for each in (on_files, on_postgresql):
        if watched:
            del each["status"]  # it counts files, and accounts were indexed in groups
        else:
            del each["status"]["disk"]
    assert on_postgresql == on_files


@pytest.mark.slow("a whole server; tests/storage/test_tail_postgres.py restarts the database below the tail itself")
def test_a_server_goes_on_while_its_database_restarts(
    run: Run,
    here: Path,
    wallets: dict[str, str],
    changed: LocalNode,
    machine: Server,
) -> None:
    node, port, log = changed, free_port(), here / "serve.log"
    set_stores(here, machine.url, f"[server]\nport = {port}")
    server = Running(f"http://127.0.0.1:{port}", here / "chainfolio.toml")
    with process(["serve", "--config", str(server.config)], log) as serving:
        printed(serving, log, "listening")
        account = server.account("ann", grants=("portfolio",))
        for _ in range(3):
            node.mine(5)
            machine.stop()
            machine.start()
            node.mine(5)
            until_indexed(server, node.height)
        assert server.client(account.key).portfolio(next(iter(wallets.values())))
    assert not (here / "data" / "state.db").exists()
