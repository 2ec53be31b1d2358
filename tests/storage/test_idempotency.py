"""Stored answers of changes: how long they are replayed, and when they are deleted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import sqlalchemy as sa

from chainfolio.environment import SystemClock
from chainfolio.storage.state import State
from chainfolio.storage.state.database import Statement
from chainfolio.storage.state.idempotency import KeyedRequest, StoredResponse, claim, drop_expired, find, store_response

DAY_US: Final = 86_400_000_000  # in digits: the product's constant must not change unseen
REQUEST: Final = KeyedRequest("acc_1", "monday-1", b"fingerprint")
ANSWER: Final = StoredResponse(201, "application/json", b'{"id":1}')
ROWS: Final = Statement(sa.text("SELECT count(*) FROM idempotency"))


@dataclass
class StoreTime:
    """The store's own time, which a test sets."""

    us: int = 1_000_000

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def time() -> StoreTime:
    return StoreTime()


@pytest.fixture
def state(state_url: str, time: StoreTime) -> Iterator[State]:
    opened = State.open(state_url, bytes(32), SystemClock(), random.Random(1), time=time)
    opened.database.write(lambda tx: claim(tx, REQUEST))
    opened.database.write(lambda tx: store_response(tx, REQUEST, ANSWER))
    yield opened
    opened.close()


def test_an_answer_is_replayed_for_24_hours(state: State, time: StoreTime) -> None:
    time.us += DAY_US - 1
    assert state.database.read(lambda tx: find(tx, REQUEST)) == ANSWER
    assert state.database.write(lambda tx: claim(tx, REQUEST)) == ANSWER
    time.us += 1
    assert state.database.read(lambda tx: find(tx, REQUEST)) is None
    assert state.database.write(lambda tx: claim(tx, REQUEST)) is None, "the key is free"


def test_an_answer_is_deleted_after_24_hours_and_not_before(state: State, time: StoreTime) -> None:
    for age_us, rows in ((DAY_US, 1), (DAY_US + 1, 0)):
        time.us = 1_000_000 + age_us
        assert not state.database.write(drop_expired)
        assert state.database.read(lambda tx: tx.rows(ROWS)) == [(rows,)]
