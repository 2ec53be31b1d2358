"""Rolling restart of two servers on one PostgreSQL: no request fails, and each is paid once.

`python -m bench.rolling` does the same with the processes of `chainfolio serve`, for longer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bench import rolling
from bench.balancer import Balancer, Client, Record, charges, follow_events
from chainfolio.api.app import make_app
from chainfolio.api.serve import listening
from chainfolio.environment import Environment
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Limits, Quotas, Settings
from chainfolio.storage.state import State
from tests.api.fakes import ALICE, BOB, FakeEngine
from tests.api.sessions import client_session
from tests.api.test_serve import ASKED, HEADERS, is_refused, served
from tests.e2e.running import free_port
from tests.storage.stores import NO_POSTGRES, Stores

NOTICE_S = 1.0
CALLS = 30  # before each restart
SETTINGS = Settings(quotas=Quotas(addressbook_paid=100_000), limits=Limits(per_minute=100_000))


def opened(url: str) -> State:
    return State.open(url, bytes(32), Environment().clock, random.Random(), 10)


@asynccontextmanager
async def server(url: str, port: int) -> AsyncIterator[None]:
    """A server over the state store, whose reads take a moment."""
    state, environment = opened(url), Environment(random=random.Random(port))
    app = make_app(FakeEngine(delay_s=0.05), state, SETTINGS, environment)
    try:
        async with listening(app, "127.0.0.1", port, notice_s=NOTICE_S):
            yield
    finally:
        await state.meter.close()
        state.close()


async def calls(record: Record, count: int) -> None:
    """Wait until clients sent `count` further requests."""
    target = len(record.calls) + count
    async with asyncio.timeout(60):
        while len(record.calls) < target:  # noqa: ASYNC110 - the clients run in this loop
            await asyncio.sleep(0.05)


async def test_a_rolling_restart_loses_no_request_and_charges_each_once(stores: Stores) -> None:
    if stores.server is None:
        pytest.skip(NO_POSTGRES)
    url, ports, record, over = stores.url("postgresql"), [free_port(), free_port()], Record(), asyncio.Event()
    state, balancer = opened(url), Balancer(ports)
    _, key = state.create_account("ann", "PRO", 10**6, ["portfolio"])
    clients = [Client(balancer, key, [ALICE, BOB], record, random.Random(seed)) for seed in range(12)]
    servers = [AsyncExitStack() for _ in ports]
    for each, port in zip(servers, ports, strict=True):
        await each.enter_async_context(server(url, port))
    background = [
        asyncio.create_task(balancer.watch()),
        asyncio.create_task(follow_events(balancer, key, [ALICE], record)),
    ]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run_until(over))
        await balancer.until_ready(ports)
        for each, port in zip(servers, ports, strict=True):
            await calls(record, CALLS)
            await each.aclose()
            assert await is_refused(port)
            await each.enter_async_context(server(url, port))
            await balancer.until_ready([port])
        over.set()
    for task in background:
        task.cancel()
    for each in servers:
        await each.aclose()
    bill = await charges(state.database, record)
    state.close()
    assert not record.failed
    assert (record.streams >= 1, record.broken_streams) == (True, 0)
    assert len(record.calls) >= 2 * CALLS
    assert (bill.wrong, bill.unpaid) == (0, 0), bill
    assert bill.paid == sum(call.cost for call in record.calls)


async def test_a_server_told_to_stop_is_not_ready_and_answers_until_its_notice_is_over() -> None:
    async with served(1, 0, notice_s=3) as running, client_session(f"http://127.0.0.1:{running.port}") as session:
        async with session.get("/readyz") as answer:
            assert (answer.status, (await answer.json())["stopping"]) == (200, False)
        running.process.terminate()
        await running.logged("draining")
        async with session.get("/readyz") as answer:
            assert (answer.status, (await answer.json())["stopping"]) == (503, True)
        async with session.get(ASKED, headers=HEADERS) as answer:
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert await running.ended() == 0
        assert await is_refused(running.port)


@pytest.mark.node
@pytest.mark.slow("restarts whole servers that index; the first test does so within one process")
async def test_a_rolling_restart_of_indexing_servers_loses_no_request(stores: Stores, tmp_path: Path) -> None:
    if stores.server is None:
        pytest.skip(NO_POSTGRES)
    with LocalNode() as node:
        report = await rolling.measured(node, stores.url("postgresql"), tmp_path, rolling.Trial(1, 6, 1))
    record = report.record
    assert not record.failed
    assert (record.streams >= 1, record.broken_streams, record.events > 2) == (True, 0, True)
    assert (report.charges.wrong, report.charges.unpaid) == (0, 0), report.charges
    assert report.charges.paid == sum(call.cost for call in record.calls)
    assert report.exit_codes == [0, 0]
