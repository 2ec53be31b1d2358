"""Metrics of the API for Prometheus: answers and durations, without personal data."""

from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from chainfolio.api.app import App
from chainfolio.api.serve import listening
from chainfolio.indexer.metrics import serve_metrics as metrics_listening
from chainfolio.settings import Limits
from tests.api.fakes import ALICE, KEY, FakeEngine, an_app
from tests.api.sessions import client_session

HEADERS = {"Authorization": f"Bearer {KEY}"}


def scraped(port: int) -> dict[tuple[str, tuple[str, ...]], float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert ALICE not in text
    assert KEY not in text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.values()))): sample.value for sample in samples}


async def test_requests_are_counted_by_operation_and_status() -> None:
    app = an_app()
    with metrics_listening([app.parts.traffic], "127.0.0.1", 0) as at:
        async with listening(app, "127.0.0.1", 0) as port, client_session(f"http://127.0.0.1:{port}") as session:
            for path, status in (("/v1/wallet?addresses=" + ALICE, 200), ("/v1/wallet", 400), ("/nowhere", 404)):
                assert (await session.get(path, headers=HEADERS)).status == status
            assert (await session.get("/v1/wallet")).status == 401
            samples = await asyncio.to_thread(scraped, at)
    for each in (("200", "wallet"), ("400", "wallet"), ("404", "none"), ("401", "wallet")):
        assert samples["chainfolio_api_requests_total", each] == 1
    assert samples["chainfolio_api_seconds_count", ("wallet",)] == 3
    assert samples["chainfolio_api_seconds_bucket", ("+Inf", "wallet")] == 3
    assert samples["chainfolio_api_in_flight", ()] == 0


async def running(app: App, count: int) -> None:
    for _ in range(500):
        if app.parts.traffic.in_flight == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{app.parts.traffic.in_flight} are running")


async def test_more_than_may_run_at_once_is_refused_at_once() -> None:
    engine = FakeEngine(delay_s=60)
    app = an_app(engine, limits=Limits(in_flight=2))
    async with (
        listening(app, "127.0.0.1", 0, drain_s=0.1) as port,
        client_session(f"http://127.0.0.1:{port}") as session,
    ):
        path = f"/v1/wallet?addresses={ALICE}"
        waiting = [asyncio.create_task(session.get(path, headers=HEADERS)) for _ in range(2)]
        await asyncio.wait_for(engine.called.wait(), 5)
        await running(app, 2)
        answer = await asyncio.wait_for(session.get(path, headers=HEADERS), 5)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert (await answer.json())["error"] == "Service Unavailable"
        assert app.parts.traffic.shed == 1
        assert (await session.get("/healthz")).status == 200
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await running(app, 0)
        engine.delay_s = 0
        assert (await session.get(path, headers=HEADERS)).status == 200
