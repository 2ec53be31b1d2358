"""Accounts and keys made by commands are those that the API's state store knows."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chainfolio.cli.state_store import open_state
from chainfolio.settings_file import load
from chainfolio.storage.state.accounts import Account, Principal
from tests.cli.conftest import Run


def principal_of(key: str) -> Principal | None:
    """Return the principal that the API authenticates by a key."""
    state = open_state(load(None, {}))
    try:
        return state.authenticate(key)
    finally:
        state.close()


def stored_account(account: str) -> Account | None:
    state = open_state(load(None, {}))
    try:
        return state.account(account)
    finally:
        state.close()


def create_account(run: Run, *options: str) -> tuple[str, str]:
    document = run("account", "create", "--name", "Ada", *options, "--json").json
    assert list(document) == ["accountId", "apiKey"]
    return document["accountId"], document["apiKey"]


def test_the_key_of_a_new_account_opens_the_api_with_its_plan_and_grants(run: Run) -> None:
    account, key = create_account(
        run,
        "--plan",
        "PRO",
        "--grant",
        "portfolio",
        "--grant",
        "at-block",
        "--credits",
        "500",
        "--expires",
        "2027-01-01T00:00:00Z",
    )
    caller = principal_of(key)
    assert caller is not None
    assert caller.account_id == account
    assert caller.plan == "PRO"
    assert caller.grants == {"portfolio", "at-block"}
    assert caller.plan_expires_us == int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def test_accounts_are_listed_and_shown_without_their_keys(run: Run) -> None:
    account, key = create_account(run, "--credits", "500", "--grant", "portfolio")
    listing = run("account", "list", "--json")
    assert listing.json == [
        {"accountId": account, "name": "Ada", "plan": "FREE", "grants": ["portfolio"], "credits": 500}
    ]
    account_output = run("account", "show", account)
    assert account_output.json["credits"] == 500
    assert account_output.json["grants"] == ["portfolio"]
    assert [each["ends"] for each in account_output.json["keys"]] == [key[-4:]]
    table = run("account", "list")
    for ran in (listing, account_output, table):
        assert ran.code == 0
        assert key not in ran.out
        assert account in ran.out


def test_people_are_told_that_a_key_is_shown_once(run: Run) -> None:
    ran = run("account", "create", "--name", "Ada")
    assert "cf_live_" in ran.out
    assert "shown this once" in ran.out


def test_a_key_is_rotated_with_both_valid_in_between(run: Run) -> None:
    account, old = create_account(run)
    fresh = run("key", "create", "--account", account, "--name", "second", "--json").json
    assert principal_of(old) is not None
    assert principal_of(fresh["apiKey"]) is not None
    first = next(
        each["keyId"]
        for each in run("key", "list", "--account", account, "--json").json
        if each["keyId"] != fresh["keyId"]
    )
    assert run("key", "revoke", first, "--json").json == {"revoked": first}
    assert principal_of(old) is None
    assert principal_of(fresh["apiKey"]) is not None
    keys = run("key", "list", "--account", account, "--json").json
    assert {each["keyId"]: each["state"] for each in keys} == {first: "revoked", fresh["keyId"]: "valid"}


def test_a_key_ends_at_its_moment(run: Run) -> None:
    account, _ = create_account(run)
    over = run("key", "create", "--account", account, "--name", "old", "--expires", "2001-01-01", "--json").json
    assert principal_of(over["apiKey"]) is None


def test_a_key_is_revoked_once(run: Run) -> None:
    account, _ = create_account(run)
    (key,) = run("key", "list", "--account", account, "--json").json
    assert run("key", "revoke", key["keyId"]).code == 0
    repeated = run("key", "revoke", key["keyId"], "--json")
    assert (repeated.code, repeated.error["field"]) == (2, "key")


@pytest.mark.parametrize(
    "command",
    [
        ("account", "show", "acc_x"),
        ("key", "list", "--account", "acc_x"),
        ("key", "create", "--account", "acc_x", "--name", "n"),
    ],
)
def test_an_account_that_is_not_there_is_refused(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--json")
    assert (ran.code, ran.error["remedy"]) == (2, "chainfolio account list")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--name", ""), "name"),
        (("--name", " \t "), "name"),
        (("--name", "a", "--credits", "-1"), "credits"),
        (("--name", "a", "--credits", str(2**53)), "credits"),
        (("--name", "a", "--credits", str(2**64)), "credits"),
        (("--name", "a", "--expires", "tomorrow"), "expires"),
        (("--name", "a", "--expires", "2027-13-01"), "expires"),
    ],
)
def test_an_account_that_cannot_be_meant_is_not_made(
    run: Run, here: Path, options: tuple[str, ...], field: str
) -> None:
    ran = run("account", "create", *options, "--json")
    assert (ran.code, ran.error["field"]) == (2, field)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("option", [("--plan", "GOLD"), ("--grant", "everything"), ("--credits", "1e3")])
def test_plans_and_grants_are_those_there_are(run: Run, option: tuple[str, str]) -> None:
    ran = run("account", "create", "--name", "a", *option)
    assert ran.code == 2
    assert "invalid" in ran.err


def test_who_has_no_credits_is_told_how_to_get_some(run: Run) -> None:
    output = run("account", "create", "--name", "me").out
    command = re.search(r"It has no credits: chainfolio (account credit acc_\S+ 1000)", output)
    assert command
    assert run(*command[1].split()).out.endswith(" has 1,000 credits\n")
    assert "no credits" not in run("account", "create", "--name", "rich", "--credits", "5").out


def test_the_largest_number_of_credits_is_kept(run: Run) -> None:
    account, _ = create_account(run, "--credits", str(2**53 - 1))
    assert run("account", "show", account).json["credits"] == 2**53 - 1


def test_a_name_is_kept_as_it_is_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Ada'); DROP TABLE accounts;-- [red]ü🦀"
    account = run("account", "create", "--name", name, "--json").json["accountId"]
    stored = stored_account(account)
    assert stored is not None
    assert stored.name == name
    monkeypatch.setenv("COLUMNS", "120")  # where all of it is on one line
    assert name in run("account", "list").out


def test_another_state_store_than_this_release_has_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAINFOLIO_STATE_URL", "mysql://me:s3cr3t@host/db")
    ran = run("account", "list")
    assert ran.code == 2
    assert "sqlite:///" in ran.err
    assert "s3cr3t" not in ran.err


def test_a_server_that_is_not_there_is_named_without_its_password(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAINFOLIO_STATE_URL", "postgresql://me:s3cr3t@127.0.0.1:1/db")
    ran = run("account", "list")
    assert ran.code == 5
    assert "check that PostgreSQL runs" in ran.err
    assert "s3cr3t" not in ran.err


def test_whatever_a_command_makes_is_its_owners_alone(run: Run, here: Path) -> None:
    mask = os.umask(0o022)
    try:
        assert run("account", "create", "--name", "me", "--json").code == 0
        files = [path for path in here.rglob("*") if path.name != "chainfolio.toml"]
        assert {"state.db", "pepper"} <= {path.name for path in files}
        assert [path.name for path in files if path.stat().st_mode & 0o077] == []
    finally:
        os.umask(mask)
