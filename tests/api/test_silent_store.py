"""The API with an unresponsive PostgreSQL: calls end as 503, nothing is charged, `/readyz` fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import ClientSession
from structlog.testing import capture_logs

from chainfolio.api.serve import listening
from chainfolio.cli import serve
from chainfolio.cli.serve import answering
from chainfolio.cli.state_store import open_state
from chainfolio.settings import Limits, Settings, Store
from chainfolio.storage import postgres
from chainfolio.storage.state import ledger, schema
from chainfolio.storage.state import postgres as state_postgres
from chainfolio.storage.state.database import Statement, argument
from tests.api.fakes import ALICE
from tests.api.sessions import client_session
from tests.storage.silent import Line
from tests.storage.stores import NO_POSTGRES, Stores

CREDITS, COST = 1000, 4
_LEDGER = schema.ledger
_CHARGED = Statement(
    sa.select(sa.func.count()).where(_LEDGER.c.account_id == argument("owner"), _LEDGER.c.kind == argument("moved"))
)
_BALANCES = schema.balances
_BALANCE = Statement(
    sa.select(_BALANCES.c.available, _BALANCES.c.held).where(_BALANCES.c.account_id == argument("owner"))
)


async def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until a condition is true, by polling."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 (the condition sets no event)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[ClientSession]:
    with capture_logs():
        app = await answering(settings)
        async with (
            listening(app, "127.0.0.1", 0, drain_s=0.1) as port,
            client_session(f"http://127.0.0.1:{port}") as session,
        ):
            yield session


async def test_calls_to_a_server_whose_store_is_silent_end_as_503_are_not_charged_and_readyz_says_so(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stores.server is None:
        pytest.skip(NO_POSTGRES)
    for name, seconds in (("CALL_S", 1.0), ("WAIT_S", 1.0), ("CONNECT_S", 2)):
        monkeypatch.setattr(state_postgres if name == "WAIT_S" else postgres, name, seconds)
    monkeypatch.setattr(serve, "STATE_PROBE_S", 0.05)
    url = stores.url("postgresql")
    socket_folder = url.partition("host=")[2]
    line = Line(tmp_path, Path(socket_folder))
    through = Settings(
        data=str(tmp_path / "data"), state=Store(url=url.replace(socket_folder, str(tmp_path))), limits=Limits(hold_s=1)
    )
    state = open_state(Settings(data=through.data, state=Store(url=url)))  # not through the line: it always speaks
    account, key = state.create_account("ann", "PRO", CREDITS, ("portfolio",))

    def charged() -> int:
        return int(state.database.read(lambda tx: tx.rows(_CHARGED, owner=account.id, moved="post"))[0][0])

    def balance() -> tuple[int, int]:
        ((available, reserved),) = state.database.read(lambda tx: tx.rows(_BALANCE, owner=account.id))
        return available, reserved

    try:
        async with served(through) as client:

            async def ask(path: str, body: Any = None) -> tuple[int, Any]:
                headers, method = {"Authorization": f"Bearer {key}"}, "GET" if body is None else "POST"
                async with client.request(method, path, headers=headers, json=body) as answer:
                    return answer.status, await answer.json()

            async def is_ready() -> bool:
                return (await ask("/readyz"))[0] == 200

            async def is_settled() -> bool:
                return balance()[1] == 0

            book = "/v1/addressbook"  # costs a credit, and needs no chain
            assert (await ask(book))[0] == 200
            await wait_until(is_settled)
            charged_before, before = charged(), balance()
            assert (charged_before, before[0] < CREDITS) == (1, True)
            line.speaks.clear()
            async with asyncio.timeout(60):
                entries = {"entries": [{"address": ALICE}]}
                requests = [*(ask(book) for _ in range(6)), *(ask("/v1/addressbook", entries) for _ in range(3))]
                answers = await asyncio.gather(*requests)
            assert {status for status, _ in answers} == {503}
            status, readiness = await ask("/readyz")
            assert (status, readiness["ready"]) == (503, False)
            assert [each["healthy"] for each in readiness["tasks"] if each["task"] == serve.STATE_STORE] == [False]
            line.speaks.set()
            await wait_until(is_ready)
            await wait_until(is_settled)
            assert (charged(), balance()) == (charged_before, before), "nobody paid for what was not answered"
            assert (await ask(book))[0] == 200
            await wait_until(is_settled)
            assert charged() == charged_before + 1
        assert state.database.read(ledger.check) == []
    finally:
        state.close()
        line.close()
