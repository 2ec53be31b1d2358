"""Journals of SQLite stay within their bound while writers never pause; expired rows are deleted."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
import sqlalchemy as sa

from chainfolio.api.state_bounds import state_bounds
from chainfolio.blocks import Block
from chainfolio.engine.bounds import MAX_JOURNAL_BYTES, MAX_THREADS
from chainfolio.environment import SystemClock
from chainfolio.storage.sqlite import connect, journal_bytes
from chainfolio.storage.state import State, sqlite
from chainfolio.storage.state.database import Statement, Transaction
from chainfolio.storage.state.idempotency import KeyedRequest, StoredResponse, claim, store_response
from chainfolio.storage.state.meter_transaction import AdmissionRequest
from chainfolio.storage.state.sweep import sweep_slice
from chainfolio.storage.tail import Tail, TailBlock

MB: Final = 2**20
PAYLOAD: Final = bytes(50_000)
HOUR_US: Final = 3_600_000_000
REPLACE: Final = Statement(
    sa.text(
        "INSERT OR REPLACE INTO idempotency (account_id, name, fingerprint, claimed_us, body) "
        "VALUES ('a', 'n', x'00', 9000000000000000000, :body)"
    )
)


def opened(path: Path) -> State:
    """A new state store."""
    return State.open(f"sqlite:///{path}", bytes(32), SystemClock(), random.Random(1))


def replace_answer(tx: Transaction) -> None:
    """Write 50 kB, in place of those before."""
    tx.run(REPLACE, body=PAYLOAD)


async def test_a_long_journal_is_emptied_and_a_short_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_S", 1000.0)
    path = tmp_path / "state.db"
    state, connection = opened(path), connect(path)
    database: Any = state.database
    for limit, emptied in ((100 * MB, False), (MB, True)):
        monkeypatch.setattr(sqlite, "LONG_JOURNAL_BYTES", limit)
        for _ in range(40):
            await state.database.meter_transaction(replace_answer)
        assert journal_bytes(path) > 2 * MB
        database._checkpoint(connection)
        assert (journal_bytes(path) == 0) is emptied
    connection.close()
    state.close()


async def test_writers_never_wait_for_a_reader_of_an_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_S", 1000.0)
    monkeypatch.setattr(sqlite, "LONG_JOURNAL_BYTES", MB)
    path = tmp_path / "state.db"
    state, connection, reader = opened(path), connect(path), connect(path, reader=True)
    database: Any = state.database
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM idempotency").fetchall()
    for _ in range(40):
        await state.database.meter_transaction(replace_answer)
    length = journal_bytes(path)
    database._checkpoint(connection)  # a lock or a wait for the reader would raise BusyError
    assert journal_bytes(path) == length > 2 * MB, "the journal cannot be emptied"
    await state.database.meter_transaction(replace_answer)
    assert reader.execute("SELECT count(*) FROM idempotency").fetchall() == before == [(0,)]

    reader.execute("ROLLBACK")
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM idempotency").fetchall() == [(1,)]
    with pytest.raises(apsw.BusyError):  # the reader is at the newest state, in the journal
        database._checkpoint(connection)
    assert connection.execute("PRAGMA busy_timeout").fetchall() == [(sqlite.TRUNCATE_MS,)]
    assert sqlite.TRUNCATE_MS <= 50
    reader.execute("ROLLBACK")
    database._checkpoint(connection)
    assert journal_bytes(path) == 0
    for each in (connection, reader):
        each.close()
    state.close()


@pytest.mark.slow("spends 300,000 credits as fast as the meter can")
async def test_the_journal_stays_short_while_the_meter_never_pauses(tmp_path: Path) -> None:
    path, largest, number = tmp_path / "state.db", 0, 0
    state = opened(path)
    account, token = state.create_account("busy", "PRO", 10**9, ("portfolio",))
    key = state.authenticate(token)
    assert key is not None

    async def client() -> None:
        nonlocal largest, number
        while number < 300_000:
            number += 1
            admitted = await state.meter.admit(AdmissionRequest(account.id, key.key_id, "all", 0, 1, f"r{number}"))
            assert admitted.reservation is not None
            state.meter.settle_soon(admitted.reservation, "post")
            largest = max(largest, journal_bytes(path)) if number % 1000 == 0 else largest

    await asyncio.gather(*(client() for _ in range(32)))
    await state.meter.close()
    state.close()
    assert MB < largest <= MAX_JOURNAL_BYTES


def test_the_journal_of_a_tail_stays_short_while_another_process_reads(tmp_path: Path) -> None:
    path, largest = tmp_path / "tail.db", 0
    tail, reader = Tail(path), Tail(path, reader=True)
    for height in range(300):
        block = Block(height, f"0x{height}", f"0x{height - 1}", height)
        tail.put("a", [TailBlock(block, {"blocks": random.Random(height).randbytes(100_000)})], datasets=("blocks",))
        reader.rows("a", "blocks", height, height)
        if height % 50 == 49:
            tail.drop("a", height - 10)
        largest = max(largest, journal_bytes(path))
    tail.close()
    reader.close()
    assert 0 < largest < 16 * MB < MAX_JOURNAL_BYTES


def test_stored_answers_of_a_week_are_never_older_than_their_bound(tmp_path: Path) -> None:
    hours = [0]
    state = State.open(
        f"sqlite:///{tmp_path / 'state.db'}",
        bytes(32),
        SystemClock(),
        random.Random(1),
        time=lambda: 1_000_000_000_000 + hours[0] * HOUR_US,
    )
    for hour in range(7 * 24):
        hours[0] = hour
        request = KeyedRequest("acc", f"{hour}", b"fingerprint")

        def work(tx: Transaction, request: KeyedRequest = request) -> None:
            claim(tx, request)
            store_response(tx, request, StoredResponse(200, "application/json", b"{}"))

        state.database.write(work)
        while state.database.write(lambda tx: sweep_slice(tx, 0, 600_000_000)):
            pass
        bounds = {each.name: each for each in state_bounds(state, 0, 30)}
        assert bounds["idempotent_answer_s"].used == min(hour, 24) * 3600 <= bounds["idempotent_answer_s"].maximum
    state.close()


async def test_work_that_waits_for_a_thread_starts_no_more_threads(tmp_path: Path) -> None:
    state, max_threads = opened(tmp_path / "state.db"), 0

    def observe() -> None:
        nonlocal max_threads
        max_threads = max(max_threads, threading.active_count())

    work = [asyncio.to_thread(observe) for _ in range(400)]
    writes = [state.write(lambda tx: tx.run(REPLACE, body=b"1")) for _ in range(100)]
    await asyncio.gather(*work, *writes)
    state.close()
    assert 1 < max_threads <= MAX_THREADS
