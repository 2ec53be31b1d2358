"""`chainfolio jobs`: what runs when, and how it ended."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainfolio.cli.daily import opened, recorder
from chainfolio.errors import Unavailable
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.settings import Schedule
from chainfolio.settings_file import load
from tests.cli.conftest import Run

SETTINGS = """data = "d"
[schedule]
prices = "0 0 1 1 *"
check = ""
[chains.ethereum]
rpc = ["http://127.0.0.1:9"]
"""


def configured(folder: Path) -> Path:
    file = folder / "c.toml"
    file.write_text(SETTINGS)
    return file


def test_without_a_server_jobs_have_their_next_times(run: Run, tmp_path: Path) -> None:
    file = configured(tmp_path)
    by_name = {each["name"]: each for each in run("jobs", "--config", str(file), "--json").json}
    assert list(by_name) == ["snapshots", "places", "prices", "materialise", "vacuum", "check"]
    assert by_name["prices"]["nextRunAt"].endswith("-01-01T00:00:00.000Z")
    assert (by_name["check"]["cron"], by_name["check"]["nextRunAt"]) == ("", None)
    assert {each["result"] for each in by_name.values()} == {None}
    assert (by_name["vacuum"]["chain"], by_name["places"]["chain"]) == ("ethereum", "")
    assert not (tmp_path / "d" / "state.db").exists(), "a command that reads makes no state store"
    assert "never" in run("jobs", "--config", str(file)).out


def test_runs_of_another_process_are_shown_with_their_errors(run: Run, tmp_path: Path) -> None:
    file = configured(tmp_path)
    assert run("account", "create", "--name", "one", "--config", str(file)).code == 0
    database = opened(load(file))

    async def fail() -> None:
        raise Unavailable("the node", "timed out")

    async def work() -> None:
        schedule = JobSchedule(Schedule(), record=recorder(database))
        async with schedule.running():
            ended = [schedule.add("prices", fail, at_start=True), schedule.add("places", fail_not, at_start=True)]
            await asyncio.gather(*(each.running for each in ended if each.running))
            schedule.add("vacuum", asyncio.Event().wait, chain="ethereum", at_start=True)
            await asyncio.sleep(0.2)

    async def fail_not() -> None:
        await asyncio.sleep(0.002)

    asyncio.run(work())
    if (store := database()) is not None:
        store.close()
    by_name = {each["name"]: each for each in run("jobs", "--config", str(file), "--json").json}
    assert by_name["prices"]["result"] == "failed"
    assert "timed out" in by_name["prices"]["error"]
    assert (by_name["places"]["result"], by_name["places"]["error"]) == ("ok", None)
    assert by_name["places"]["durationMs"] >= 2
    assert (by_name["vacuum"]["result"], by_name["vacuum"]["error"]) == ("stopped", "stopped before its end")
    assert by_name["snapshots"]["lastRunAt"] is None
    assert "failed; " in run("jobs", "--config", str(file)).out


@pytest.mark.slow("two whole servers; the locks between processes have faster tests")
def test_two_servers_on_one_state_run_their_jobs_and_alerts_and_end_in_order(run: Run, tmp_path: Path) -> None:
    file, events = tmp_path / "c.toml", tmp_path / "events.jsonl"
    file.write_text('data = "d"\n[server]\nport = 0\n[schedule]\nprices = "* * * * * *"\nplaces = "*/2 * * * * *"\n')
    command, config, rule = [sys.executable, "-m", "chainfolio"], ["--config", str(file), "--json"], None
    servers = [
        subprocess.Popen([*command, "serve", "--config", str(file)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        runs: dict[str, set[str]] = {"prices": set(), "places": set()}
        end_s = time.monotonic() + 60
        while min(map(len, runs.values())) < 2 and time.monotonic() < end_s:
            time.sleep(0.5)
            listing = subprocess.run(
                [*command, "jobs", "--config", str(file), "--json"], capture_output=True, check=True
            )
            for each in json.loads(listing.stdout):
                if each["name"] in runs and each["result"] == "ok":
                    runs[each["name"]].add(each["endedAt"])
            if runs["prices"] and not rule:
                rule = run("alert", "add", "credits", "--under", "9" * 30, "--file", str(events), *config).json
        assert min(map(len, runs.values())) >= 2, runs
        while not (events.exists() and events.stat().st_size) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert [json.loads(line)["type"] for line in events.read_text().splitlines()] == ["credits.low"]
    finally:
        for server in servers:
            server.terminate()
        logs = [server.communicate(timeout=30)[1] for server in servers]
    assert [server.returncode for server in servers] == [0, 0]
    assert not [line for log in logs for line in log.splitlines() if "Traceback" in line or "not recorded" in line]
    by_name = {each["name"]: each for each in run("jobs", "--config", str(file), "--json").json}
    assert by_name["prices"]["result"] in ("ok", "stopped")
