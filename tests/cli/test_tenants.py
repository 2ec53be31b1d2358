"""Commands of the operator change accounts, report it, and write a line of the audit trail."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from chainfolio.cli.common import moment_us
from chainfolio.cli.state_store import open_state
from chainfolio.settings import Quotas
from chainfolio.settings_file import load
from chainfolio.storage.state import address_book
from tests.cli.conftest import ALICE, Run

END = "2099-01-01T00:00:00.000Z"
HOLDINGS = '[{"chain": "ethereum", "contract": "native", "amount": "1.5"}, {"symbol": "EUR", "amount": "10"}]'


def create_account(run: Run, *options: str) -> str:
    account: str = run("account", "create", "--name", "Ada", *options, "--json").json["accountId"]
    return account


@pytest.fixture
def ada(run: Run) -> str:
    return create_account(run, "--credits", "500")


def actions(run: Run, account: str) -> list[str]:
    return [note["action"] for note in run("account", "audit", account, "--json").json]


def in_book(account: str, *addresses: str) -> None:
    """Add addresses to an account's address book, as a request would."""
    state = open_state(load(None, {}))
    state.database.write(lambda tx: address_book.add(tx, account, dict.fromkeys(addresses, "x"), Quotas(), 1))
    state.close()


def test_credits_are_given_and_taken_with_a_memo(run: Run, ada: str) -> None:
    assert run("account", "credit", ada, "100", "--memo", "gift", "--json").json == {"accountId": ada, "credits": 600}
    assert run("account", "credit", ada, "-200").out == f"{ada} has 400 credits\n"
    rows = run("account", "ledger", ada, "--json").json
    assert [(row["kind"], row["amount"], row["memo"]) for row in rows] == [
        ("adjust", 200, ""),
        ("grant", 100, "gift"),
        ("grant", 500, "first credits"),
    ]
    assert len(run("account", "ledger", ada, "--limit", "1", "--json").json) == 1
    assert "gift" in run("account", "ledger", ada).out
    assert run("account", "list", "--json").json[0]["credits"] == 400
    for amount in ("0", "-401", str(2**53)):
        ran = run("account", "credit", ada, amount, "--json")
        assert (ran.code, ran.error["field"]) == (2, "credits")
    assert run("account", "show", ada).json["credits"] == 400


def test_grants_come_and_go(run: Run, ada: str) -> None:
    for _ in "12":
        assert run("account", "grant", ada, "portfolio", "--json").json["grants"] == ["portfolio"]
    assert run("account", "grant", ada, "enterprise").out == f"{ada}: enterprise, portfolio\n"
    for _ in "12":
        assert run("account", "revoke-grant", ada, "portfolio", "--json").json["grants"] == ["enterprise"]
    assert actions(run, ada)[-3:] == ["granted", "granted", "grant revoked"]


def test_plans_change_and_may_lapse(run: Run, ada: str) -> None:
    ran = run("account", "plan", ada, "--plan", "PRO", "--expires", END, "--json")
    assert ran.json == {"accountId": ada, "plan": "PRO", "expiresAt": END}
    assert run("account", "plan", ada, "--plan", "LITE").out == f"{ada} is on LITE\n"
    assert run("account", "show", ada).json["expiresAt"] is None
    assert run("account", "plan", ada, "--plan", "FREE", "--expires", END, "--json").error["field"] == "expires"
    assert actions(run, ada).count("plan changed") == 2


def test_quotas_are_shown_raised_and_put_back(run: Run, here: Path, ada: str) -> None:
    (here / "chainfolio.toml").write_text("[quotas]\nbundles = 7\n")
    assert run("account", "quota", ada, "--json").json == {
        "accountId": ada,
        "addressbook": 50,
        "bundles": 7,
        "bundle-size": 10,
    }
    assert (
        run("account", "quota", ada, "--addressbook", "60", "--bundle-size", "20", "--json").json["addressbook"] == 60
    )
    assert run("account", "show", ada).json["quotas"] == {"addressbook": 60, "bundles": 7, "bundle-size": 20}
    assert run("account", "quota", ada, "--default", "addressbook").out == (
        f"{ada}: addressbook 50, bundles 7, bundle-size 20\n"
    )
    for wrong in (("--bundles", "-1"), ("--bundles", "1", "--default", "bundles")):
        assert run("account", "quota", ada, *wrong, "--json").error["field"] == "quota"
    assert actions(run, ada).count("quota changed") == 3


def test_delegations_are_given_and_withdrawn(run: Run, ada: str) -> None:
    eve = create_account(run)
    for _ in "12":
        assert run("account", "delegate", ada, "--to", eve, "--json").json["delegates"] == [eve]
    assert run("account", "show", ada).json["delegates"] == [eve]
    withdrawn = run("account", "delegate", ada, "--to", eve, "--withdraw")
    assert withdrawn.out == f"{ada}: accounts that act for it: none\n"
    assert run("account", "delegate", ada, "--to", ada, "--json").code == 2
    assert actions(run, ada)[-2:] == ["delegated", "delegation ended"]


def test_the_plan_of_an_address(run: Run, ada: str) -> None:
    in_book(ada, ALICE)
    plan = ("addressbook", "plan", ALICE.upper().replace("X", "x"), "--account", ada, "--plan")
    paid_entry = run(*plan, "PRO", "--expires", END, "--owner-authorized", "--json").json
    assert paid_entry == {
        "address": ALICE,
        "label": "x",
        "plan": "PRO",
        "expiresAt": END,
        "isPaid": True,
        "ownerAuthorized": True,
    }
    assert run("addressbook", "list", "--account", ada, "--json").json == [paid_entry]
    assert ALICE in run("addressbook", "list", "--account", ada).out
    lapsed = run(*plan, "LITE", "--expires", "2001-01-01", "--json").json
    assert (lapsed["isPaid"], lapsed["ownerAuthorized"]) == (False, True)
    assert run(*plan, "FREE", "--no-owner-authorized").out == f"{ALICE} is on FREE\n"
    for wrong in (("PRO",), ("FREE", "--expires", END)):
        ran = run(*plan, *wrong, "--json")
        assert (ran.code, ran.error["field"]) == (2, "expires")
    ran = run("addressbook", "plan", "0x" + "1" * 40, "--account", ada, "--plan", "FREE", "--json")
    assert (ran.code, ran.error["code"]) == (2, "ADDRESSBOOK_ENTRY_NOT_FOUND")
    assert run("addressbook", "plan", "0x12", "--account", ada, "--plan", "FREE", "--json").error["field"] == "address"
    assert actions(run, ada).count("address plan changed") == 3


def test_wallets_are_added_to_an_address_book(run: Run, ada: str) -> None:
    add = ("addressbook", "add", "--account", ada)
    (entry,) = run(*add, ALICE, "--label", " Treasury ", "--json").json
    assert entry == {
        "address": ALICE,
        "label": "Treasury",
        "plan": "FREE",
        "expiresAt": None,
        "isPaid": False,
        "ownerAuthorized": False,
    }
    second_address = "0x" + "1" * 40
    assert run(*add, ALICE, second_address).out == "".join(
        f"{address} is in the address book, on FREE\n" for address in (ALICE, second_address)
    )
    entries = run("addressbook", "list", "--account", ada, "--json").json
    assert [(each["address"], each["label"]) for each in entries] == [(ALICE, "Treasury"), (second_address, "")], (
        "kept as it was"
    )
    assert actions(run, ada).count("addresses added") == 2


def test_wallets_that_do_not_fit_an_address_book_are_refused(run: Run, ada: str) -> None:
    add = ("addressbook", "add", "--account", ada, "--json")
    assert run(*add, "0x12").error["field"] == "address"
    assert run(*add, ALICE, "--label", "x" * 1000).error["field"] == "label"
    assert run(*add, ALICE, "0x" + "1" * 40, "--label", "two").error["field"] == "label"
    assert run("account", "quota", ada, "--addressbook", "1").code == 0
    ran = run(*add, ALICE, "0x" + "1" * 40)
    assert (ran.code, ran.error["code"]) == (2, "ADDRESSBOOK_QUOTA_REACHED")
    assert run("addressbook", "list", "--account", ada, "--json").json == [], "all or none"


def test_a_subscription_lasts_a_year_and_is_not_doubled(run: Run, ada: str) -> None:
    add = ("subscription", "add", ALICE, "--account", ada)
    document = run(*add, "--description", "x", "--json").json
    assert (document["address"], document["description"]) == (ALICE, "x")
    days = (moment_us(document["expiresAt"]) - moment_us(document["beganAt"])) / 86_400_000_000
    assert days in (365, 366)
    ran = run(*add, "--json")
    assert (ran.code, ran.error["code"]) == (2, "ALREADY_SUBSCRIBED")
    assert run("subscription", "list", "--account", ada, "--json").json == [document]
    assert ALICE in run("subscription", "list", "--account", ada).out
    assert actions(run, ada)[-1] == "subscribed"


def test_virtual_users_are_added_listed_and_removed(run: Run, here: Path, ada: str) -> None:
    (here / "holdings.json").write_text(HOLDINGS)
    (here / "group.json").write_text(f'{{"addresses": ["{ALICE}"]}}')
    add = ("virtual-user", "add", "--account", ada, "--label", " Cold  ")
    first = run(*add, "--type", "BALANCE", "--file", "holdings.json", "--json").json
    assert first == {"id": first["id"], "address": f"virtual:{first['id']}", "type": "BALANCE", "label": "Cold"}
    assert uuid.UUID(first["id"]).version == 4
    assert "GROUP" in run(*add, "--type", "GROUP", "--file", "group.json").out
    assert [each["type"] for each in run("virtual-user", "list", "--account", ada, "--json").json] == [
        "BALANCE",
        "GROUP",
    ]
    assert "Cold" in run("virtual-user", "list", "--account", ada).out
    for file, field in (("group.json", "holdings"), ("nothing.json", "file")):
        ran = run(*add, "--type", "CEX", "--file", file, "--json")
        assert (ran.code, ran.error["field"]) == (2, field)
    remove = ("virtual-user", "remove", first["address"], "--account")
    assert run(*remove, create_account(run), "--json").code == 2
    assert run(*remove, ada, "--json").json == {"removed": first["address"]}
    assert run(*remove, ada, "--json").error["remedy"] == f"chainfolio virtual-user list --account {ada}"
    assert actions(run, ada)[-3:] == ["virtual user added", "virtual user added", "virtual user removed"]


def test_the_audit_trail_names_who_did_what(run: Run, ada: str) -> None:
    run("account", "credit", ada, "5", "--memo", "gift")
    last = run("account", "audit", ada, "--json").json[-1]
    assert (last["actor"], last["action"]) == ("operator", "credits changed")
    assert last["detail"] == {"amount": 5, "memo": "gift"}
    assert "memo=gift" in run("account", "audit", ada).out


@pytest.mark.parametrize(
    "command",
    [
        ("account", "credit", "acc_x", "5"),
        ("account", "grant", "acc_x", "portfolio"),
        ("account", "revoke-grant", "acc_x", "portfolio"),
        ("account", "plan", "acc_x", "--plan", "PRO"),
        ("account", "quota", "acc_x"),
        ("account", "quota", "acc_x", "--bundles", "5"),
        ("account", "delegate", "acc_x", "--to", "acc_y"),
        ("account", "audit", "acc_x"),
        ("account", "ledger", "acc_x"),
        ("addressbook", "add", ALICE, "--account", "acc_x"),
        ("addressbook", "plan", ALICE, "--account", "acc_x", "--plan", "FREE"),
        ("addressbook", "list", "--account", "acc_x"),
        ("subscription", "add", ALICE, "--account", "acc_x"),
        ("subscription", "list", "--account", "acc_x"),
        ("virtual-user", "list", "--account", "acc_x"),
        ("virtual-user", "add", "--account", "acc_x", "--type", "CEX", "--label", "x", "--file", "empty.json"),
    ],
)
def test_an_account_that_is_not_there_is_refused(run: Run, here: Path, command: tuple[str, ...]) -> None:
    (here / "empty.json").write_text("[]")
    ran = run(*command, "--json")
    assert (ran.code, ran.error["remedy"]) == (2, "chainfolio account list")
