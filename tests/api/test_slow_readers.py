"""Clients that do not read their answer are charged only once the system has all of it."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Sequence

import pytest

from chainfolio.api.serve import listening
from chainfolio.assets import Account
from chainfolio.portfolio.facts import Options
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys, an_app

REQUEST = f"GET /v1/portfolio?addresses={ALICE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
ANSWERS = 400  # of 40 kB: more than any system takes from a server for one who does not read
LOOPS = [asyncio.new_event_loop]
if sys.platform != "win32":
    import uvloop

    LOOPS.append(uvloop.new_event_loop)


class Long(FakeEngine):
    """Answers less than what a server holds back for a slow client, and more than nothing."""

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        return [b'"' + b"x" * 40_000 + b'"' for _ in accounts]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_client_that_stops_reading_costs_no_work_and_pays_when_it_goes_on(new_loop: type) -> None:
    keys = FakeKeys()

    async def stall() -> None:
        loop = asyncio.get_running_loop()
        app = an_app(Long(), keys)
        async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port:
            with socket.socket() as client:
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, REQUEST * ANSWERS)
                await _wait_until_still(keys)
                began_s = time.process_time()
                await asyncio.sleep(0.5)
                assert time.process_time() - began_s < 0.25, "the server waits without looking again and again"
                assert len(keys.meter.settled) == len(keys.meter.requests) - 1, "the answer that is stuck is not paid"
                assert app.parts.traffic.guard is not None
                (connection,) = app.parts.traffic.guard._open
                assert 0 < connection.unsent() < 41_000, "what waits in the server is of that one answer alone"
                read = 0
                while len(keys.meter.settled) < ANSWERS:
                    read += len(await asyncio.wait_for(loop.sock_recv(client, 2**20), 5))
                assert read > 0
        assert keys.meter.settled == [(number, "post") for number in range(1, ANSWERS + 1)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(stall())


async def _wait_until_still(keys: FakeKeys) -> None:
    """Wait until no answer gets through any more."""
    before = -1
    while len(keys.meter.settled) != before:
        before = len(keys.meter.settled)
        await asyncio.sleep(0.3)
    assert 0 < before < ANSWERS, "the system takes some answers, and not all"
