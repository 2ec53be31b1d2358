"""`chainfolio alert`: rules of an account, the secrets of their webhooks, and what was delivered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from chainfolio.alerts.events import event
from chainfolio.cli import alert
from chainfolio.cli.state_store import open_state
from chainfolio.settings_file import load
from chainfolio.storage.state import alerts, deliveries
from chainfolio.storage.state.database import Statement, Transaction
from tests.cli.conftest import Run


@pytest.fixture
def account(run: Run) -> str:
    return str(run("account", "create", "--name", "Ada", "--json").json["accountId"])


def test_a_rule_is_added_tested_listed_and_removed(run: Run, account: str, tmp_path: Path) -> None:
    of, file = ("--account", account), tmp_path / "events"
    added = run("alert", "add", "credits", "--under", "9", "--file", str(file), *of)
    [word, rule, *_] = added.out.split()
    assert (added.code, word, "secret" in added.out) == (0, "rule", False)
    tested = run("alert", "test", rule.rstrip(":"), *of)
    assert (tested.code, "delivered" in tested.out) == (0, True)
    [delivered] = [json.loads(line) for line in file.read_text().splitlines()]
    assert delivered["type"] == "event.test"
    [listed] = run("alert", "list", *of, "--json").json
    assert (listed["id"], listed["kind"], listed["bound"]) == (rule.rstrip(":"), "credits", "under 9")
    assert rule.rstrip(":") in run("alert", "list", *of).out
    [stored] = run("alert", "deliveries", *of, "--json").json
    assert (stored["type"], stored["state"], stored["attempts"]) == ("event.test", "done", 1)
    assert stored["id"] in run("alert", "deliveries", *of).out
    assert run("alert", "deliveries", *of, "--state", "dead", "--json").json == []
    assert "is removed" in run("alert", "remove", rule.rstrip(":"), *of).out
    assert run("alert", "list", *of, "--json").json == []


def test_an_event_is_replayed_by_its_id(run: Run, account: str, tmp_path: Path) -> None:
    of, file = ("--account", account), tmp_path / "events"
    rule = run("alert", "add", "credits", "--under", "9", "--file", str(file), *of, "--json").json["id"]
    assert run("alert", "test", rule, *of, "--json").json["state"] == "done"
    [stored] = run("alert", "deliveries", *of, "--json").json
    assert "1 to deliver again" in run("alert", "replay", stored["id"], *of).out
    assert run("alert", "run", "--json").json == {"attempts": 2, "events": 1}, "the account has less than 9 credits"
    assert [json.loads(line)["type"] for line in file.read_text().splitlines()].count("event.test") == 2
    assert run("alert", "replay", "no such event", *of).code == 9


def test_a_test_event_that_no_file_takes_is_not_delivered(run: Run, account: str, tmp_path: Path) -> None:
    of = ("--account", account)
    rule = run("alert", "add", "credits", "--under", "9", "--file", str(tmp_path), *of, "--json").json["id"]
    tested = run("alert", "test", rule, *of)
    assert (tested.code, "not delivered yet" in tested.out) == (1, True)


def test_a_webhook_gets_a_second_secret_while_the_first_is_valid(run: Run, account: str) -> None:
    of = ("--account", account)
    added = run("alert", "add", "credits", "--under", "9", "--webhook", "https://hooks.example/a", *of, "--json").json
    [first] = added["secrets"]
    second, still = run("alert", "rotate", added["id"], "--overlap-hours", "1", *of).out.split()
    assert (still, second == first) == (first, False)
    assert run("alert", "list", *of, "--json").json[0]["secrets"] == [second, first]
    assert run("alert", "rotate", added["id"], "--overlap-hours", "721", *of).code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("deliveries", "--limit", "0"), 2), (("replay",), 2), (("replay", "--dead", "evt"), 2), (("remove", "alr"), 9)],
    ids=["no line", "no event", "named and dead", "no rule"],
)
def test_wrong_options_are_refused(run: Run, account: str, arguments: tuple[str, ...], code: int) -> None:
    assert run("alert", *arguments, "--account", account).code == code


def test_only_a_webhook_gets_another_secret(run: Run, account: str, tmp_path: Path) -> None:
    file = str(tmp_path / "events")
    rule = run("alert", "add", "credits", "--under", "9", "--file", file, "--account", account, "--json").json["id"]
    refused = run("alert", "rotate", rule, "--account", account)
    assert (refused.code, "its target is a file, which has no secret" in refused.err) == (2, True)
    state = open_state(load(None, {}))
    try:
        target = state.database.read(lambda tx: alerts.target(tx, alerts.rule(tx, account, rule).target_id))
    finally:
        state.close()
    assert target is not None
    assert len(target.valid_secrets(0)) == 1, "an error changes nothing"


def test_all_dead_events_are_replayed(run: Run, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "events")
    rule = run("alert", "add", "credits", "--under", "9", "--file", file, "--account", account, "--json").json["id"]

    def add_dead(tx: Transaction) -> None:
        of = alerts.rule(tx, account, rule)
        deliveries.add(tx, [event(of, str(number), 1, {}) for number in range(7)], 1)
        tx.run(Statement(sa.text("UPDATE alert_deliveries SET state = 'dead'")))

    state = open_state(load(None, {}))
    try:
        state.database.write(add_dead)
    finally:
        state.close()
    monkeypatch.setattr(alert, "MAX_LISTED", 3)
    monkeypatch.setattr(alert, "REPLAYED_AT_ONCE", 2, raising=False)
    assert run("alert", "replay", "--dead", "--account", account, "--json").json == {"replayed": 7}
    assert run("alert", "replay", "--dead", "--account", account, "--json").json == {"replayed": 0}
