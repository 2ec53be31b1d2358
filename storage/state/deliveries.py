"""A queue of events for each target of alerts, with retries in order.

A target is claimed for some seconds. A result counts for the event with its id, so that a deliverer that was
interrupted, or is late, changes no other event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.blocks import Span
from chainfolio.errors import BadRequest, NotFound
from chainfolio.storage.state import alerts, schema
from chainfolio.storage.state.alerts import Target
from chainfolio.storage.state.database import Statement, Transaction, Value, argument, only_row

STATES: Final = ("pending", "done", "dead")
YOUNG_US: Final = 4 * 86_400_000_000  # rows that a reorganisation may still correct are never deleted for their number


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a rule, before it is stored. `id` is the same whenever the event is derived again."""

    id: str
    account_id: str
    target_id: str
    rule_id: str
    type: str
    body: bytes
    chain: str = ""
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A stored event and its last attempt. The columns of `schema.alert_deliveries` explain the fields."""

    seq: int
    id: str
    account_id: str
    target_id: str
    rule_id: str
    chain: str
    height: int | None
    type: str
    body: bytes
    created_us: int
    queued_us: int
    state: str
    attempts: int
    attempted_us: int | None
    status: int | None
    error: str
    corrected: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of sending one event. `state` is the state of the event afterwards."""

    id: str
    at_us: int
    state: str
    status: int | None = None
    error: str = ""


_ROWS = schema.alert_deliveries
_COLUMNS = [_ROWS.c[name] for name in Delivery.__slots__]
_ADD = Statement(
    sa.text(
        "INSERT INTO alert_deliveries (id, account_id, target_id, rule_id, chain, height, type, body, created_us, "
        "queued_us, state, attempts, error, corrected) VALUES (:id, :account_id, :target_id, :rule_id, :chain, "
        ":height, :type, :body, :now, :now, 'pending', 0, '', 0) ON CONFLICT DO NOTHING"
    )
)
# This locks the row also if it changes nothing: a deliverer that sets the column to NULL meanwhile is waited for.
_WAKE = Statement(sa.text("UPDATE alert_targets SET next_us = COALESCE(next_us, :now) WHERE id = :target"))
# This locks the row, so that the rule cannot be removed before its events are stored.
_HOLD_RULE = Statement(sa.text("UPDATE alert_rules SET problem = problem WHERE id = :rule"))
_DUE = Statement(sa.text("SELECT id, claim FROM alert_targets WHERE next_us <= :now ORDER BY next_us, id LIMIT :most"))
_CLAIM = Statement(
    sa.text("UPDATE alert_targets SET claim = claim + 1, next_us = :until WHERE id = :target AND claim = :claim")
)
_PENDING = Statement(
    sa.select(*_COLUMNS)
    .where(_ROWS.c.target_id == argument("target"), _ROWS.c.state == sa.literal_column("'pending'"))
    .order_by(_ROWS.c.seq)
    .suffix_with(sa.text("LIMIT :most"))
)
_RECORD = Statement(
    sa.text(
        "UPDATE alert_deliveries SET state = :state, attempts = attempts + 1, attempted_us = :at, status = :status, "
        "error = :error WHERE id = :id AND state = 'pending'"
    )
)
_REST = Statement(
    sa.text("UPDATE alert_targets SET next_us = :next, failures = :failures WHERE id = :target AND claim = :claim")
)
_ONE = Statement(sa.select(*_COLUMNS).where(_ROWS.c.account_id == argument("owner"), _ROWS.c.id == argument("event")))
_NEWEST = Statement(
    sa.text(
        f"SELECT {', '.join(Delivery.__slots__)} FROM alert_deliveries "
        "WHERE account_id = :owner AND (:state = '' OR state = :state) ORDER BY seq DESC LIMIT :most"
    )
)
_DEAD = Statement(sa.text("SELECT id FROM alert_deliveries WHERE account_id = :owner AND state = 'dead' ORDER BY seq"))
_REPLAY = Statement(
    sa.text(
        "UPDATE alert_deliveries SET state = 'pending', queued_us = :now, error = '' "
        "WHERE id = :event AND account_id = :owner AND state <> 'pending'"
    )
)
_WITHIN = Statement(
    sa.select(*_COLUMNS)
    .where(_ROWS.c.chain == argument("key"), _ROWS.c.height.between(argument("first"), argument("last")))
    .order_by(_ROWS.c.seq)
)
_CORRECTED = Statement(sa.text("UPDATE alert_deliveries SET corrected = 1 WHERE id = :event"))
_DROP_OLD = Statement(sa.text("DELETE FROM alert_deliveries WHERE state <> 'pending' AND created_us < :before"))
_OWNERS = Statement(
    sa.text("SELECT account_id, count(*) FROM alert_deliveries GROUP BY account_id HAVING count(*) > :most")
)
_DROP_MANY = Statement(
    sa.text(
        "DELETE FROM alert_deliveries WHERE account_id = :owner AND state <> 'pending' AND created_us < :young "
        "AND seq <= (SELECT seq FROM alert_deliveries WHERE account_id = :owner ORDER BY seq DESC LIMIT 1 OFFSET :most)"
    )
)
_OLDEST = Statement(sa.text("SELECT created_us FROM alert_deliveries WHERE state <> 'pending' ORDER BY seq LIMIT 1"))


def add(tx: Transaction, events: Sequence[Event], now_us: int) -> int:
    """Store events that are not stored yet, in their order, and return their number.

    Events of a rule that was removed meanwhile are not stored. The targets of the stored rules' events become due at
    once.
    """
    added = 0
    rules = {id for id in sorted({each.rule_id for each in events}) if tx.run(_HOLD_RULE, rule=id)}
    events = [each for each in events if each.rule_id in rules]
    for each in events:
        values: dict[str, Value] = {name: getattr(each, name) for name in Event.__slots__}
        added += tx.run(_ADD, now=now_us, **values)
    for target in sorted({each.target_id for each in events}):
        tx.run(_WAKE, target=target, now=now_us)
    return added


def claim(
    tx: Transaction, now_us: int, until_us: int, max_targets: int, max_events: int
) -> list[tuple[Target, list[Delivery]]]:
    """Claim targets that are due until a time, and return each with its first pending events.

    A target without pending events rests until the next one is stored.
    """
    claimed = []
    for id, number in sorted(tx.rows(_DUE, now=now_us, most=max_targets)):  # rows are locked in one order everywhere
        if not tx.run(_CLAIM, target=id, claim=number, until=until_us):
            continue  # by another process
        target = alerts.target(tx, id)
        pending = [Delivery(*row) for row in tx.rows(_PENDING, target=id, most=max_events)]
        if target is not None and pending:
            claimed.append((target, pending))
        else:
            tx.run(_REST, target=id, claim=number + 1, next=None, failures=0)
    return claimed


def record(tx: Transaction, target: Target, attempts: Sequence[Attempt], next_us: int, failures: int) -> None:
    """Store the results of a claim and the next time; a lost claim stores successful deliveries only."""
    is_mine = tx.run(_REST, target=target.id, claim=target.claim, next=next_us, failures=failures) == 1
    for each in attempts:
        if is_mine or each.state == "done":
            values: dict[str, Value] = {"status": each.status, "error": each.error, "at": each.at_us}
            tx.run(_RECORD, id=each.id, state=each.state, **values)


def listing(tx: Transaction, account_id: str, state: str, limit: int) -> list[Delivery]:
    """Return the newest events of an account, of one state or of all (empty)."""
    return [Delivery(*row) for row in tx.rows(_NEWEST, owner=account_id, state=state, most=limit)]


def dead_ids(tx: Transaction, account_id: str) -> list[str]:
    """Return the ids of all events of an account that were given up, the oldest first."""
    return [str(id) for (id,) in tx.rows(_DEAD, owner=account_id)]


def replay(tx: Transaction, account_id: str, event_id: str, now_us: int) -> Delivery:
    """Make an event pending again, and its target due. Return the event as it was before.

    An event that is pending stays as it is.

    Raises:
        NotFound: The account has no such event.
        BadRequest: The event's target was removed.
    """
    event = one(tx, account_id, event_id)
    if alerts.target(tx, event.target_id) is None:
        raise BadRequest("delivery", "its target was removed with its rule", remedy="add the rule again")
    if tx.run(_REPLAY, event=event_id, owner=account_id, now=now_us):
        tx.run(_WAKE, target=event.target_id, now=now_us)
    return event


def one(tx: Transaction, account_id: str, event_id: str) -> Delivery:
    """Return an event of an account.

    Raises:
        NotFound: The account has no such event.
    """
    row = only_row(tx.rows(_ONE, owner=account_id, event=event_id))
    if row is None:
        raise NotFound(f"there is no delivery {event_id}", remedy="chainfolio alert deliveries")
    return Delivery(*row)


def within(tx: Transaction, chain: str, span: Span) -> list[Delivery]:
    """Return a chain's events in a span of heights, both ends and corrected ones included, in their order."""
    return [Delivery(*row) for row in tx.rows(_WITHIN, key=chain, first=span.first, last=span.last)]


def mark_corrected(tx: Transaction, event_id: str) -> None:
    """Note that a correction of an event is stored."""
    tx.run(_CORRECTED, event=event_id)


def oldest_age_us(tx: Transaction, now_us: int) -> int:
    """Return the age of the first stored event that is not pending; 0 if there is none."""
    rows = tx.rows(_OLDEST)
    return max(0, now_us - int(rows[0][0])) if rows else 0


def purge(tx: Transaction, now_us: int, keep_us: int, max_rows: int) -> int:
    """Delete old finished events, and those above `max_rows` of an account; return their number."""
    deleted = tx.run(_DROP_OLD, before=now_us - keep_us)
    for owner, _ in tx.rows(_OWNERS, most=max_rows):
        deleted += tx.run(_DROP_MANY, owner=owner, most=max_rows, young=now_us - YOUNG_US)
    return deleted
