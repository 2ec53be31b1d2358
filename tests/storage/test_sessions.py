"""Sessions of the dashboard: a link works once, a session ends, and no session begins another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from chainfolio.cli.dashboard_link import CREDITS, OWNER, is_own_machine, new_link, owner_account, url_of
from chainfolio.storage.state import State, accounts
from chainfolio.storage.state.accounts import is_session
from chainfolio.storage.state.credentials import make_key
from chainfolio.storage.state.meter_transaction import AdmissionRequest
from chainfolio.storage.state.sessions import (
    KEEP_US,
    LINK_US,
    MAX_PER_MINUTE,
    MAX_SESSIONS,
    MINUTE_US,
    SESSION_US,
    TooManySessions,
)
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
    assert [each.id.partition("_")[0] for each in state.keys(account.id)] == ["key", "key"]
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
        clock.us += MINUTE_US
        sessions.append(await state.open_session(key) or "")
    valid = [state.authenticate(session) is not None for session in sessions]
    assert valid == [False] * 2 + [True] * MAX_SESSIONS
    assert sum(is_session(each.name) for each in state.keys(account.id)) == MAX_SESSIONS + 2


async def test_an_account_begins_so_many_sessions_in_a_minute(state: State, clock: Hands) -> None:
    account, key = state.create_account("somebody")
    _, other_key = state.create_account("other")
    link, before = link_token(state, account.id), clock.us
    for _ in range(MAX_PER_MINUTE):
        clock.us += 1_000_000
        assert await state.open_session(key)
    for token in (key, link):
        with pytest.raises(TooManySessions) as caught:
            await state.open_session(token)
        assert caught.value.wait_s == (before + 1_000_000 + MINUTE_US - clock.us) // 1_000_000
    assert await state.open_session(other_key)
    clock.us = before + 1_000_000 + MINUTE_US
    assert await state.open_session(link), "what was refused did not use the link up"


async def test_many_logins_at_once_do_not_exceed_the_rate(state: State) -> None:
    account, key = state.create_account("somebody")
    results = await asyncio.gather(
        *(state.open_session(key) for _ in range(2 * MAX_PER_MINUTE)), return_exceptions=True
    )
    assert sum(isinstance(each, str) for each in results) == MAX_PER_MINUTE
    assert sum(is_session(each.name) for each in state.keys(account.id)) == MAX_PER_MINUTE


async def test_a_clock_that_is_set_back_prevents_no_login(state: State, clock: Hands) -> None:
    _, key = state.create_account("somebody")
    clock.us += 100 * MINUTE_US
    for _ in range(MAX_PER_MINUTE):
        await state.open_session(key)
    clock.us -= 50 * MINUTE_US
    assert await state.open_session(key)


async def test_who_has_no_key_does_not_get_the_lock_of_the_store(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    _, key = state.create_account("somebody")
    session = await state.open_session(key)
    assert session is not None
    monkeypatch.setattr(State, "write", None)
    for token in (make_key(random.Random(2)), session):
        assert await state.open_session(token) is None
    assert await state.open_session(key, link=True) is None
    for token in (make_key(random.Random(2)), key):
        await state.close_session(token)


async def test_only_a_link_logs_in_as_a_link(state: State) -> None:
    account, key = state.create_account("somebody")
    assert await state.open_session(key, link=True) is None
    assert await state.open_session(link_token(state, account.id), link=True)


async def test_a_session_ends_with_its_key_and_not_with_its_link(state: State, clock: Hands) -> None:
    account, _ = state.create_account("somebody")
    _, short = state.create_key(account.id, "laptop", clock.us + MINUTE_US)
    _, long = state.create_key(account.id, "desk", clock.us + 2 * SESSION_US)
    await state.open_session(short)
    await state.open_session(long)
    await state.open_session(link_token(state, account.id))
    ends = [each.expires_us for each in state.keys(account.id) if is_session(each.name)]
    assert sorted(end or 0 for end in ends) == [clock.us + MINUTE_US, clock.us + SESSION_US, clock.us + SESSION_US]


async def test_revoking_a_key_ends_the_sessions_that_began_with_it(state: State) -> None:
    account, key = state.create_account("somebody")
    second, second_key = state.create_key(account.id, "other")
    session, second_session = await state.open_session(key), await state.open_session(second_key)
    first = next(each for each in state.keys(account.id) if each.name == "first")
    assert state.revoke_key(first.id)
    assert not state.revoke_key(first.id)
    assert session is not None
    assert second_session is not None
    assert state.authenticate(session) is None
    assert state.authenticate(second_session) is not None
    assert state.revoke_key(second.id)
    assert state.authenticate(second_session) is None


async def test_all_sessions_of_an_account_share_one_rate(state: State) -> None:
    account, key = state.create_account("somebody")
    tokens = [await state.open_session(key) or "" for _ in range(2)]
    rated = [principal.rated_id for token in (key, *tokens) if (principal := state.authenticate(token))]
    assert rated == [next(each.id for each in state.keys(account.id) if each.name == "first"), account.id, account.id]
    for token, is_allowed in ((tokens[0], True), (tokens[1], False), (key, True)):
        caller = state.authenticate(token)
        assert caller is not None
        request = AdmissionRequest(account.id, caller.key_id, "all", 1, 0, rated_id=caller.rated_id)
        assert (await state.meter.admit(request)).is_allowed is is_allowed


def test_the_owner_has_one_account_whose_credits_are_restored(state: State) -> None:
    first = owner_account(state)
    assert (first.name, first.plan, first.plan_expires_us) == (OWNER, "PRO", None)
    assert owner_account(state) == first
    assert state.balance(first.id) == CREDITS
    bill = state.meter.bill(first.id, state.keys(first.id)[0].id, 7, "request")
    state.database.write(lambda tx: state.meter.pay(tx, bill))
    assert state.balance(first.id) == CREDITS - 7
    state.database.write(lambda tx: accounts.revoke_grant(tx, first.id, "sql", 0))  # as of an older release
    owner_account(state)
    assert state.balance(first.id) == CREDITS
    assert state.account(first.id) == first


def test_a_link_keeps_its_token_behind_the_fragment(state: State) -> None:
    link = new_link(state, owner_account(state).id, "http://127.0.0.1:8080", addresses="0xa,0xb", to="2026-03-01")
    assert link.startswith("http://127.0.0.1:8080/#/portfolio?addresses=0xa,0xb&to=2026-03-01&link=cf_live_")


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"), ("localhost", "http://localhost:80")],
)
def test_an_address_with_colons_stands_in_brackets(host: str, url: str) -> None:
    assert url_of(host, 80) == url


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("example", False)],
)
def test_links_are_printed_on_addresses_of_this_machine_only(host: str, is_own: bool) -> None:
    assert is_own_machine(host) is is_own


async def test_sessions_that_ended_long_ago_are_deleted(
    state: State, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, key = state.create_account("somebody")
    state.create_key(account.id, "dashboard sessions of mine", expires=1)
    link, session = link_token(state, account.id), await state.open_session(key)
    assert await state.open_session(link) is not None
    assert session is not None
    sweep = state.meter._sweep_sessions
    before = len(state.keys(account.id))
    clock.us += SESSION_US + KEEP_US
    assert state.database.write(sweep) is False
    assert len(state.keys(account.id)) == before - 1, "the link ended first; the sessions end in this moment"
    clock.us += 1
    assert await state.open_session(key) is not None
    monkeypatch.setattr("chainfolio.storage.state.sessions.SLICE", 1)
    assert [state.database.write(sweep) for _ in range(3)] == [True, True, False]
    names = [each.name for each in state.keys(account.id)]
    assert sum(map(is_session, names)) == 1, "the one that has just begun"
    assert state.authenticate(key) is not None
    assert "dashboard sessions of mine" in names
