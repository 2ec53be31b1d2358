"""A process dies at a named point of a change: the change is made and paid once, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from bench.fleet import fleet, opened
from bench.runs import environment
from bench.wire import ConnectionLost, Line, Response, encode_request
from chainfolio.storage.state import State, ledger
from chainfolio.storage.state.database import Statement
from tests.api.dying import COMMITTED, HOLD_S, KEYED, POINTS
from tests.storage.stores import KINDS, Stores

ROOT = Path(__file__).parents[2]
RICH, PRICE = 10**6, 1200
_SUBSCRIBED = Statement(sa.text("SELECT count(*) FROM subscriptions WHERE description = :description"))
_PAID = Statement(
    sa.select(sa.func.count())
    .select_from(sa.text("ledger reserved JOIN ledger posted ON posted.call_id = reserved.call_id"))
    .where(
        sa.text("reserved.kind = 'reserve' AND posted.kind = 'post' AND posted.amount = 1200"),
        sa.text("reserved.memo LIKE :memo"),
    )
)


@dataclass
class Lives:
    """Consecutive servers on one port, over one store."""

    state: State
    token: str
    port: int
    process: subprocess.Popen[str]

    @asynccontextmanager
    async def life(self, point: str = "") -> AsyncIterator[Line]:
        """One server, until it is dead: by itself at a point, or ended at the end of the block."""
        child = self._start_child(point)
        line = Line(self.port)
        try:
            yield line
        except BaseException:  # whatever failed: a server that did not die would be waited for
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            line.leave()
        if not point:
            os.kill(child, signal.SIGTERM)
        assert self._read_number() == (-signal.SIGKILL if point else 0)

    def _start_child(self, point: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{point}\n")
        self.process.stdin.flush()
        return self._read_number()

    def _read_number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    async def subscribe(self, line: Line, number: int, key: str) -> Response:
        """Request a subscription that is unique to `number`."""
        address = f"0x{number + 1:040x}"
        body = json.dumps({"addresses": [{"address": address, "description": f"change {number}"}]}).encode()
        headers = {"Authorization": f"Bearer {self.token}", "X-Request-Id": f"call-{number}."}
        headers |= {"Idempotency-Key": key} if key else {}
        return await line.ask(encode_request("POST", "/v1/subscribe-snapshot", headers, body))

    def count_changes(self, number: int) -> tuple[int, int]:
        """Return how often a subscription exists and how often it was paid; check the ledger."""
        database = self.state.database
        assert database.read(ledger.check) == []
        assert database.read(ledger.totals)["reserve"] == database.read(ledger.totals)["post"], "nothing is held"
        ((change_count,),) = database.read(lambda tx: tx.rows(_SUBSCRIBED, description=f"change {number}"))
        ((payment_count,),) = database.read(lambda tx: tx.rows(_PAID, memo=f"%call-{number}.%"))
        return change_count, payment_count


@asynccontextmanager
async def living(url: str) -> AsyncIterator[Lives]:
    state = opened(url, HOLD_S)
    _, token = state.create_account("mortal", "PRO", RICH, ["portfolio"])
    with fleet(url, 0, HOLD_S) as empty_fleet, started(empty_fleet.port, url) as process:
        try:
            yield Lives(state, token, empty_fleet.port, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            state.close()


def started(port: int, url: str) -> subprocess.Popen[str]:
    """The process whose children are the servers."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.api.dying", str(port), url],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow("the same kills over a second store", only=["postgresql"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_that_dies_at_any_point_is_made_and_paid_once_and_told_again(kind: str, stores: Stores) -> None:
    async with living(stores.url(kind)) as lives:
        for number, point in enumerate(POINTS):
            was_made = number >= COMMITTED
            async with lives.life(point) as line:
                with pytest.raises(ConnectionLost):
                    await lives.subscribe(line, number, f"key-{number}")
            assert lives.count_changes(number) == ((1, 1) if was_made else (0, 0)), point
            async with lives.life() as line:
                retried = await lives.subscribe(line, number, f"key-{number}")
                once_more = await lives.subscribe(line, number, f"key-{number}")
            assert (retried.status, once_more.status) == (200, 200)
            assert (b"idempotency-replayed" in retried.headers) == was_made, point
            assert b"idempotency-replayed" in once_more.headers
            assert json.loads(once_more.body) == json.loads(retried.body)
            assert lives.count_changes(number) == (1, 1), point
        assert lives.state.database.read(ledger.totals)["post"] == (PRICE * len(POINTS), len(POINTS))


@pytest.mark.slow("the same kills over a second store", only=["postgresql"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_without_a_key_that_dies_at_any_point_is_made_and_paid_or_neither(
    kind: str, stores: Stores
) -> None:
    async with living(stores.url(kind)) as lives:
        for number, point in enumerate(POINTS):
            if point in KEYED:
                continue
            async with lives.life(point) as line:
                with pytest.raises(ConnectionLost):
                    await lives.subscribe(line, number, "")
            assert lives.count_changes(number) == ((1, 1) if number >= COMMITTED else (0, 0)), point
        async with lives.life() as line:
            retried = await lives.subscribe(line, COMMITTED, "")
        assert retried.status == 409, "who asks for it without a key is told that it is there"
        assert lives.count_changes(COMMITTED) == (1, 1)
