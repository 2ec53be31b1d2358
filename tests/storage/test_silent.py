"""Calls to a silent PostgreSQL end as typed errors in bounded time; once it answers, all work again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.errors import Locked
from chainfolio.storage import postgres
from chainfolio.storage.state import accounts
from chainfolio.storage.state import postgres as state_postgres
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.postgres import PostgresDatabase
from tests.storage.silent import Line
from tests.storage.stores import NO_POSTGRES, Stores


@pytest.fixture
def line(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Line, PostgresDatabase]]:
    if stores.server is None:
        pytest.skip(NO_POSTGRES)
    monkeypatch.setattr(postgres, "CALL_S", 1.0)
    monkeypatch.setattr(state_postgres, "WAIT_S", 1.0)
    monkeypatch.setattr(postgres, "CONNECT_S", 2)
    url = stores.url("postgresql")
    folder = url.partition("host=")[2]
    proxy = Line(tmp_path, Path(folder))
    database = PostgresDatabase(url.replace(folder, str(tmp_path)))
    yield proxy, database
    proxy.speaks.set()
    database.close()
    proxy.close()


async def test_every_call_to_a_silent_database_ends_as_busy_and_the_next_ones_work(
    line: tuple[Line, PostgresDatabase],
) -> None:
    silent, database = line
    assert await database.read_async(accounts.changes) == 0
    silent.speaks.clear()
    async with asyncio.timeout(60):
        calls = [
            *(database.read_async(accounts.changes) for _ in range(12)),
            database.meter_transaction(accounts.changes),
        ]
        ended = await asyncio.gather(*calls, database.write_async(accounts.changes), return_exceptions=True)
    assert {type(each) for each in ended} == {Locked}
    silent.speaks.set()
    async with asyncio.timeout(60):
        assert await database.read_async(accounts.changes) == 0
        assert await database.meter_transaction(accounts.changes) == 0


async def test_a_transaction_that_ended_in_silence_is_not_begun_again(line: tuple[Line, PostgresDatabase]) -> None:
    silent, database = line
    runs = []

    def work(tx: Transaction) -> int:
        runs.append(1)
        silent.speaks.clear()
        return accounts.changes(tx)

    with pytest.raises(Locked):
        async with asyncio.timeout(60):
            await database.write_async(work)
    assert runs == [1]
