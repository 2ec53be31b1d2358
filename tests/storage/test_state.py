"""Accounts and keys: a key grants exactly its scope for its time, and is stored only as a hash."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.environment import SystemClock
from chainfolio.errors import BadRequest, BadSettings, StoreError
from chainfolio.storage.state import (
    State,
    accounts,
    alerts,
    jobs,
    migrations,
    open_database,
    saved_queries,
    schema,
    secret,
)
from chainfolio.storage.state.accounts import Account, Key, Principal
from chainfolio.storage.state.credentials import BASE62, make_key, pepper, well_formed
from chainfolio.storage.state.database import Statement
from chainfolio.storage.state.meter_transaction import AdmissionRequest
from tests.storage.stores import Stores

PEPPER = bytes(range(32))
ROOT = Path(__file__).parents[2]
Reopen = Callable[..., State]


class Hands:
    """A clock that shows what it was set to."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def now_us(self) -> int:
        return self.us

    def monotonic_s(self) -> float:
        return self.us / 1e6

    async def sleep(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def state(state_url: str, clock: Hands) -> Iterator[State]:
    opened = State.open(state_url, PEPPER, clock, random.Random(1))
    yield opened
    opened.close()


@pytest.fixture
def reopen(state_url: str, clock: Hands) -> Iterator[Callable[..., State]]:
    """Return a function that opens the same store once more."""
    opened: list[State] = []

    def open_it(seed: int = 2, pepper: bytes = PEPPER) -> State:
        opened.append(State.open(state_url, pepper, clock, random.Random(seed)))
        return opened[-1]

    yield open_it
    for each in opened:
        each.close()


def test_an_account_has_a_key_that_says_who_calls(state: State) -> None:
    account, token = state.create_account("ann", "PRO", 100, ["portfolio", "at-block"], expires=5_000_000)
    caller = state.authenticate(token)
    assert caller is not None
    assert (caller.account_id, caller.plan, caller.plan_expires_us) == (account.id, "PRO", 5_000_000)
    assert caller.grants == {"portfolio", "at-block"}
    assert [key.id for key in state.keys(account.id)] == [caller.key_id]
    assert state.account(account.id) == account == state.accounts()[0]
    assert account == Account(account.id, "ann", "PRO", 5_000_000, 1_000_000, frozenset({"portfolio", "at-block"}))
    assert state.balance(account.id) == 100
    assert state.account("acc_nobody") is None


def test_accounts_do_not_mix(state: State, clock: Hands) -> None:
    created = []
    for name, grants in (("ann", ["portfolio"]), ("bob", []), ("cho", ["enterprise", "portfolio"])):
        created.append(state.create_account(name, credits=len(name) * 7, grants=grants))
        clock.us += 1
    assert state.accounts() == [account for account, _ in created]
    for account, token in created:
        caller = state.authenticate(token)
        assert caller is not None
        assert (caller.account_id, caller.grants) == (account.id, account.grants)


def test_a_lapsed_plan_still_opens_the_door(state: State, clock: Hands) -> None:
    _, token = state.create_account("ann", "LITE", expires=2_000_000)
    clock.us = 3_000_000
    caller = state.authenticate(token)
    assert caller is not None
    assert (caller.plan, caller.plan_expires_us) == ("LITE", 2_000_000)


def test_a_revoked_key_opens_nothing_and_the_others_stay(state: State) -> None:
    account, first = state.create_account("ann")
    key, second = state.create_key(account.id, "laptop")
    assert state.revoke_key(key.id)
    assert not state.revoke_key(key.id)
    assert not state.revoke_key("key_unknown")
    assert state.authenticate(second) is None
    assert state.authenticate(first) is not None
    assert {key.name: key.revoked_us for key in state.keys(account.id)} == {"first": None, "laptop": 1_000_000}


def test_a_key_ends_at_its_time(state: State, clock: Hands) -> None:
    account, _ = state.create_account("ann")
    key, token = state.create_key(account.id, "short", expires=2_000_000)
    assert key == Key(key.id, account.id, "short", token[-4:], 1_000_000, 2_000_000, None)
    clock.us = 1_999_999
    assert state.authenticate(token) is not None
    clock.us = 2_000_000
    assert state.authenticate(token) is None


def test_a_key_of_another_pepper_is_unknown(state: State, reopen: Reopen) -> None:
    _, token = state.create_account("ann")
    assert reopen(pepper=b"x" * 32).authenticate(token) is None


def test_the_key_itself_is_kept_nowhere(stores: Stores, clock: Hands) -> None:
    url = stores.url("sqlite")
    opened = State.open(url, PEPPER, clock, random.Random(1))
    _, token = opened.create_account("ann")
    opened.close()
    content = b"".join(path.read_bytes() for path in stores.folder.glob(f"{url.rpartition('/')[2]}*"))
    assert b"ann" in content
    assert token[8:38].encode() not in content
    assert token[-6:].encode() not in content


def test_a_malformed_key_costs_no_look_up(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = state.create_account("ann")
    monkeypatch.setattr(state.database, "read", lambda *_: pytest.fail("asked the database"))
    for wrong in ("", "cf_live_", token[:-1], token + "0", token.upper(), token[::-1], "cf_live_" + "ü" * 36):
        assert state.authenticate(wrong) is None


@given(seed=st.integers(), at=st.integers(8, 43), letter=st.sampled_from(BASE62))
def test_one_wrong_letter_is_always_noticed(seed: int, at: int, letter: str) -> None:
    key = make_key(random.Random(seed))
    assert well_formed(key)
    wrong = key[:at] + letter + key[at + 1 :]
    assert well_formed(wrong) == (wrong == key)


@given(st.text())
def test_no_text_upsets_the_door(text: str) -> None:
    assert not well_formed(text)


@pytest.mark.parametrize(("plan", "credits"), [("GOLD", 0), ("PRO", -1)])
def test_an_account_that_cannot_be_meant_is_refused_whole(state: State, plan: str, credits: int) -> None:
    with pytest.raises(BadRequest):
        state.create_account("ann", plan, credits)
    with pytest.raises(BadRequest, match="there is no account"):
        state.create_key("acc_nobody", "k")
    assert state.accounts() == []


def test_rows_of_the_ledger_stay_as_they_are(state: State) -> None:
    account, _ = state.create_account("ann", credits=5)
    for change in ("UPDATE ledger SET amount = 9", "DELETE FROM ledger"):
        statement = Statement(sa.text(change))
        with pytest.raises(StoreError, match=r"stay as they are|RaiseException"):
            state.database.write(lambda tx, statement=statement: tx.run(statement))  # type: ignore[misc]
    assert state.balance(account.id) == 5
    assert state.balance("acc_nobody") == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://x", "not the address"),
        ("sqlite:///", "not the address"),
    ],
)
def test_an_address_that_is_not_served_says_so(url: str, says: str, clock: Hands) -> None:
    with pytest.raises(BadSettings, match=says):
        State.open(url, PEPPER, clock, random.Random(1))


# --- the pepper ------------------------------------------------------------------------------------------------------


def test_the_pepper_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "pepper"
    peppers: list[bytes] = []
    threads = [threading.Thread(target=lambda: peppers.append(pepper(path, accounts=False))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peppers) == 8
    assert set(peppers) == {path.read_bytes()}
    assert len(peppers[0]) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_store_of_tenants_is_its_owners_alone(tmp_path: Path) -> None:
    path, mask = tmp_path / "data" / "state.db", os.umask(0o022)
    try:
        for _ in range(2):
            State.open(f"sqlite:///{path}", PEPPER, SystemClock(), random.Random(1)).close()
            assert [each.name for each in path.parent.iterdir() if each.stat().st_mode & 0o077] == []
            path.chmod(0o644)  # as an administrator may do
    finally:
        os.umask(mask)


def test_a_pepper_that_was_cut_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "pepper").write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        pepper(tmp_path / "pepper", accounts=False)


def test_a_secret_that_was_lost_is_not_made_anew_while_there_are_accounts(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the secret of their keys, is missing"):
        pepper(tmp_path / "pepper", accounts=True)
    assert list(tmp_path.iterdir()) == []
    value = pepper(tmp_path / "pepper", accounts=False)
    assert pepper(tmp_path / "pepper", accounts=True) == value


def test_another_secret_is_recognised_until_it_is_accepted(state: State) -> None:
    first, second = b"a" * 32, b"b" * 32
    assert secret.is_own(state.database, first), "a store that remembers none takes the first"
    assert secret.is_own(state.database, first)
    assert not secret.is_own(state.database, second)
    secret.accept(state.database, second)
    assert (secret.is_own(state.database, second), secret.is_own(state.database, first)) == (True, False)


def test_the_secret_of_the_first_account_is_remembered(state: State) -> None:
    state.create_account("ann")
    assert not secret.is_own(state.database, b"b" * 32)
    assert secret.is_own(state.database, PEPPER)


# --- migrations ------------------------------------------------------------------------------------------------------


def test_the_newest_step_is_the_one_the_code_knows() -> None:
    steps = sorted((Path(migrations.__file__).parent / "versions").glob("[0-9]*.py"))
    assert steps[-1].name.startswith(schema.HEAD)


def test_the_steps_lead_to_the_tables_of_the_schema(state: State, state_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    lite = state.database.name == "sqlite"
    engine = sa.create_engine(state_url if lite else state_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        differences = compare_metadata(context, schema.metadata)
        # Comments of columns are in the schema alone, not in the database.
        assert [each for each in differences if each[0][0] != "modify_comment"] == []
        if lite:
            strict = connection.exec_driver_sql("SELECT name FROM pragma_table_list WHERE strict").scalars().all()
            assert set(strict) >= set(schema.metadata.tables)
    engine.dispose()


def test_a_database_of_another_revision_is_refused_with_the_fix(state: State, reopen: Reopen) -> None:
    newer = Statement(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    state.database.write(lambda tx: tx.run(newer))
    with pytest.raises(StoreError, match="use the release of Chainfolio that wrote it"):
        reopen()


def test_a_step_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    in_the_way = apsw.Connection(str(path))
    in_the_way.execute("CREATE TABLE addressbook (x)")
    with pytest.raises(StoreError, match="already exists"):
        open_database(f"sqlite:///{path}")
    names = {name for (name,) in in_the_way.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert names == {"addressbook"}
    in_the_way.execute("DROP TABLE addressbook")
    in_the_way.close()
    open_database(f"sqlite:///{path}").close()


def test_an_upgrade_keeps_accounts_credits_and_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    with closing(State.open(f"sqlite:///{path}", PEPPER, SystemClock(), random.Random(1))) as state:
        account, _ = state.create_account("ann", credits=42)
    steps = "ALTER TABLE accounts ADD COLUMN note TEXT; UPDATE alembic_version SET version_num = '0006'"
    monkeypatch.setattr(migrations, "script", lambda dialect, revision: steps)
    migrations.migrate_sqlite(path, "0006")
    for name, columns in (("state.db", 6), ("state.db.before-0006", 5)):
        with closing(apsw.Connection(str(tmp_path / name))) as connection:
            assert [len(row) for row in connection.execute("SELECT * FROM accounts")] == [columns]
            assert connection.execute("SELECT available FROM balances").fetchall() == [(42,)]
            assert connection.execute("SELECT account_id FROM ledger").fetchall() == [(account.id,)]


def test_a_store_of_the_first_release_gets_later_tables(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(migrations.script("sqlite", None, "0001")).fetchall()
    with closing(open_database(f"sqlite:///{path}")) as database:
        assert database.read(jobs.every) == []
        assert database.read(alerts.rules) == []
        assert database.read(lambda tx: saved_queries.every(tx, "acc_1")) == []
    assert (tmp_path / f"state.db.before-{schema.HEAD}").exists()


def test_a_begin_keeps_the_result_before_it_and_an_end_replaces_it(state: State) -> None:
    first, started = jobs.JobRun("prices", "a", 10, 30, 20, "away"), jobs.JobRun("prices", "a", 40, None, None, "")
    for run in (jobs.JobRun("check", "", 5, None, None, ""), first, started):
        state.database.write(lambda tx, run=run: jobs.store(tx, run))  # type: ignore[misc]
    stored = state.database.read(jobs.every)
    assert stored == [jobs.JobRun("check", "", 5, None, None, ""), jobs.JobRun("prices", "a", 40, 30, 20, "away")]
    assert [each.is_running for each in stored] == [True, True]
    last = jobs.JobRun("prices", "a", 40, 41, 1, "")
    state.database.write(lambda tx: jobs.store(tx, last))
    assert state.database.read(jobs.every)[1] == last


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_several_that_open_a_new_store_at_once_all_find_it_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    use = "import sys; from chainfolio.storage.state import open_database; open_database(sys.argv[1]).close()"
    started = [subprocess.Popen([sys.executable, "-c", use, url], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(4)]
    assert [each.communicate()[1].decode() for each in started] == [""] * 4
    open_database(url).close()


# --- who calls, on the event loop ------------------------------------------------------------------------------------


async def test_what_is_known_of_a_key_ends_with_the_key(state: State, reopen: Reopen, clock: Hands) -> None:
    account, token = state.create_account("ann", grants=["portfolio"])
    short = state.create_key(account.id, "short", expires=9_000_000)[1]
    assert [caller is not None for caller in (await state.caller(token), await state.caller(short))] == [True, True]
    clock.us = 9_000_000
    assert [caller is not None for caller in (await state.caller(token), await state.caller(short))] == [True, False]
    elsewhere = reopen()
    elsewhere.database.write(lambda tx: accounts.grant(tx, account.id, "enterprise", clock.us))
    elsewhere.database.write(lambda tx: accounts.set_plan(tx, account.id, "PRO", None, clock.us))
    caller = await renewed(state, token)
    assert caller is not None
    assert (caller.plan, set(caller.grants)) == ("PRO", {"portfolio", "enterprise"})
    assert await renewed(state, token) == caller
    (first,) = (key for key in state.keys(account.id) if key.name == "first")
    elsewhere.revoke_key(first.id)
    assert await renewed(state, token) is None
    assert await state.caller("nonsense") is None


async def renewed(state: State, token: str) -> Principal | None:
    """Return the caller as the pipeline gets it: a caller that the meter calls stale is read again."""
    caller = await state.caller(token)
    assert caller is not None
    admitted = await state.meter.admit(
        AdmissionRequest(caller.account_id, caller.key_id, "all", 100, 0, as_of=caller.as_of)
    )
    if not admitted.is_stale:
        return caller
    state.clear_cached_keys()
    return await state.caller(token)
