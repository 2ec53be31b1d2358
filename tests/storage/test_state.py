"""Accounts and keys: a key opens exactly what it was made for, as long as it was made for, and is kept nowhere."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.errors import BadRequest, BadSettings, StoreError
from storage import migrations, schema
from storage.state import BASE62, Account, Key, State, make_key, pepper, well_formed

PEPPER = bytes(range(32))


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
def state(tmp_path: Path, clock: Hands) -> Iterator[State]:
    opened = State.open(f"sqlite:///{tmp_path}/state.db", PEPPER, clock, random.Random(1))
    yield opened
    opened.close()


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
    made = []
    for name, grants in (("ann", ["portfolio"]), ("bob", []), ("cho", ["enterprise", "portfolio"])):
        made.append(state.create_account(name, credits=len(name) * 7, grants=grants))
        clock.us += 1
    assert state.accounts() == [account for account, _ in made]
    for account, token in made:
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


def test_a_key_of_another_pepper_is_unknown(state: State, tmp_path: Path, clock: Hands) -> None:
    _, token = state.create_account("ann")
    other = State.open(f"sqlite:///{tmp_path}/state.db", b"x" * 32, clock, random.Random(2))
    assert other.authenticate(token) is None
    other.close()


def test_the_key_itself_is_kept_nowhere(state: State, tmp_path: Path) -> None:
    _, token = state.create_account("ann")
    state.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert token[8:38].encode() not in kept
    assert token[-6:].encode() not in kept


def test_a_malformed_key_costs_no_look_up(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = state.create_account("ann")
    monkeypatch.setattr(state, "_read", lambda *_: pytest.fail("asked the database"))
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
        with pytest.raises(sqlite3.IntegrityError, match="stay as they are"):
            state._writer.execute(change)
    assert state.balance(account.id) == 5
    assert state.balance("acc_nobody") == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://localhost/x", "not yet served by this release"),
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
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(pepper(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {path.read_bytes()}
    assert len(found[0]) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_pepper_that_was_cut_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "pepper").write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        pepper(tmp_path / "pepper")


# --- migrations ------------------------------------------------------------------------------------------------------


def test_the_newest_step_is_the_one_the_code_knows() -> None:
    steps = sorted((Path(migrations.__file__).parent / "versions").glob("[0-9]*.py"))
    assert steps[-1].name.startswith(schema.HEAD)


def test_the_steps_lead_to_the_tables_of_the_schema(state: State, tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = sa.create_engine(f"sqlite:///{tmp_path}/state.db", poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, schema.metadata) == []
        strict = connection.exec_driver_sql("SELECT name FROM pragma_table_list WHERE strict").scalars().all()
    engine.dispose()
    assert set(strict) >= set(schema.metadata.tables)


def test_a_database_of_a_newer_release_is_left_alone(state: State, tmp_path: Path) -> None:
    state._writer.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="upgrade Chainfolio"):
        migrations.migrate(tmp_path / "state.db", schema.HEAD)


def test_a_step_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE ledger (x)")
    connection.close()
    with pytest.raises(StoreError, match="already exists"):
        migrations.migrate(path, schema.HEAD)
    with sqlite3.connect(path) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        connection.execute("DROP TABLE ledger")
    connection.close()
    assert names <= {"ledger", "alembic_version"}
    migrations.migrate(path, schema.HEAD)


def test_an_upgrade_keeps_a_copy_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    migrations.migrate(path, schema.HEAD)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    connection.close()
    with pytest.raises(Exception, match="0000"):  # whatever Alembic says of a step that never was
        migrations.migrate(path, schema.HEAD)
    assert (tmp_path / "state.db.before-0001").stat().st_size > 0


def test_processes_that_open_a_new_store_at_once_all_find_it_whole(tmp_path: Path, clock: Hands) -> None:
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            opened = State.open(f"sqlite:///{tmp_path}/state.db", PEPPER, clock, random.Random(number))
            opened.create_account(str(number))
            opened.close()
        except BaseException as error:  # carried over to the test, which a thread cannot fail
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    opened = State.open(f"sqlite:///{tmp_path}/state.db", PEPPER, clock, random.Random(9))
    assert len(opened.accounts()) == 6
    opened.close()
