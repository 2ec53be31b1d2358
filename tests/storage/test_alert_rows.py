"""Rows of alerts, deliveries and subscriptions that transactions store, change and return."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.storage.state import State, alerts, deliveries, subscriptions
from chainfolio.storage.state.alerts import Cursor, Rule, Target
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.deliveries import Attempt, Delivery, Event
from tests.storage.tenants import wallet
from tests.storage.test_state import PEPPER, Hands

A, B = wallet(1), wallet(2)
DAY_US = 86_400_000_000


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State.open(f"sqlite:///{tmp_path}/state.db", PEPPER, Hands(), random.Random(1))
    yield opened
    opened.close()


@pytest.fixture
def owners(state: State) -> tuple[str, str]:
    return state.create_account("ann")[0].id, state.create_account("eve")[0].id


def rule(id: str, owner: str, target: str, created_us: int = 5) -> Rule:
    return Rule(id, owner, "balance", f"subject {id}", f"bound {id}", target, "start", created_us, "on", 7, "why")


def test_targets_and_rules_are_stored_whole_and_found_by_their_owner(state: State, owners: tuple[str, str]) -> None:
    ann, eve = owners
    first = Target("t1", ann, "file", "/a", "[[1,null]]", 40, 2, 3)
    targets = [Target("t2", ann, "file", "/b"), Target("t3", ann, "url", "/a"), Target("t4", eve, "file", "/a")]
    rules = [rule("r2", ann, "t1"), rule("r1", ann, "t1", 6), rule("r3", eve, "t4", 4)]

    def fill(tx: Transaction) -> list[Target]:
        shared = [alerts.shared_target(tx, each) for each in (first, replace(first, id="t9"), *targets)]
        for each in rules:
            alerts.add_rule(tx, each, 2)
        return shared

    assert state.database.write(fill) == [first, first, *targets]
    read = state.database.read
    assert read(lambda tx: [alerts.target(tx, id) for id in ("t1", "t9")]) == [first, None]
    assert read(lambda tx: alerts.targets(tx, ann)) == {"t1": first, "t2": targets[0], "t3": targets[1]}
    assert read(lambda tx: alerts.targets(tx, eve)) == {"t4": targets[2]}
    assert read(alerts.rules) == [rules[2], rules[0], rules[1]]
    assert read(lambda tx: alerts.rules(tx, ann)) == [rules[0], rules[1]]
    assert read(lambda tx: alerts.rule(tx, eve, "r3")) == rules[2]

    def change(tx: Transaction) -> list[bool]:
        stored = [
            alerts.store_check(tx, rules[0], "off", "new", 30),
            alerts.store_check(tx, rules[0], "again", "lost", 31),
            alerts.store_check(tx, rules[1], "off", "", 7),
        ]
        alerts.store_problem(tx, "r3", "gone")
        return stored

    assert state.database.write(change) == [True, False, True]
    assert read(alerts.rules) == [
        replace(rules[2], problem="gone"),
        replace(rules[0], active="off", problem="new", checked_us=30),
        replace(rules[1], active="off", problem="", checked_us=8),
    ]


def test_a_removed_rule_ends_its_events_and_the_last_one_of_a_target_removes_it(
    state: State, owners: tuple[str, str]
) -> None:
    ann, _ = owners

    def fill(tx: Transaction) -> None:
        alerts.shared_target(tx, Target("t1", ann, "file", "/a"))
        for id in ("r1", "r2"):
            alerts.add_rule(tx, rule(id, ann, "t1"), 2)
        deliveries.add(tx, [Event(f"e{id}", ann, "t1", id, "type", b"") for id in ("r1", "r2")], 10)
        alerts.remove_rule(tx, ann, "r1")

    state.database.write(fill)
    states = {each.id: (each.state, each.error) for each in listing(state, ann)}
    assert states == {"er1": ("dead", "the rule was removed"), "er2": ("pending", "")}
    assert state.database.read(lambda tx: [each.id for each in alerts.rules(tx)]) == ["r2"]
    assert state.database.read(lambda tx: list(alerts.targets(tx, ann))) == ["t1"]
    state.database.write(lambda tx: alerts.remove_rule(tx, ann, "r2"))
    assert state.database.read(lambda tx: (alerts.rules(tx), alerts.targets(tx, ann))) == ([], {})


def test_valid_secrets_are_those_that_have_not_ended() -> None:
    target = Target("t1", "a", "file", "/a", "[[4,null],[3,21],[2,20],[1,19]]")
    assert [target.valid_secrets(at_us) for at_us in (0, 19, 20, 21)] == [[4, 3, 2, 1], [4, 3, 2], [4, 3], [4]]


def test_a_cursor_moves_only_from_where_it_was_read(state: State) -> None:
    first, second = Cursor("c", "", 10, "0xa", 9), Cursor("c", "", 11, "0xb", 10)
    owned = Cursor("c", "acc", 5, "", 5)

    def move(old: Cursor | None, new: Cursor) -> bool:
        return state.database.write(lambda tx: alerts.move_cursor(tx, old, new))

    assert [move(None, first), move(None, second), move(None, owned)] == [True, False, True]
    wrong = [replace(first, height=9), replace(first, hash="0xb"), replace(first, final=8)]
    assert [move(old, second) for old in (*wrong, first, first)] == [False, False, False, True, False]
    assert state.database.read(alerts.cursors) == {("c", ""): second, ("c", "acc"): owned}


# --- deliveries -------------------------------------------------------------------------------------------------------


def listing(state: State, owner: str, kind: str = "", limit: int = 99) -> list[Delivery]:
    return state.database.read(lambda tx: deliveries.listing(tx, owner, kind, limit))


@pytest.fixture
def queue(state: State, owners: tuple[str, str]) -> list[Event]:
    """Five events: three of t1, one of t2, one of the other account's t3."""
    ann, eve = owners
    events = [
        *(Event(f"e{number}", ann, "t1", "r1", "kind", b"body", "c", number) for number in (1, 2, 3)),
        Event("e4", ann, "t2", "r2", "kind", b"", "c", None),
        Event("e5", eve, "t3", "r3", "kind", b"", "d", 2),
    ]

    def fill(tx: Transaction) -> None:
        for number, owner in ((1, ann), (2, ann), (3, eve)):
            alerts.shared_target(tx, Target(f"t{number}", owner, "file", f"/{number}"))
            alerts.add_rule(tx, rule(f"r{number}", owner, f"t{number}"), 9)
        unknown = replace(events[0], id="e9", rule_id="r9")
        assert [deliveries.add(tx, batch, at) for batch, at in (([*events[:4], unknown], 100), (events, 200))] == [4, 1]

    state.database.write(fill)
    return events


def test_events_are_stored_once_with_their_time(state: State, owners: tuple[str, str], queue: list[Event]) -> None:
    ann, eve = owners
    facts = [(each.id, each.height, each.created_us, each.queued_us) for each in listing(state, ann)]
    assert facts == [("e4", None, 100, 100), ("e3", 3, 100, 100), ("e2", 2, 100, 100), ("e1", 1, 100, 100)]
    assert listing(state, eve) == [
        Delivery(5, "e5", eve, "t3", "r3", "d", 2, "kind", b"", 200, 200, "pending", 0, None, None, "", 0)
    ]
    assert [each.id for each in listing(state, ann, limit=1)] == ["e4"]
    assert [listing(state, ann, kind) for kind in ("done", "dead")] == [[], []]
    events_by_span = state.database.read(
        lambda tx: [deliveries.within(tx, *at) for at in (("c", Span(2, 3)), ("d", Span(2, 2)))]
    )
    assert [[each.id for each in events] for events in events_by_span] == [["e2", "e3"], ["e5"]]
    due = state.database.read(lambda tx: alerts.targets(tx, ann))
    assert {id: each.next_us for id, each in due.items()} == {"t1": 100, "t2": 100}


def test_a_claim_holds_targets_until_its_end_and_its_results_count(
    state: State, owners: tuple[str, str], queue: list[Event]
) -> None:
    ann, _ = owners

    def claim(now_us: int, until_us: int, targets: int = 9, events: int = 2) -> list[tuple[str, int, list[str]]]:
        claimed = state.database.write(lambda tx: deliveries.claim(tx, now_us, until_us, targets, events))
        return [(target.id, target.claim, [each.id for each in batch]) for target, batch in claimed]

    assert claim(99, 150) == []
    assert claim(100, 150, 1) == [("t1", 1, ["e1", "e2"])]
    assert claim(100, 150) == [("t2", 1, ["e4"])]
    assert claim(149, 300) == []
    assert claim(150, 300) == [("t1", 2, ["e1", "e2"]), ("t2", 2, ["e4"])]
    expired, current = (Target("t1", ann, "file", "/1", claim=number) for number in (1, 2))
    attempts = [Attempt("e1", 160, "done", 204), Attempt("e2", 161, "pending", 500, "answered 500")]
    state.database.write(lambda tx: deliveries.record(tx, expired, attempts, 400, 1))
    first, second = listing(state, ann)[:1:-1]
    assert (first.state, first.attempts, first.attempted_us, first.status, first.error) == ("done", 1, 160, 204, "")
    assert (second.state, second.attempts) == ("pending", 0)
    state.database.write(lambda tx: deliveries.record(tx, current, [attempts[1]], 400, 6))
    second = listing(state, ann)[2]
    assert (second.state, second.attempts, second.attempted_us, second.status, second.error) == (
        *("pending", 1, 161, 500),
        "answered 500",
    )
    rested = state.database.read(lambda tx: alerts.target(tx, "t1"))
    assert rested == Target("t1", ann, "file", "/1", next_us=400, failures=6, claim=2)
    state.database.write(
        lambda tx: deliveries.record(tx, current, [Attempt("e2", 170, "dead"), Attempt("e3", 171, "done")], 0, 0)
    )
    assert [each.id for each in listing(state, ann, "dead")] == ["e2"]
    assert claim(500, 600) == [("t2", 3, ["e4"]), ("t3", 1, ["e5"])]  # nothing of t1 is pending: it rests
    assert state.database.read(lambda tx: alerts.target(tx, "t1")) == Target("t1", ann, "file", "/1", claim=3)
    before = state.database.write(lambda tx: deliveries.replay(tx, ann, "e2", 700))
    assert (before.id, before.state) == ("e2", "dead")
    replayed = listing(state, ann, "pending")[1]
    assert (replayed.id, replayed.queued_us, replayed.created_us, replayed.error) == ("e2", 700, 100, "")
    assert state.database.read(lambda tx: alerts.target(tx, "t1")) == Target(
        "t1", ann, "file", "/1", next_us=700, claim=3
    )
    state.database.write(lambda tx: deliveries.replay(tx, ann, "e2", 800))
    assert listing(state, ann, "pending")[1].queued_us == 700
    state.database.write(lambda tx: deliveries.mark_corrected(tx, "e2"))
    assert [(each.id, each.corrected) for each in listing(state, ann)] == [("e4", 0), ("e3", 0), ("e2", 1), ("e1", 0)]


def test_old_events_are_deleted_and_of_young_ones_those_above_the_number_alone(
    state: State, owners: tuple[str, str], queue: list[Event]
) -> None:
    ann, _ = owners
    target = Target("t1", ann, "file", "/1")
    end = [Attempt(each.id, 300, "done") for each in queue[:3]]

    def purge(now_us: int, keep_us: int, rows: int) -> int:
        return state.database.write(lambda tx: deliveries.purge(tx, now_us, keep_us, rows))

    def age(now_us: int) -> int:
        return state.database.read(lambda tx: deliveries.oldest_age_us(tx, now_us))

    assert age(1000) == 0
    state.database.write(lambda tx: deliveries.record(tx, target, end[:2], 0, 0))
    assert (age(1000), age(50)) == (900, 0)
    assert purge(1000, 900, 9) == 0  # as old as may be
    assert purge(100 + deliveries.YOUNG_US, 10**15, 2) == 0  # too young to be deleted for their number
    assert purge(101 + deliveries.YOUNG_US, 10**15, 4) == 0
    assert purge(101 + deliveries.YOUNG_US, 10**15, 3) == 1
    assert [each.id for each in listing(state, ann)] == ["e4", "e3", "e2"]
    assert purge(1001, 900, 9) == 1
    assert [each.id for each in listing(state, ann)] == ["e4", "e3"]


def test_subscriptions_run_until_their_end(state: State, owners: tuple[str, str]) -> None:
    ann, eve = owners

    def add(owner: str, now_us: int, **texts: str) -> None:
        names = {"a": A, "b": B}
        state.database.write(lambda tx: subscriptions.add(tx, owner, {names[k]: v for k, v in texts.items()}, now_us))

    add(ann, 20, a="mine")
    add(eve, 10, a="hers", b="two")
    ends = [subscriptions.one_year_after(at_us) for at_us in (10, 20)]
    read = state.database.read
    assert read(lambda tx: [subscriptions.running(tx, at) for at in (0, ends[0] - 1, ends[0], ends[1])]) == [
        {A: 10, B: 10},
        {A: 10, B: 10},
        {A: 20},
        {},
    ]
    assert read(lambda tx: subscriptions.every(tx, eve)) == [
        subscriptions.Subscription(A, "hers", 10, ends[0]),
        subscriptions.Subscription(B, "two", 10, ends[0]),
    ]
    assert read(lambda tx: subscriptions.subscribed(tx, eve, [A, B, wallet(3)], ends[0] - 1)) == {A, B}
    assert read(lambda tx: subscriptions.subscribed(tx, eve, [A, B], ends[0])) == set()
    assert read(lambda tx: subscriptions.sold(tx, ends[0])) == [(ann, A, ends[1])]
