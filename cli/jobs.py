"""`chainfolio jobs`: recurring jobs of `serve` and `worker`, and the queue of `worker --jobs`.

Without an action, it prints the recurring jobs: the next times follow from the settings, the last runs are those of all
processes. `list` prints the jobs of the queue, `show`, `retry` and `cancel` take the number of one. `add` adds a job:
index, materialise, compact or vacuum.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, show_json, show_table, utc_time, with_system
from chainfolio.cli.daily import opened
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.errors import BadRequest
from chainfolio.indexer.schedule import trigger
from chainfolio.settings import JOBS
from chainfolio.storage.state import jobs as records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainfolio.indexer.job_queue import JobQueue, QueuedJob
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.state.jobs import JobRun

OF_NO_CHAIN = ("places", "prices")
ACTIONS = ("list", "show", "retry", "cancel", "add")
QUEUE_COLUMNS = ("job", "kind", "chain", "from", "to", "status", "failures", "reason", "notBefore")
MAX_DIGITS = 18


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("jobs", parents=[common], help=GROUPS["jobs"], description=__doc__)
    command.add_argument("action", nargs="?", choices=ACTIONS, help="without one: recurring jobs")
    command.add_argument("job", nargs="?", help="the number of a job; with add its kind")
    command.add_argument("--chain", metavar="KEY", help="with add: the chain")
    command.add_argument("--from", dest="first", type=int, metavar="BLOCK", help="with add index: the first block")
    command.add_argument("--to", dest="last", type=int, metavar="BLOCK", help="with add index: the last block")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print jobs as a table or --json, or change one of the queue; 0 even if one failed.

    Raises:
        BadRequest: The action does not fit, or there is no queue.
        NotFound: The queue has no such job.
    """
    if options.action is not None:
        return _run_on_queue(options)
    documents = with_system(options, _documents)
    if options.json:
        show_json(documents)
        return 0
    names = ("job", "chain", "cron", "next", "last", "ms", "result")
    columns = [(name, "right" if name == "ms" else "left") for name in names]
    show_table("", columns, [_row(each) for each in documents])
    return 0


def _run_on_queue(options: argparse.Namespace) -> int:
    """Run an action (list, show, retry, cancel, add) on the queue, and print the jobs it concerns.

    Returns 0. Raises BadRequest for a job with `list`, or none with another action.
    """
    work = {"list": _list, "show": _show, "retry": _retry, "cancel": _cancel, "add": _add}[options.action]
    if (options.job is None) != (options.action == "list"):
        raise BadRequest("job", f"{options.action} takes {'no' if options.job else 'the number of a'} job")

    async def open_and_work(system: System) -> list[QueuedJob]:
        from chainfolio.indexer import job_queue

        async with job_queue.opened(system.settings.tail_url) as queue:
            return await work(system, queue, options)

    documents = [_queued(each) for each in with_system(options, open_and_work)]
    if options.json:
        show_json(documents if options.action == "list" else documents[0])
        return 0
    columns = [(name, "right" if name in ("job", "failures") else "left") for name in QUEUE_COLUMNS]
    show_table(
        "", columns, [["" if each[name] is None else str(each[name]) for name in QUEUE_COLUMNS] for each in documents]
    )
    return 0


async def _list(system: System, queue: JobQueue, options: argparse.Namespace) -> list[QueuedJob]:
    return await queue.jobs()


async def _show(system: System, queue: JobQueue, options: argparse.Namespace) -> list[QueuedJob]:
    return [await queue.job(_number(options))]


async def _retry(system: System, queue: JobQueue, options: argparse.Namespace) -> list[QueuedJob]:
    return [await queue.retry(_number(options))]


async def _cancel(system: System, queue: JobQueue, options: argparse.Namespace) -> list[QueuedJob]:
    await queue.cancel(_number(options))
    return [await queue.job(_number(options))]


async def _add(system: System, queue: JobQueue, options: argparse.Namespace) -> list[QueuedJob]:
    """Add a job of a chain to the queue and return it; only `index` takes a range of blocks.

    Raises BadRequest if the options do not fit, or the same job waits already.
    """
    if options.chain is None:
        raise BadRequest("chain", "a job is of one chain", remedy="--chain KEY")
    has_range = options.first is not None and options.last is not None
    if has_range != (options.job == "index") or (options.first is None) != (options.last is None):
        raise BadRequest(
            "from", "the job index takes a range of blocks, and others take none", remedy="--from N --to M"
        )
    if has_range and not 0 <= options.first <= options.last:
        raise BadRequest("from", f"{options.first} to {options.last} is no range of blocks")
    arguments = {"first": options.first, "last": options.last} if has_range else {}
    number = await queue.add(options.job, system.chain(options.chain).key, **arguments)
    if number is None:
        raise BadRequest("job", "the same job waits already", remedy="chainfolio jobs list")
    return [await queue.job(number)]


def _number(options: argparse.Namespace) -> int:
    if not options.job.isascii() or not options.job.isdecimal() or len(options.job) > MAX_DIGITS:
        raise BadRequest("job", f"{options.job!r} is not the number of a job", remedy="chainfolio jobs list")
    return int(options.job)


def _queued(job: QueuedJob) -> dict[str, Any]:
    """Return a job of the queue for --json; a failed one is called `parked`.

    Keys are `job` (its number), `kind`, `chain`, `from`, `to`, `bucket`, `status`, `failures`, `reason`, `notBefore`
    and `addedAt`; absent values are None.
    """
    return {
        "job": job.number,
        "kind": job.kind,
        "chain": job.chain,
        "from": job.arguments.get("first"),
        "to": job.arguments.get("last"),
        "bucket": job.arguments.get("bucket"),
        "status": "parked" if job.status == "failed" else job.status,
        "failures": job.attempts,
        "reason": job.reason or None,
        "notBefore": _time(job.scheduled_at),
        "addedAt": _time(job.added_at),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc_time(int(moment.timestamp() * 1_000_000))


def _row(document: dict[str, Any]) -> list[str]:
    result = "; ".join(filter(None, (document["result"], document["error"])))
    duration = "" if document["durationMs"] is None else str(document["durationMs"])
    times = [(document[name] or "").partition(".")[0] for name in ("nextRunAt", "lastRunAt")]
    return [document["name"], document["chain"], document["cron"] or "never", *times, duration, result]


async def _documents(system: System) -> list[dict[str, Any]]:
    """Return the configured jobs with their last run for --json; none has one without a state store."""
    database = opened(system.settings)()
    try:
        runs = database.read(records.every) if database is not None else []
    finally:
        if database is not None:
            database.close()
    by_job = {(each.name, each.chain): each for each in runs}
    now = datetime.fromtimestamp(system.environment.clock.now_us() / 1_000_000, UTC)
    return [_document(system, name, chain, by_job.get((name, chain)), now) for name, chain in _configured_jobs(system)]


def _configured_jobs(system: System) -> Iterator[tuple[str, str]]:
    """Yield name and chain of the jobs that a process with these settings has."""
    past = {chain.key for chain in system.account_chains if has_past(chain)}
    for name in JOBS:
        if name in OF_NO_CHAIN:
            yield name, ""
        for chain in () if name in OF_NO_CHAIN else system.chains:
            if name != "snapshots" or chain.key in past:
                yield name, chain.key


def _document(system: System, name: str, chain: str, last: JobRun | None, now: datetime) -> dict[str, Any]:
    """Return one job for --json: its cron text, next run and last run; unknown times are null.

    A job with an empty cron text has no next run. Keys are `name`, `chain`, `cron`, `nextRunAt`, `lastRunAt` (its
    begin), `endedAt`, `durationMs`, `result` and `error`.
    """
    schedule = system.settings.schedule
    cron: str = getattr(schedule, name)
    due = trigger(cron, schedule).get_next_fire_time(None, now) if cron else None
    duration_us = last.duration_us if last else None
    return {
        "name": name,
        "chain": chain,
        "cron": cron,
        "nextRunAt": None if due is None else utc_time(int(due.timestamp() * 1_000_000)),
        "lastRunAt": utc_time(last.began_us) if last else None,
        "endedAt": utc_time(last.ended_us) if last else None,
        "durationMs": None if duration_us is None else duration_us // 1000,
        "result": _result(last),
        "error": (last.error if last else "") or None,
    }


def _result(last: JobRun | None) -> str | None:
    """Return the result of a job's last run: running, stopped, failed or ok; None without a run."""
    if last is None:
        return None
    if last.is_running:
        return "running"
    if last.has_failed:
        return "failed"
    return "stopped" if last.error else "ok"
