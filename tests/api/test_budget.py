"""Requests that exceed their time are refused in the form of their route, and not charged."""

from __future__ import annotations

import asyncio

import pytest

from chainfolio.api.serve import listening
from chainfolio.settings import Limits
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys, an_app
from tests.api.sessions import client_session


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        (f"/v1/wallet?addresses={ALICE}", 503, "application/json"),
        (f"/v1/approvals/ethereum?addresses={ALICE}", 502, "application/json"),
        (f"/v1/portfolio/at-block?addresses={ALICE}&chainKey=ethereum&blockNumber=5", 500, "text/plain"),
    ],
)
async def test_who_would_wait_too_long_is_refused_in_time_and_pays_nothing(path: str, status: int, kind: str) -> None:
    engine, keys = FakeEngine(delay_s=3600), FakeKeys()
    headers = {"Authorization": f"Bearer {KEY}"}
    app = an_app(engine, keys, limits=Limits(request_s=1))
    async with (
        listening(app, "127.0.0.1", 0, drain_s=0.1) as port,
        client_session(f"http://127.0.0.1:{port}") as session,
        session.get(path, headers=headers) as answer,
    ):
        assert (answer.status, answer.content_type) == (status, kind), await answer.text()
        assert "Retry-After" in answer.headers
        await asyncio.wait_for(engine.finished.wait(), 5)
    assert keys.meter.settled == [(1, "void")]
