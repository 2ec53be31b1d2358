"""The whole text of each refusal of the state store, and each entry of its audit log."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from chainfolio.contracts import VirtualUser
from chainfolio.errors import BadSettings, ChainfolioError, StoreError
from chainfolio.settings import Quotas
from chainfolio.storage.state import (
    State,
    accounts,
    address_book,
    alerts,
    audit,
    bundles,
    delegations,
    deliveries,
    ledger,
    quotas,
    sessions,
    subscriptions,
    virtual_users,
)
from chainfolio.storage.state.credentials import LOST, pepper
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.postgres import PostgresDatabase
from chainfolio.storage.state.refusals import Refusal
from tests.storage.tenants import NOW_US, wallet
from tests.storage.test_state import PEPPER, Hands

Tx = Transaction
A, B, C, FAR = (wallet(number) for number in (1, 2, 3, 9))
QUOTAS = Quotas(addressbook=4, addressbook_paid=6, bundles=3, bundle_size=2)
MOST = 2**53 - 1


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    folder = tmp_path_factory.mktemp("texts")
    opened = State.open(f"sqlite:///{folder}/state.db", PEPPER, Hands(), random.Random(1))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ann(state: State) -> str:
    """An account with three addresses, the bundles `pair` (A, B) and `one` (C), a rule and an event."""
    id = state.create_account("ann", credits=100)[0].id

    def fill(tx: Tx) -> None:
        address_book.add(tx, id, {A: "a", B: "b", C: "c"}, QUOTAS, NOW_US)
        bundles.create(tx, id, "b1", "pair", [A, B], QUOTAS)
        bundles.create(tx, id, "b2", "one", [C], QUOTAS)
        alerts.shared_target(tx, alerts.Target("tgt_1", id, "file", "/tmp/alerts"))
        alerts.add_rule(tx, alerts.Rule("rul_1", id, "balance", "s", "1", "tgt_1", "", 5), 1)
        deliveries.add(tx, [deliveries.Event("evt_1", id, "tgt_1", "rul_1", "test", b"{}")], NOW_US)

    state.database.write(fill)
    return id


def _removed_target(tx: Tx, id: str) -> None:
    alerts.remove_rule(tx, id, "rul_1")
    deliveries.replay(tx, id, "evt_1", NOW_US)


def _nine_secrets(tx: Tx, id: str) -> None:
    for _ in range(9):
        alerts.rotate(tx, id, "tgt_1", 10, NOW_US)


def _owned(tx: Tx, id: str) -> None:
    address_book.set_plan(tx, id, A, "FREE", None, NOW_US, owner_authorized=True)
    address_book.remove(tx, id, A, NOW_US)


def _remove_paid_entry(tx: Tx, id: str) -> None:
    address_book.set_plan(tx, id, A, "PRO", NOW_US + 1, NOW_US)
    address_book.remove(tx, id, A, NOW_US)


def _twin(tx: Tx, id: str) -> None:
    bundles.create(tx, id, "b3", "alone", [A], QUOTAS)
    address_book.remove(tx, id, B, NOW_US)


def _subscribed_before(tx: Tx, id: str) -> None:
    subscriptions.add(tx, id, {C: "", A: ""}, NOW_US)
    subscriptions.add(tx, id, {B: "", C: "", A: ""}, NOW_US)


def _four_bundles(tx: Tx, id: str) -> None:
    for number in "34":
        bundles.create(tx, id, f"b{number}", number, [A, C][: int(number) - 2], QUOTAS)


def _book(tx: Tx, id: str, count: int) -> None:
    address_book.add(tx, id, {wallet(50 + number): "" for number in range(count)}, QUOTAS, NOW_US)


def _paid_book(tx: Tx, id: str, until_us: int | None, count: int) -> None:
    accounts.set_plan(tx, id, "LITE", until_us, NOW_US)
    _book(tx, id, count)


def _document(type: str, text: str) -> Callable[[Tx, str], object]:
    return lambda tx, id: virtual_users.add(tx, id, "v", type, "label", text.encode(), NOW_US)


EITHER = "a holding has chain and contract, or symbol and priceUsd"
CEX = ' (for example [{"symbol": "EUR", "amount": "10", "priceUsd": "1.08"}])'
BALANCE = ' (for example [{"chain": "ethereum", "contract": "native", "amount": "1.5"}])'
GROUP = ' (for example {"addresses": ["0x…"]})'
UNKNOWN = "not an address of any kind known here"
FORMS = "EVM 0x + 40 hex digits, Solana base58, Tron T…, Starknet 0x + 64 hex digits"
NO_ADDRESS = f"holdings: '0x12' is {UNKNOWN}"
NO_ACCOUNT = "account: there is no account acc_x (chainfolio account list)"
LAPSES = " (--expires 2027-01-01T00:00:00Z with LITE or PRO, none with FREE)"
TEXTS: dict[str, Callable[[Tx, str], object]] = {
    # accounts and quotas
    "plan: `GOLD` is no plan (one of FREE, LITE, PRO)": lambda tx, id: accounts.validated_plan("GOLD"),
    "grant: `b` is no grant (one of portfolio, at-block, enterprise, sql)": lambda tx, id: accounts.validated_grants(
        "cb"
    ),
    NO_ACCOUNT: lambda tx, id: accounts.existing(tx, "acc_x"),
    "quota: `cats` is no quota (one of addressbook, bundles, bundle-size)": lambda tx, id: quotas.override(
        tx, id, "cats", 1, NOW_US
    ),
    "quota: 0 to 1,000,000": lambda tx, id: quotas.override(tx, id, "bundles", 1_000_001, NOW_US),
    "delegate: an account acts for itself already": lambda tx, id: delegations.delegate(tx, id, id, NOW_US),
    "no account of that id has delegated to yours": lambda tx, id: delegations.acting_for(tx, id, "acc_x"),
    # credits
    "credits: 1 to 9,007,199,254,740,991, or that much below zero to take them back": lambda tx, id: ledger.credit(
        tx, id, 0, NOW_US, ""
    ),
    "credits: the account has 1,100 that are not held by running calls": lambda tx, id: (
        ledger.credit(tx, id, 1_000, NOW_US, ""),
        ledger.credit(tx, id, -1_101, NOW_US, ""),
    ),
    "credits: an account holds at most 9,007,199,254,740,991": lambda tx, id: ledger.credit(tx, id, MOST, NOW_US, ""),
    "100 credits are there": lambda tx, id: ledger.check_affords(tx, ledger.Bill(id, 101, NOW_US, "")),
    # the address book
    "this address is not in the address book": lambda tx, id: address_book.entry(tx, id, FAR),
    "the address book holds 3 of at most 4 entries; 2 more do not fit": lambda tx, id: _book(tx, id, 2),
    "the address book holds 3 of at most 6 entries; 4 more do not fit": lambda tx, id: _paid_book(tx, id, None, 4),
    f"{A} is given more than once": lambda tx, id: address_book.distinct([A, B, A.upper().replace("X", "x")]),
    f"'0x12' is {UNKNOWN} ({FORMS})": lambda tx, id: address_book.canonical("0x12"),
    "this address is on the paid plan PRO": _remove_paid_entry,
    "this address was authorized by the wallet's owner": _owned,
    f"expires: FREE has no end{LAPSES}": lambda tx, id: address_book.set_plan(tx, id, A, "FREE", 1, NOW_US),
    f"expires: LITE needs a moment at which it lapses{LAPSES}": lambda tx, id: address_book.set_plan(
        tx, id, A, "LITE", None, NOW_US
    ),
    # bundles
    "there is no bundle of that id": lambda tx, id: bundles.find(tx, id, "b9"),
    "the account has 3 of at most 3 bundles": _four_bundles,
    "this address is not in the bundle": lambda tx, id: bundles.remove_member(tx, id, "b1", C),
    "this is the bundle's last address: delete the bundle instead": lambda tx, id: bundles.remove_member(
        tx, id, "b2", C
    ),
    "this is the last address of the bundle one (b2)": lambda tx, id: address_book.remove(tx, id, C, NOW_US),
    "without this address the bundle pair (b1) would be the same as alone": _twin,
    "3 addresses: a bundle holds at most 2": lambda tx, id: bundles.add_member(tx, id, "b1", C, QUOTAS),
    f"not in the address book: {FAR}, {wallet(8)}": lambda tx, id: bundles.create(
        tx, id, "b3", "far", [FAR, wallet(8)], QUOTAS
    ),
    "another bundle has this name": lambda tx, id: bundles.rename(tx, id, "b1", "one"),
    "another bundle holds exactly these addresses": lambda tx, id: bundles.create(tx, id, "b3", "x", [B, A], QUOTAS),
    f"already subscribed to {C}, {A}": _subscribed_before,
    # virtual users
    "type: `CASH` is no type of virtual user (one of BALANCE, CEX, GROUP)": _document("CASH", "[]"),
    f"holdings: {EITHER}{CEX}": _document("CEX", '[{"chain": "a", "amount": "1"}]'),
    f"holdings: {EITHER}{BALANCE}": _document("BALANCE", '[{"chain":"a","contract":"b","symbol":"c","amount":"1"}]'),
    f"holdings: EUR is there twice{CEX}": _document("CEX", f'[{", ".join(["""{"symbol":"EUR","amount":"1"}"""] * 2)}]'),
    f"holdings: a native is there twice{BALANCE}": _document(
        "BALANCE", '[{"chain":"a","contract":"native","amount":"1"},{"chain":"a","contract":"native","amount":"2"}]'
    ),
    f"{NO_ADDRESS}{BALANCE}": _document("BALANCE", '[{"chain": "a", "contract": "0x12", "amount": "1"}]'),
    f"{NO_ADDRESS}{GROUP}": _document("GROUP", '{"addresses": ["0x12"]}'),
    f"holdings: at 0.amount: Expected `str`, got `int`{CEX}": _document("CEX", '[{"symbol": "EUR", "amount": 1}]'),
    "holdings: 1001 lines; at most 1000": _document(
        "CEX", f'[{", ".join(f"""{{"symbol":"S{number}","amount":"1"}}""" for number in range(1001))}]'
    ),
    "not all of these virtual users belong to your account": lambda tx, id: virtual_users.find_all(tx, id, ["v"]),
    # alerts
    "there is no target tgt_9 (chainfolio alert list)": lambda tx, id: alerts.rotate(tx, id, "tgt_9", 1, NOW_US),
    "there is no target tgt_1 (chainfolio alert list)": lambda tx, id: alerts.rotate(tx, "acc_x", "tgt_1", 1, NOW_US),
    "target: 8 of its secrets are valid (wait until one has ended)": _nine_secrets,
    "there is no rule rul_9 (chainfolio alert list)": lambda tx, id: alerts.rule(tx, id, "rul_9"),
    "there is no rule rul_1 (chainfolio alert list)": lambda tx, id: alerts.remove_rule(tx, "acc_x", "rul_1"),
    "rule: an account has at most 1 rules (remove one, or raise alerts.max_rules)": lambda tx, id: alerts.add_rule(
        tx, alerts.Rule("rul_2", id, "balance", "s", "1", "tgt_1", "", 5), 1
    ),
    "delivery: its target was removed with its rule (add the rule again)": _removed_target,
    "there is no delivery evt_9 (chainfolio alert deliveries)": lambda tx, id: deliveries.one(tx, id, "evt_9"),
    "there is no delivery evt_1 (chainfolio alert deliveries)": lambda tx, id: deliveries.one(tx, "acc_x", "evt_1"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_refusal_has_this_whole_text_and_changes_nothing(state: State, ann: str, text: str) -> None:
    before = table_rows(state, ann)
    with pytest.raises((ChainfolioError, ledger.InsufficientCredits)) as caught:
        state.database.write(lambda tx: TEXTS[text](tx, ann))
    assert str(caught.value) == text
    assert table_rows(state, ann) == before


def table_rows(state: State, id: str) -> list[object]:
    """Return the stored rows of all tables."""
    with closing(apsw.Connection(f"{state.database.path}")) as connection:  # type: ignore[attr-defined]
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return [connection.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(names)]


@pytest.mark.parametrize(
    ("code", "work"),
    [
        ("DELEGATE_NOT_FOUND", lambda tx, id: delegations.acting_for(tx, id, "acc_x")),
        ("VALIDATION_ERROR", lambda tx, id: address_book.canonical("0x12")),
        ("VALIDATION_ERROR", lambda tx, id: address_book.distinct([A, A])),
        ("FORBIDDEN", lambda tx, id: virtual_users.find_all(tx, id, ["v"])),
        ("ADDRESSBOOK_ENTRY_NOT_DELETABLE", _owned),
        ("ADDRESSBOOK_ENTRY_NOT_DELETABLE", _twin),
    ],
)
def test_a_refusal_has_this_code_and_no_extras(
    state: State, ann: str, code: str, work: Callable[[Tx, str], Any]
) -> None:
    with pytest.raises(Refusal) as caught:
        state.database.write(lambda tx: work(tx, ann))
    assert (caught.value.code, caught.value.extras, caught.value.exit_code) == (code, {}, 2)


def test_each_change_of_an_account_has_its_entry_in_the_audit_log(state: State) -> None:
    eve = state.create_account("eve")[0].id
    account, _ = state.create_account("bob", "LITE", 7, ["portfolio", "at-block"], expires=9)
    bob, at = account.id, 1_000_000
    key, _ = state.create_key(bob, "laptop")
    (first,) = [each for each in state.keys(bob) if each.name == "first"]

    def change(tx: Tx) -> list[object]:
        address_book.add(tx, bob, {A: "a"}, QUOTAS, at)
        alerts.shared_target(tx, alerts.Target("tgt_2", bob, "file", "/tmp/alerts"))
        results: list[object] = [
            accounts.grant(tx, bob, "enterprise", 11),
            accounts.grant(tx, bob, "enterprise", 12),
            accounts.revoke_grant(tx, bob, "portfolio", 13),
            accounts.revoke_grant(tx, bob, "portfolio", 14),
        ]
        accounts.set_plan(tx, bob, "PRO", 20, 15)
        results += [
            sessions.revoke_with_sessions(tx, key.id, 16),
            sessions.revoke_with_sessions(tx, key.id, 17),
            address_book.set_plan(tx, bob, A, "PRO", 30, 18, owner_authorized=True),
        ]
        for at_us, value in ((19, 4), (20, None)):
            quotas.override(tx, bob, "bundles", value, at_us)
        results += [
            delegations.delegate(tx, bob, eve, 21),
            delegations.withdraw(tx, bob, eve, 22),
            ledger.credit(tx, bob, -3, 23, "back"),
            subscriptions.add(tx, bob, {B: "text", A: ""}, 24, actor="key_1"),
            virtual_users.add(tx, bob, "v1", "CEX", "label", b"[]", 25),
            virtual_users.remove(tx, bob, "v1", 26),
            alerts.rotate(tx, bob, "tgt_2", 5, 27),
            alerts.rotate(tx, bob, "tgt_2", 5, 28),
        ]
        return results

    results = state.database.write(change)
    year = subscriptions.one_year_after(24)
    assert results == [
        *(True, False, True, False, True, False),
        address_book.Entry(A, "a", "PRO", 30, True),
        *(True, True, 4),
        [subscriptions.Subscription(B, "text", 24, year), subscriptions.Subscription(A, "", 24, year)],
        VirtualUser("v1", "CEX", "label", (), ()),
        True,
        alerts.Target("tgt_2", bob, "file", "/tmp/alerts", "[[2,null],[1,32]]"),
        alerts.Target("tgt_2", bob, "file", "/tmp/alerts", "[[3,null],[2,33],[1,32]]"),
    ]
    entries = state.database.read(lambda tx: audit.entries(tx, bob))
    assert {(each.account_id, each.actor) for each in entries} == {(bob, "operator"), (bob, "key_1")}
    assert [each.at_us for each in entries if each.actor == "key_1"] == [24]
    plan = {"address": A, "from": "FREE", "to": "PRO", "expires_us": 30, "owner_authorized": True}
    assert [(each.at_us, each.action, each.detail) for each in entries] == [
        (at, "account created", {"name": "bob", "plan": "LITE", "grants": ["at-block", "portfolio"]}),
        (at, "credits changed", {"amount": 7, "memo": "first credits"}),
        (at, "key created", {"key": first.id, "name": "first"}),
        (at, "key created", {"key": key.id, "name": "laptop"}),
        (11, "granted", {"grant": "enterprise"}),
        (13, "grant revoked", {"grant": "portfolio"}),
        (15, "plan changed", {"from": "LITE", "to": "PRO", "expires_us": 20}),
        (16, "key revoked", {"key": key.id}),
        (18, "address plan changed", plan),
        (19, "quota changed", {"quota": "bundles", "value": 4}),
        (20, "quota changed", {"quota": "bundles", "value": None}),
        (21, "delegated", {"to": eve}),
        (22, "delegation ended", {"to": eve}),
        (23, "credits changed", {"amount": -3, "memo": "back"}),
        (24, "subscribed", {"addresses": [B, A]}),
        (25, "virtual user added", {"id": "v1", "type": "CEX", "label": "label"}),
        (26, "virtual user removed", {"id": "v1"}),
        (27, "rotated a secret of alerts", {"target": "tgt_2"}),
        (28, "rotated a secret of alerts", {"target": "tgt_2"}),
    ]
    stored = state.database.read(lambda tx: ledger.history(tx, bob))
    assert [(row.at_us, row.kind, row.amount, row.debit, row.credit, row.call_id, row.memo) for row in stored] == [
        (23, "adjust", 3, "available", "operator", None, "back"),
        (at, "grant", 7, "operator", "available", None, "first credits"),
    ]


def test_a_damaged_secret_and_a_lost_one_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "pepper"
    with pytest.raises(StoreError) as missing:
        pepper(path, accounts=True)
    assert str(missing.value) == f"state: there are accounts, and {path}, the secret of their keys, is missing ({LOST})"
    path.write_bytes(b"short")
    with pytest.raises(StoreError) as damaged:
        pepper(path, accounts=True)
    assert str(damaged.value) == f"state: {path} is damaged: 5 bytes (restore it from a backup)"


def test_an_address_of_no_store_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as caught:
        State.open("mysql://x", PEPPER, Hands(), random.Random(1))
    remedy = "sqlite:///path/to/state.db or postgresql://user@host/name"
    assert str(caught.value) == f"state.url: not the address of a state store ({remedy})"


def test_a_postgres_store_that_is_away_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(StoreError):
        PostgresDatabase("postgresql://user@127.0.0.1:1/none")
    assert set(threading.enumerate()) <= before
