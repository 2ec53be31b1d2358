"""`chainfolio top` of a running server: rates, lag, jobs; missing, restarted and wrong processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chainfolio.api.serve import listening
from chainfolio.cli import top
from chainfolio.cli.top import parse, read_all, summarise
from chainfolio.errors import BadAnswer
from chainfolio.indexer.metrics import serve_metrics
from tests.api.fakes import ALICE, KEY, an_app
from tests.api.sessions import client_session
from tests.cli.conftest import Run

WORKER = """
# TYPE chainfolio_head_block gauge
chainfolio_head_block{chain="ethereum"} 120
# TYPE chainfolio_indexed_block gauge
chainfolio_indexed_block{chain="ethereum"} INDEXED
# TYPE chainfolio_halted gauge
chainfolio_halted{chain="ethereum"} 0
# TYPE chainfolio_node_requests counter
chainfolio_node_requests_total{chain="ethereum",endpoint="node:8545"} REQUESTS
# TYPE chainfolio_node_errors counter
chainfolio_node_errors_total{chain="ethereum",endpoint="node:8545",kind="Unavailable"} 3
# TYPE chainfolio_node_latency_seconds gauge
chainfolio_node_latency_seconds{chain="ethereum",endpoint="node:8545"} 0.0125
# TYPE chainfolio_job_running gauge
chainfolio_job_running{job="vacuum",chain="ethereum"} 1
# TYPE chainfolio_job_runs counter
chainfolio_job_runs_total{job="vacuum",chain="ethereum"} 4
"""


def samples(indexed: int, requests: int) -> Any:
    return parse(WORKER.replace("INDEXED", str(indexed)).replace("REQUESTS", str(requests)))


def test_lag_rates_and_jobs_of_a_worker() -> None:
    view = summarise({"a": samples(100, 50)}, {"a": samples(110, 90)}, 2.0)
    (chain,) = view["chains"]
    assert chain == {
        "chain": "ethereum",
        "head": 120,
        "indexed": 110,
        "lag": 10,
        "blocksPerSecond": 5.0,
        "isHalted": False,
    }
    (endpoint,) = view["endpoints"]
    assert (endpoint["requestsPerSecond"], endpoint["errorsPerSecond"], endpoint["latencyMs"]) == (20.0, 0.0, 12.5)
    (job,) = view["jobs"]
    assert (job["isRunning"], job["hasFailed"], job["runs"], job["lastSeconds"]) == (True, False, 4, None)


def test_a_restarted_process_counts_from_zero_and_a_new_one_has_no_rate() -> None:
    restarted = summarise({"a": samples(100, 50)}, {"a": samples(100, 10)}, 2.0)
    assert restarted["endpoints"][0]["requestsPerSecond"] == 5.0
    new = summarise({"a": samples(100, 50)}, {"a": samples(100, 50), "b": samples(90, 1000)}, 2.0)
    assert new["endpoints"][0]["requestsPerSecond"] == 0.0
    assert new["chains"][0]["indexed"] == 100


async def test_it_reads_a_running_server(run: Run) -> None:
    app = an_app()
    with serve_metrics([app.parts.traffic], "127.0.0.1", 0) as at:
        url = f"http://127.0.0.1:{at}/metrics"
        async with listening(app, "127.0.0.1", 0) as port, client_session(f"http://127.0.0.1:{port}") as session:

            async def ask() -> None:
                while True:
                    await session.get(f"/v1/wallet?addresses={ALICE}", headers={"Authorization": f"Bearer {KEY}"})
                    await asyncio.sleep(0.05)

            arguments = ("top", "--once", "--json", "--interval", "0.3", "--metrics", url, "http://127.0.0.1:1/metrics")
            request_task = asyncio.create_task(ask())
            ran = await asyncio.to_thread(run, *arguments)
            request_task.cancel()
    assert ran.code == 0, ran.err
    view, _ = json.JSONDecoder().raw_decode(ran.out[ran.out.index("{\n") :])  # behind lines of the log
    assert view["processes"] == [url]
    (wallet,) = [each for each in view["operations"] if each["operation"] == "wallet"]
    assert wallet["requestsPerSecond"] > 0
    assert wallet["errorsPerSecond"] == 0
    assert wallet["meanMs"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metrics", "ftp://x"), "is no URL"),
        (("--interval", "0"), "between 0.1 and 3600"),
        (("--interval", "nan"), "between 0.1 and 3600"),
        (("--metrics", "http://127.0.0.1:1/metrics"), "refused"),
    ],
)
def test_wrong_arguments_and_processes_that_are_away_are_refused(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    ran = run("top", "--once", *arguments)
    assert ran.code != 0
    assert message in ran.err


def test_text_has_a_table_for_each_part(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Callable[[object], Any] = lambda _: {"a": samples(100, 50)}  # noqa: E731
    monkeypatch.setattr("chainfolio.cli.top.read_all", read)
    ran = run("top", "--once", "--interval", "0.1", "--metrics", "http://a")
    assert ran.code == 0
    assert all(text in ran.out for text in ("ethereum", "node:8545", "vacuum", "20"))


def test_metrics_that_are_too_large_are_refused_and_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metrics"
    file.write_text(WORKER.replace("INDEXED", "1").replace("REQUESTS", "2"))
    monkeypatch.setattr(top, "MAX_BYTES", file.stat().st_size)
    assert read_all([file.as_uri()])
    monkeypatch.setattr(top, "MAX_BYTES", file.stat().st_size - 1)
    with pytest.raises(BadAnswer):
        read_all([file.as_uri()])
