"""`chainfolio jobs`: recurring jobs of `serve` and `worker`, with their times, last runs and results.

The next times follow from the settings; the last runs are those of all processes, also of ended ones.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, show_json, show_table, utc_time, with_system
from chainfolio.cli.daily import opened
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.indexer.schedule import STOPPED, trigger
from chainfolio.settings import JOBS
from chainfolio.storage.state import jobs as records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainfolio.indexer.wiring import System
    from chainfolio.storage.state.jobs import JobRun

OF_NO_CHAIN = ("places", "prices")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("jobs", parents=[common], help=GROUPS["jobs"], description=__doc__)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the jobs with their next and last runs, as a table or --json; 0 even if one failed."""
    documents = with_system(options, _documents)
    if options.json:
        show_json(documents)
        return 0
    names = ("job", "chain", "cron", "next", "last", "ms", "result")
    columns = [(name, "right" if name == "ms" else "left") for name in names]
    show_table("", columns, [_row(each) for each in documents])
    return 0


def _row(document: dict[str, Any]) -> list[str]:
    result = "; ".join(filter(None, (document["result"], document["error"])))
    duration = "" if document["durationMs"] is None else str(document["durationMs"])
    times = [(document[name] or "").partition(".")[0] for name in ("nextRunAt", "lastRunAt")]
    return [document["name"], document["chain"], document["cron"] or "never", *times, duration, result]


async def _documents(system: System) -> list[dict[str, Any]]:
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
    if last is None:
        return None
    if last.is_running:
        return "running"
    if last.error == STOPPED:
        return "stopped"
    return "failed" if last.error else "ok"
