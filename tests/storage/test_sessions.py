"""Sessions of the dashboard: a link works once, a session ends, and no session begins another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from chainfolio.cli.dashboard_link import CREDITS, OWNER, is_own_machine, new_link, owner_account
from chainfolio.storage.state import State
from chainfolio.storage.state.sessions import LINK_US, MAX_SESSIONS, SESSION_NAME, SESSION_US
from tests.storage.test_state import PEPPER, Hands


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def state(state_url: str, clock: Hands) -> Iterator[State]:
    opened = State.open(state_url, PEPPER, clock, random.Random(1))
    yield opened
    opened.close()


def link_token(state: State, account_id: str) -> str:
    return new_link(state, account_id, "http://127.0.0.1:8080").rpartition("link=")[2]


async def test_a_key_begins_sessions_and_stays_valid(state: State) -> None:
    account, key = state.create_account("somebody")
    session = await state.open_session(key)
    assert session is not None
    principal = state.authenticate(session)
    assert principal is not None
    assert (principal.account_id, state.authenticate(key) is not None) == (account.id, True)
    assert await state.open_session(session) is None, "a session that was stolen cannot be prolonged"


async def test_a_link_works_for_one_of_many_at_once(state: State) -> None:
    token = link_token(state, state.create_account("somebody")[0].id)
    sessions = await asyncio.gather(*(state.open_session(token) for _ in range(5)))
    assert sum(session is not None for session in sessions) == 1
    assert state.authenticate(token) is None


async def test_links_and_sessions_end_by_themselves(state: State, clock: Hands) -> None:
    account, key = state.create_account("somebody")
    token, session = link_token(state, account.id), await state.open_session(key)
    clock.us += LINK_US
    assert await state.open_session(token) is None
    clock.us += SESSION_US - LINK_US - 1
    assert session is not None
    assert state.authenticate(session) is not None
    clock.us += 1
    assert state.authenticate(session) is None


@pytest.mark.parametrize("token", ["", "x", "cf_live_x", "ü" * 40, "cf_live_" + "a" * 36])
async def test_what_is_no_key_begins_none(state: State, token: str) -> None:
    assert await state.open_session(token) is None
    await state.close_session(token)


async def test_logging_out_revokes_the_session_and_no_key(state: State) -> None:
    _, key = state.create_account("somebody")
    session = await state.open_session(key)
    assert session is not None
    await state.close_session(session)
    await state.close_session(key)
    assert state.authenticate(session) is None
    assert state.authenticate(key) is not None


async def test_an_account_has_so_many_sessions_and_the_oldest_end(state: State, clock: Hands) -> None:
    account, key = state.create_account("somebody")
    sessions = []
    for _ in range(MAX_SESSIONS + 2):
        clock.us += 1
        sessions.append(await state.open_session(key) or "")
    valid = [state.authenticate(session) is not None for session in sessions]
    assert valid == [False] * 2 + [True] * MAX_SESSIONS
    assert sum(each.name == SESSION_NAME for each in state.keys(account.id)) == MAX_SESSIONS + 2


def test_the_owner_has_one_account_whose_credits_are_restored(state: State) -> None:
    first = owner_account(state)
    assert (first.name, first.plan, first.plan_expires_us) == (OWNER, "PRO", None)
    assert owner_account(state) == first
    assert state.balance(first.id) == CREDITS
    bill = state.meter.bill(first.id, state.keys(first.id)[0].id, 7, "request")
    state.database.write(lambda tx: state.meter.pay(tx, bill))
    assert state.balance(first.id) == CREDITS - 7
    owner_account(state)
    assert state.balance(first.id) == CREDITS


def test_a_link_keeps_its_token_behind_the_fragment(state: State) -> None:
    link = new_link(state, owner_account(state).id, "http://127.0.0.1:8080", addresses="0xa,0xb", to="2026-03-01")
    assert link.startswith("http://127.0.0.1:8080/#/portfolio?addresses=0xa,0xb&to=2026-03-01&link=cf_live_")


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("example", False)],
)
def test_links_are_printed_on_addresses_of_this_machine_only(host: str, is_own: bool) -> None:
    assert is_own_machine(host) is is_own
