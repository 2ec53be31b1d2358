"""OpenTelemetry: requests, node calls, snapshots and jobs are spans without secrets; off by default."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chainfolio import spans
from chainfolio.api.serve import listening
from chainfolio.cli.main import main
from chainfolio.cli.telemetry import SEND_S, recording, telemetry
from chainfolio.environment import SystemClock
from chainfolio.errors import BadSettings, Unavailable
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Schedule, Settings, Telemetry
from chainfolio.settings_checks import check
from chainfolio.supervisor import Supervisor
from tests.api.fakes import ALICE, KEY, an_app
from tests.api.sessions import client_session

SECRET = "hunter2hunter2"


class Recorded:
    """Spans and metrics that were recorded."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()

    @contextmanager
    def on(self, sample: int = 1) -> Iterator[Recorded]:
        """Record during the block."""
        settings = Telemetry(sample=sample)
        with recording(settings, SimpleSpanProcessor(self.exporter), self.reader):
            yield self

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def attributes(self, name: str) -> list[dict[str, Any]]:
        return [dict(each.attributes or {}) for each in self.spans() if each.name == f"chainfolio.{name}"]

    def durations(self) -> list[dict[str, Any]]:
        """The labels of each histogram of durations."""
        data = self.reader.get_metrics_data()
        assert data is not None
        (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
        assert metric.name == "chainfolio.span.duration"
        return [dict(point.attributes or {}) for point in metric.data.data_points]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with Recorded().on() as recording:
        yield recording


def test_spans_nest_and_their_durations_are_counted(recorded: Recorded) -> None:
    with spans.span("request") as request:
        request.set_attribute("operation", "portfolio")
        with spans.span("node", chain="ethereum", calls=3):
            pass
    node, outer = recorded.spans()
    assert node.parent is not None
    assert outer.context is not None
    assert node.parent.span_id == outer.context.span_id
    assert node.attributes == {"chainfolio.chain": "ethereum", "chainfolio.calls": 3}
    assert recorded.durations() == [
        {"span": "node", "chain": "ethereum"},
        {"span": "request", "operation": "portfolio"},
    ]


def test_an_error_is_recorded_by_its_type_alone(recorded: Recorded) -> None:
    with pytest.raises(Unavailable), spans.span("node", endpoint="node.example.org"):
        raise Unavailable("node", f"https://node.example.org/{SECRET} does not answer")
    (span,) = recorded.spans()
    assert span.attributes == {"chainfolio.endpoint": "node.example.org", "error.type": "Unavailable"}
    assert not span.events
    assert SECRET not in span.to_json()
    assert recorded.durations()[0]["error"] == "Unavailable"


async def test_a_request_is_a_span_without_its_key_and_its_address(recorded: Recorded) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        listening(an_app(), "127.0.0.1", 0, drain_s=0.1) as port,
        client_session(f"http://127.0.0.1:{port}") as session,
    ):
        for path in (f"/v1/wallet?addresses={ALICE}", f"/v1/wallet?key={SECRET}", f"/{SECRET}"):
            await session.get(path, headers=headers)
    assert recorded.attributes("request") == [
        {"chainfolio.operation": "wallet", "chainfolio.status": 200},
        {"chainfolio.operation": "wallet", "chainfolio.status": 400},
        {"chainfolio.operation": "none", "chainfolio.status": 404},
    ]
    text = "".join(each.to_json() for each in recorded.spans())
    assert not [secret for secret in (KEY, ALICE, SECRET) if secret in text]


@pytest.mark.node
def test_a_portfolio_is_a_snapshot_with_its_node_calls(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalNode() as node:
        assert main(["portfolio", node.accounts[0], "--rpc", f"{node.url}/?key={SECRET}", "--json"]) == 0
        account = node.accounts[0]
    (snapshot,) = recorded.attributes("snapshot")
    assert snapshot["chainfolio.accounts"] == 1
    calls = recorded.attributes("node")
    assert calls
    assert all(each["chainfolio.endpoint"] == node.url.removeprefix("http://") for each in calls)
    assert {"eth_chainId"} <= {each["chainfolio.method"] for each in calls}
    text = "".join(each.to_json() for each in recorded.spans())
    assert SECRET not in text
    assert account.lower() not in text.lower()


async def test_a_job_is_a_span(recorded: Recorded) -> None:
    jobs = JobSchedule(Schedule(), SystemClock(), Supervisor())
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    async with jobs.running():
        jobs.add("places", work, chain="ethereum", at_start=True)
        await asyncio.wait_for(ran.wait(), 10)
    assert recorded.attributes("job") == [{"chainfolio.job": "places", "chainfolio.chain": "ethereum"}]


def test_other_threads_and_tasks_do_not_mix_their_spans(recorded: Recorded) -> None:
    async def traced_request(number: int) -> None:
        with spans.span("request", number=number):
            await asyncio.sleep(0)
            with spans.span("node", number=number):
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(*map(traced_request, range(20)))

    asyncio.run(both())
    by_id = {each.context.span_id: each for each in recorded.spans() if each.context}
    nodes = [each for each in recorded.spans() if each.parent]
    assert len(nodes) == 20
    for node in nodes:
        assert node.parent
        assert dict(by_id[node.parent.span_id].attributes or {}) == dict(node.attributes or {})


def test_without_a_tracer_a_span_is_one_shared_object() -> None:
    assert spans.span("node", calls=1) is spans.span("request")
    with spans.span("request") as silent:
        silent.set_attribute("status", 200)


def test_traces_that_are_not_sampled_still_count() -> None:
    recording = Recorded()
    with recording.on(sample=10**9):
        with spans.span("request"):
            pass
        assert recording.spans() == []
        assert recording.durations() == [{"span": "request"}]


def test_off_imports_nothing_and_a_missing_package_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from chainfolio.cli.telemetry import telemetry\nfrom chainfolio.settings import Telemetry\n"
        "from chainfolio.errors import MissingDependency\n"
        "with telemetry(Telemetry()): pass\n"
        "try:\n    with telemetry(Telemetry(endpoint='http://127.0.0.1:1')): pass\n"
        "except MissingDependency as error: print(error, error.remedy)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "chainfolio[otel]" in process.stdout


@pytest.mark.parametrize(
    "endpoint", [f"http://user:{SECRET}@host", f"https://host/?key={SECRET}", "ftp://host", "host:4318", "http://"]
)
def test_an_endpoint_with_a_secret_or_without_a_scheme_is_refused(endpoint: str) -> None:
    with pytest.raises(BadSettings, match=r"telemetry\.endpoint") as raised:
        check(Settings(telemetry=Telemetry(endpoint=endpoint)))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("sample", [-1, 0])
def test_a_share_of_nothing_is_refused(sample: int) -> None:
    with pytest.raises(BadSettings, match="sample"):
        check(Settings(telemetry=Telemetry(sample=sample)))


class Collector(BaseHTTPRequestHandler):
    """Takes what is sent to it."""

    def do_POST(self) -> None:
        received: list[tuple[str, bytes]] = self.server.received  # type: ignore[attr-defined]
        received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_collector_receives_traces_and_metrics_over_http() -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        server.received = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with telemetry(Telemetry(endpoint=f"http://127.0.0.1:{server.server_port}/")), spans.span("request"):
            pass
        server.shutdown()
        received: list[tuple[str, bytes]] = server.received  # type: ignore[attr-defined]
    assert sorted(path for path, _ in received) == ["/v1/metrics", "/v1/traces"]
    assert all(b"chainfolio" in body for _, body in received)


@pytest.mark.slow("waits until a collector that is away was tried for seconds")
def test_a_collector_that_is_away_stops_nothing() -> None:
    began_s = time.monotonic()
    with telemetry(Telemetry(endpoint="http://127.0.0.1:1")), spans.span("request"):
        pass
    assert time.monotonic() - began_s < 4 * SEND_S + 5
