"""Bookmarks in a store: the cursor at a position of an account's question, for a quarter of an hour."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from chainfolio.environment import SystemClock
from chainfolio.storage.state import State, bookmarks, schema
from chainfolio.storage.state.database import Statement

NOW_US = 10**15
OLD_US = NOW_US + bookmarks.KEEP_US + 1


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State.open(f"sqlite:///{tmp_path}/state.db", b"p" * 32, SystemClock(), random.Random(1))
    yield opened
    opened.close()


def put(state: State, position: int, bookmark: bytes, at_us: int = NOW_US, account: str = "acc_1") -> None:
    state.database.write(lambda tx: bookmarks.put(tx, account, b"q", position, bookmark, at_us))


def bookmark_at(
    state: State, position: int, at_us: int = NOW_US, account: str = "acc_1", question: bytes = b"q"
) -> tuple[int, bytes] | None:
    return state.database.read(lambda tx: bookmarks.find(tx, account, question, position, at_us))


def test_a_place_is_that_of_its_position_and_the_newest_before_it_for_who_jumps(state: State) -> None:
    put(state, 20, b"of a slow reader", NOW_US)
    put(state, 40, b"of a slow reader, further on", NOW_US + 1)
    put(state, 20, b"of a new reader", NOW_US + 2)
    assert bookmark_at(state, 40) == (40, b"of a slow reader, further on")
    assert bookmark_at(state, 20) == (20, b"of a new reader")
    assert bookmark_at(state, 60) == (20, b"of a new reader")
    assert bookmark_at(state, 19) is None


def test_a_place_is_nobody_elses(state: State) -> None:
    put(state, 20, b"mine")
    assert bookmark_at(state, 20, account="acc_2") is None
    assert bookmark_at(state, 20, question=b"another") is None


def test_a_place_is_forgotten_after_a_while(state: State) -> None:
    put(state, 20, b"old")
    assert bookmark_at(state, 20, OLD_US) is None
    put(state, 40, b"new", OLD_US)
    assert not state.database.write(lambda tx: bookmarks.drop_expired(tx, OLD_US)), "there is no more to forget"
    rows = Statement(sa.select(schema.bookmarks.c.position))
    assert state.database.read(lambda tx: tx.rows(rows)) == [(40,)]
    assert bookmark_at(state, 40, OLD_US) == (40, b"new")
