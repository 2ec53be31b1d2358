"""The queue of jobs in PostgreSQL: each job once, failures parked, dead workers replaced, other versions refused."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job

from chainfolio.chains import Chain
from chainfolio.cli.main import main
from chainfolio.errors import BadRequest, Locked, NotFound, StoreError, Unavailable
from chainfolio.indexer import queue_worker
from chainfolio.indexer.job_queue import JobQueue, opened
from chainfolio.indexer.queue_worker import MAX_ATTEMPTS, QueueWorker, _Delays
from chainfolio.indexer.wiring import System
from chainfolio.settings_file import load
from tests.storage.stores import NO_POSTGRES, Server, own_server

CHAINS = "".join(f'[chains.{key}]\nrpc = ["http://127.0.0.1:9"]\n' for key in ("ethereum", "base"))


@pytest.fixture(scope="module")
def machine() -> Iterator[Server]:
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        yield server


@pytest.fixture
def url(machine: Server) -> str:
    """Create a database and return its URL."""
    return machine.new_database("queue")


@pytest.fixture
def config(url: str, tmp_path: Path) -> Path:
    """Settings with two chains, whose nodes are down. No job is due at a time of day."""
    file = tmp_path / "c.toml"
    file.write_text(f'data = "d"\n[tail]\nurl = "{url}"\n[schedule]\nmaterialise = ""\nvacuum = ""\n{CHAINS}')
    return file


@pytest.fixture
async def system(config: Path) -> AsyncIterator[System]:
    job_system = System(load(config))
    yield job_system
    await job_system.close()


@pytest.fixture
async def queue(url: str) -> AsyncIterator[JobQueue]:
    async with opened(url) as job_queue:
        yield job_queue


async def statuses(queue: JobQueue) -> dict[int, tuple[str, str]]:
    return {each.number: (each.status, each.reason) for each in await queue.jobs()}


async def test_a_job_is_added_once_and_its_success_removes_it(system: System, queue: JobQueue) -> None:
    number = await queue.add("compact", "ethereum")
    assert number is not None
    assert await queue.add("compact", "ethereum") is None, "it waits already"
    assert await queue.add("compact", "base") is not None
    assert [each.status for each in await queue.jobs()] == ["todo", "todo"]
    worker = QueueWorker(system, queue)
    await worker.run(wait=False)
    assert await queue.jobs() == []
    with pytest.raises(NotFound, match="no job"):
        await queue.job(number)
    with pytest.raises(BadRequest, match="none of index"):
        await queue.add("fly", "ethereum")


async def test_a_wrong_job_is_parked_at_once_and_can_be_retried(system: System, queue: JobQueue) -> None:
    number = await queue.add("compact", "mars")
    assert number is not None
    await QueueWorker(system, queue).run(wait=False)
    job = await queue.job(number)
    assert (job.status, job.attempts) == ("failed", 1)
    assert "mars is not configured" in job.reason
    retried = await queue.retry(number)
    assert (retried.status, retried.attempts, retried.reason) == ("todo", 0, "")
    with pytest.raises(BadRequest, match="is todo"):
        await queue.retry(retried.number)
    await queue.cancel(retried.number)
    assert (await queue.job(retried.number)).status == "cancelled"
    with pytest.raises(BadRequest, match="is cancelled"):
        await queue.cancel(retried.number)


async def test_a_job_that_always_fails_is_parked_with_its_reason(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_worker, "FIRST_DELAY_S", 0)
    runs = list[str]()

    async def fail(self: QueueWorker, chain: str) -> None:
        runs.append(chain)
        raise StoreError("lake", "no such table")

    monkeypatch.setattr(QueueWorker, "_vacuum", fail)
    number = await queue.add("vacuum", "ethereum")
    assert number is not None
    worker = QueueWorker(system, queue)
    for _ in range(MAX_ATTEMPTS + 2):
        await worker.run(wait=False)
    assert len(runs) == MAX_ATTEMPTS
    job = await queue.job(number)
    assert (job.status, job.attempts) == ("failed", MAX_ATTEMPTS)
    assert "no such table" in job.reason
    errors = "SELECT count(*) AS errors FROM job_errors"
    assert (await queue.app.connector.execute_query_one_async(errors))["errors"] == MAX_ATTEMPTS
    await queue.retry(number)
    assert (await queue.app.connector.execute_query_one_async(errors))["errors"] == 0, "they go with their job"


async def test_temporary_errors_are_waited_for_and_count_as_no_failure(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_worker, "FIRST_DELAY_S", 0)
    errors: list[Exception] = [Unavailable("the node", "timed out"), Locked("tail", "another process")] * MAX_ATTEMPTS
    errors += [StoreError("lake", "no such table")] * (MAX_ATTEMPTS - 1)

    async def fail(self: QueueWorker, chain: str) -> None:
        raise errors.pop(0) if errors else Unavailable("the node", "timed out")  # one run may try it several times

    monkeypatch.setattr(QueueWorker, "_vacuum", fail)
    number = await queue.add("vacuum", "ethereum")
    assert number is not None
    worker, count = QueueWorker(system, queue), len(errors)
    while errors:
        await worker.run(wait=False)
    job = await queue.job(number)
    assert job.status == "todo"
    assert job.attempts >= count


@pytest.mark.parametrize(("attempts", "delay_s"), [(0, 2), (3, 16), (8, 512), (9, 600), (10**9, 600)])
def test_the_delay_grows_up_to_ten_minutes(attempts: int, delay_s: int) -> None:
    job = Job(id=1, lock=None, queueing_lock=None, task_name="vacuum", queue="chainfolio", attempts=attempts)
    before = datetime.now(UTC)
    decision = _Delays().get_retry_decision(exception=Unavailable("the node", "timed out"), job=job)
    assert decision is not None
    assert decision.retry_at is not None
    assert 0 <= (decision.retry_at - before).total_seconds() - delay_s < 60


async def test_a_job_whose_twin_waits_is_tried_again(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = list[int | None]()

    async def fail(self: QueueWorker, chain: str) -> None:
        twins.append(await queue.add("vacuum", chain))
        raise Unavailable("the node", "timed out")

    monkeypatch.setattr(QueueWorker, "_vacuum", fail)
    number = await queue.add("vacuum", "ethereum")
    assert number is not None
    worker = QueueWorker(system, queue)
    await worker.run(wait=False)
    assert twins[0] is not None
    assert [(each.number, each.status) for each in await queue.jobs()] == [(number, "todo")]
    claim_statement = "UPDATE procrastinate_jobs SET status = 'doing', worker_id = NULL"
    await queue.app.connector.execute_query_async(claim_statement)  # as a worker that took it and vanished
    assert await queue.add("vacuum", "ethereum") is not None
    assert await worker.take_over() == 1
    assert [(each.number, each.status) for each in await queue.jobs()] == [(number, "todo")]


@pytest.mark.parametrize("is_parallel", [False, True], ids=["materialise", "index"])
async def test_jobs_of_one_chain_run_together_only_if_they_read_blocks(
    system: System, queue: JobQueue, url: str, monkeypatch: pytest.MonkeyPatch, is_parallel: bool
) -> None:
    running, max_running = dict[str, int](), dict[str, int]()
    are_both_running = {chain: asyncio.Event() for chain in ("ethereum", "base")}

    async def work(self: QueueWorker, chain: str, **_: int) -> None:
        running[chain] = running.get(chain, 0) + 1
        max_running[chain] = max(max_running.get(chain, 0), running[chain])
        if max_running[chain] > 1:
            are_both_running[chain].set()
        if is_parallel:
            async with asyncio.timeout(60):
                await are_both_running[chain].wait()
        await asyncio.sleep(0.02)
        running[chain] -= 1

    for name in ("_index", "_materialise"):
        monkeypatch.setattr(QueueWorker, name, work)
    for chain in ("ethereum", "base"):
        for first in range(5):
            await queue.add("index" if is_parallel else "materialise", chain, first=first, last=first)
    async with opened(url) as second:
        await asyncio.gather(*(QueueWorker(system, each).run(wait=False) for each in (queue, second)))
        for _ in range(10):
            await QueueWorker(system, await _anew(second)).run(wait=False)
        assert await queue.jobs() == []
    assert {count > 1 for count in max_running.values()} == {is_parallel}


async def _anew(queue: JobQueue) -> JobQueue:
    """The queue without its registered jobs."""
    queue.app.tasks.clear()
    return queue


async def test_the_jobs_of_a_dead_worker_are_taken_over_and_parked(system: System, queue: JobQueue) -> None:
    number = await queue.add("vacuum", "ethereum")
    assert number is not None
    worker = QueueWorker(system, queue)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        claim_statement = "UPDATE procrastinate_jobs SET status = 'doing', worker_id = NULL WHERE id = %(id)s"
        await queue.app.connector.execute_query_async(
            claim_statement, id=number
        )  # as a worker that took it and vanished
        assert await worker.take_over() == 1
        assert (await queue.job(number)).status == ("todo" if attempt < MAX_ATTEMPTS else "failed")
    assert (await statuses(queue))[number] == ("failed", "its worker died")
    assert await worker.take_over() == 0


async def test_the_queue_of_another_version_is_refused(queue: JobQueue, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE chainfolio_jobs.queue_version SET version = 2")
    with pytest.raises(StoreError, match="version 2, and this release has version 1"):
        async with opened(url):
            pass


async def test_a_queue_needs_postgresql_and_names_a_database_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="needs the tail in PostgreSQL"):
        async with opened(f"sqlite:///{tmp_path}/tail.db"):
            pass
    with pytest.raises(StoreError, match="queue: "):
        async with opened("postgresql://nobody@127.0.0.1:9/none"):
            pass


async def test_a_node_that_is_down_adds_no_due_work(system: System, queue: JobQueue) -> None:
    assert await QueueWorker(system, queue).add_due() == 0
    assert await queue.jobs() == []


async def test_due_ranges_go_on_behind_those_that_are_parked(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def due(self: QueueWorker, chain: Chain) -> list[tuple[str, dict[str, int]]]:
        if chain.key == "ethereum":
            raise ZeroDivisionError("a defect of one chain")
        return [("materialise", {}), *(("index", {"first": at, "last": at}) for at in range(6))]

    monkeypatch.setattr(QueueWorker, "_due", due)
    monkeypatch.setattr(queue_worker, "MAX_WAITING", 3)
    worker = QueueWorker(system, queue)
    assert await worker.add_due() == 3
    assert await worker.add_due() == 0, "three of the chain wait"
    ended = "UPDATE procrastinate_jobs SET status = (CASE id WHEN 1 THEN 'failed' WHEN 2 THEN 'aborted'"
    await queue.app.connector.execute_query_async(f"{ended} ELSE 'cancelled' END)::procrastinate_job_status")
    assert await worker.add_due() == 3
    added = [(each.kind, each.arguments.get("first")) for each in await queue.jobs()]
    assert added == [("materialise", None), *(("index", at) for at in range(5))]


async def test_a_job_has_one_name_whatever_the_order_of_its_arguments(queue: JobQueue) -> None:
    assert await queue.add("index", "base", first=1, last=2) is not None
    assert await queue.add("index", "base", last=2, first=1) is None
    assert await queue.add("index", "base", last=1, first=2) is not None


async def test_a_defect_does_not_end_the_care_for_the_queue(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls, second_call = list[str](), asyncio.Event()

    async def fail(self: QueueWorker) -> int:
        calls.append("take_over")
        raise ZeroDivisionError("a defect")

    async def count(self: QueueWorker) -> int:
        calls.append("add_due")
        if len(calls) >= 4:
            second_call.set()
        return 0

    monkeypatch.setattr(QueueWorker, "take_over", fail)
    monkeypatch.setattr(QueueWorker, "add_due", count)
    running = asyncio.create_task(QueueWorker(system, queue, look_every_s=0.01).run())
    async with asyncio.timeout(60):
        await second_call.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert calls[:4] == ["take_over", "add_due"] * 2
    assert caplog.text.count("take-over: an unexpected ZeroDivisionError") == 1, "it is logged once"


async def test_a_worker_goes_on_after_the_database_was_away(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_worker, "AGAIN_S", 0.01)
    ends = list[str]()

    async def end(**_: object) -> None:  # as the library ends, with and without an error
        ends.append("ended")
        if len(ends) == 1:
            raise ConnectorException
        if len(ends) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(queue.app, "run_worker_async", end)
    with pytest.raises(asyncio.CancelledError):
        await QueueWorker(system, queue).run()
    assert len(ends) == 3


async def test_a_worker_stops_although_the_database_is_away(
    system: System, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_worker, "AGAIN_S", 0.01)
    runs, has_begun = list[str](), asyncio.Event()

    async def end(**_: object) -> None:  # as the library ends if it cannot sign off
        runs.append("run")
        has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectorException from None

    monkeypatch.setattr(queue.app, "run_worker_async", end)
    running = asyncio.create_task(QueueWorker(system, queue).run())
    async with asyncio.timeout(60):
        await has_begun.wait()
        running.cancel()
        await asyncio.wait([running], timeout=10)
    assert running.cancelled()
    assert len(runs) == 1


@pytest.mark.slow("restarts the database below a worker, which reconnects after some seconds")
async def test_a_job_that_runs_while_the_database_restarts_is_repeated(
    system: System, queue: JobQueue, url: str, machine: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, has_begun, goes_on = list[str](), asyncio.Event(), asyncio.Event()

    async def work(self: QueueWorker, chain: str) -> None:
        runs.append(chain)
        has_begun.set()
        await goes_on.wait()

    monkeypatch.setattr(QueueWorker, "_vacuum", work)
    await queue.add("vacuum", "ethereum")
    running = asyncio.create_task(QueueWorker(system, queue, 4, 2.0, 0.5, 0.2).run())
    async with asyncio.timeout(300):
        await has_begun.wait()
        await asyncio.to_thread(machine.stop)
        goes_on.set()  # its end cannot be stored
        await asyncio.sleep(1)
        await asyncio.to_thread(machine.start)
        async with opened(url) as other_queue:
            await other_queue.add("vacuum", "base")
            while await other_queue.jobs():
                assert not running.done(), "the worker goes on"
                await asyncio.sleep(0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert set(runs) == {"ethereum", "base"}


# --- commands --------------------------------------------------------------------------------------------------------


def run_jobs(capsys: pytest.CaptureFixture[str], config: Path, *words: str) -> Any:
    """The JSON of a command."""
    capsys.readouterr()
    code = main(["jobs", *words, "--config", str(config), "--json"])
    document = json.loads(capsys.readouterr().out)
    return document if code == 0 else document["error"]["message"]


def test_commands_add_list_show_cancel_and_retry(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = run_jobs(capsys, config, "add", "index", "--chain", "base", "--from", "0", "--to", "9")
    number = str(added["job"])
    assert (added["kind"], added["chain"], added["from"], added["to"], added["status"]) == (
        "index",
        "base",
        0,
        9,
        "todo",
    )
    assert run_jobs(capsys, config, "list") == [added]
    assert run_jobs(capsys, config, "cancel", number)["status"] == "cancelled"
    assert run_jobs(capsys, config, "show", number)["status"] == "cancelled"
    assert run_jobs(capsys, config, "retry", number)["status"] == "todo"
    capsys.readouterr()
    assert main(["jobs", "list", "--config", str(config)]) == 0
    assert "todo" in capsys.readouterr().out


@pytest.mark.slow("other faults of the same command", fast=["no-number", "mars", "reversed", "kind"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show",), "show takes the number of a job"),
        (("list", "7"), "list takes no job"),
        (("show", "seven"), "'seven' is not the number"),
        (("show", "7"), "there is no job 7"),
        (("add", "vacuum"), "a job is of one chain"),
        (("add", "vacuum", "--chain", "mars"), "mars is not configured"),
        (("add", "index", "--chain", "base"), "takes a range of blocks"),
        (("add", "vacuum", "--chain", "base", "--from", "1", "--to", "2"), "takes a range of blocks"),
        (("add", "index", "--chain", "base", "--from", "2", "--to", "1"), "2 to 1 is no range"),
        (("add", "fly", "--chain", "base"), "'fly' is none of"),
    ],
    ids=["no-number", "number", "word", "unknown", "no-chain", "mars", "no-range", "range", "reversed", "kind"],
)
def test_what_does_not_fit_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in run_jobs(capsys, config, *arguments)


@pytest.mark.slow("starts two workers as processes and kills one")
def test_a_killed_worker_is_replaced_by_another_one(config: Path, url: str) -> None:
    command = [sys.executable, "-m", "chainfolio"]
    config_options = ["--config", str(config)]
    jobs = "SELECT count(*) FROM chainfolio_jobs.procrastinate_jobs"
    with psycopg.connect(url, autocommit=True, options="-c search_path=chainfolio_jobs") as connection:
        for kill in (True, False):
            worker = subprocess.Popen(
                [*command, "worker", "--jobs", *config_options], stderr=subprocess.PIPE, text=True
            )
            assert worker.stderr is not None
            assert "waiting for work" in worker.stderr.readline()
            if kill:
                worker.kill()
                worker.communicate()
                connection.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
                subprocess.run([*command, "jobs", "add", "compact", "--chain", "base", *config_options], check=True)
                connection.execute("UPDATE procrastinate_jobs SET status = 'doing'")  # the dead worker had it
                continue
            until_s = time.monotonic() + 60
            while (unfinished := connection.execute(jobs.encode()).fetchone()) != (0,) and time.monotonic() < until_s:
                time.sleep(0.2)
            worker.send_signal(signal.SIGTERM)
            _, errors = worker.communicate(timeout=60)
            assert unfinished == (0,), errors
            assert (worker.returncode, "Traceback" in errors) == (0, False), errors
