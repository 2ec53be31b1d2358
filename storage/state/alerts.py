"""Alert rules, the targets of their events, and how far each chain was read for events.

Call functions that change an account's rules in a transaction in which the account is locked (`accounts.lock`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import sqlalchemy as sa

from chainfolio.errors import BadRequest, NotFound
from chainfolio.storage.state import audit, schema
from chainfolio.storage.state.database import Statement, Transaction, Value, argument, only_row

MAX_SECRETS: Final = 8  # of one target that are valid at once
Secrets = list[tuple[int, int | None]]  # number of a secret, and its end in microseconds


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook, command or file of an account.

    Attributes:
        secrets: Numbers of the valid secrets with their ends, as JSON, the newest first.
        claim: Number of claims by deliverers.
    """

    id: str
    account_id: str
    kind: str
    address: str
    secrets: str = "[[1, null]]"
    next_us: int | None = None
    failures: int = 0
    claim: int = 0

    def valid_secrets(self, now_us: int) -> list[int]:
        """Return the numbers of the secrets that sign now, the newest first."""
        return [number for number, until_us in _secrets(self) if until_us is None or until_us > now_us]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an account. The columns of `schema.alert_rules` explain the fields."""

    id: str
    account_id: str
    kind: str
    subject: str
    bound: str
    target_id: str
    starts: str
    created_us: int
    active: str = ""
    checked_us: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The height up to which events of a chain, or of one account on it, are stored.

    Attributes:
        hash: Hash of the highest replaceable block up to `height`; empty if all of them are final.
        final: Up to this height, the rows were final when they were read.
    """

    chain: str
    account: str
    height: int
    hash: str
    final: int


_TARGETS, _RULES, _CURSORS = schema.alert_targets, schema.alert_rules, schema.alert_cursors
_TARGET_COLUMNS = [_TARGETS.c[name] for name in Target.__slots__]
_RULE_COLUMNS = [_RULES.c[name] for name in Rule.__slots__]
_TARGET = Statement(sa.select(*_TARGET_COLUMNS).where(_TARGETS.c.id == argument("target")))
_SAME_TARGET = Statement(
    sa.select(*_TARGET_COLUMNS).where(
        _TARGETS.c.account_id == argument("owner"),
        _TARGETS.c.kind == argument("sort"),
        _TARGETS.c.address == argument("place"),
    )
)
_TARGETS_OF = Statement(sa.select(*_TARGET_COLUMNS).where(_TARGETS.c.account_id == argument("owner")))
_ADD_TARGET = Statement(_TARGETS.insert())
_SET_SECRETS = Statement(_TARGETS.update().where(_TARGETS.c.id == argument("target")).values(secrets=argument("new")))
_HOLD_TARGET = Statement(sa.text("UPDATE alert_targets SET failures = failures WHERE id = :target"))
_DROP_TARGET = Statement(
    sa.text(
        "DELETE FROM alert_targets WHERE id = :target "
        "AND NOT EXISTS (SELECT 1 FROM alert_rules WHERE target_id = alert_targets.id)"
    )
)
_ALL_RULES = Statement(sa.select(*_RULE_COLUMNS).order_by(_RULES.c.created_us, _RULES.c.id))
_RULES_OF = Statement(
    sa.select(*_RULE_COLUMNS).where(_RULES.c.account_id == argument("owner")).order_by(_RULES.c.created_us, _RULES.c.id)
)
_RULE = Statement(
    sa.select(*_RULE_COLUMNS).where(_RULES.c.account_id == argument("owner"), _RULES.c.id == argument("rule"))
)
_ADD_RULE = Statement(_RULES.insert())
_DROP_RULE = Statement(_RULES.delete().where(_RULES.c.id == argument("rule")))
_END_PENDING = Statement(
    sa.text(
        "UPDATE alert_deliveries SET state = 'dead', error = 'the rule was removed' "
        "WHERE rule_id = :rule AND state = 'pending' AND account_id = :owner"
    )
)
_CHECKED = Statement(
    _RULES.update()
    .where(_RULES.c.id == argument("rule"), _RULES.c.checked_us == argument("before"))
    .values(active=argument("now_active"), problem=argument("reason"), checked_us=argument("now"))
)
_PROBLEM = Statement(_RULES.update().where(_RULES.c.id == argument("rule")).values(problem=argument("reason")))
_ALL_CURSORS = Statement(sa.select(*[_CURSORS.c[name] for name in Cursor.__slots__]))
_ADD_CURSOR = Statement(
    sa.text(
        "INSERT INTO alert_cursors (chain, account, height, hash, final) "
        "VALUES (:chain, :account, :height, :hash, :final) ON CONFLICT DO NOTHING"
    )
)
_MOVE_CURSOR = Statement(
    sa.text(
        "UPDATE alert_cursors SET height = :height, hash = :hash, final = :final WHERE chain = :chain "
        "AND account = :account AND height = :old_height AND hash = :old_hash AND final = :old_final"
    )
)


def target(tx: Transaction, id: str) -> Target | None:
    """Return a target; None if it does not exist."""
    row = only_row(tx.rows(_TARGET, target=id))
    return Target(*row) if row else None


def targets(tx: Transaction, account_id: str) -> dict[str, Target]:
    """Return the targets of an account by id."""
    return {each.id: each for each in (Target(*row) for row in tx.rows(_TARGETS_OF, owner=account_id))}


def shared_target(tx: Transaction, new: Target) -> Target:
    """Return the account's target with the kind and address of `new`; store `new` if there is none."""
    row = only_row(tx.rows(_SAME_TARGET, owner=new.account_id, sort=new.kind, place=new.address))
    if row is not None:
        return Target(*row)
    tx.run(_ADD_TARGET, **_values(new))
    return new


def rotate(tx: Transaction, account_id: str, target_id: str, overlap_us: int, now_us: int) -> Target:
    """Add a secret to a target; the newest old one ends after `overlap_us`, the others as before.

    Raises:
        NotFound: The account has no such target.
        BadRequest: Too many secrets are valid.
    """
    current = target(tx, target_id)
    if current is None or current.account_id != account_id:
        raise NotFound(f"there is no target {target_id}", remedy="chainfolio alert list")
    if len(current.valid_secrets(now_us)) >= MAX_SECRETS:
        raise BadRequest("target", f"{MAX_SECRETS} of its secrets are valid", remedy="wait until one has ended")
    old_secrets: Secrets = [
        (number, now_us + overlap_us if until_us is None else until_us)
        for number, until_us in _secrets(current)
        if until_us is None or until_us > now_us
    ]
    newest = max(number for number, _ in _secrets(current)) + 1
    secrets = msgspec.json.encode([(newest, None), *old_secrets]).decode()
    tx.run(_SET_SECRETS, target=target_id, new=secrets)
    audit.record(tx, now_us, audit.OPERATOR, account_id, "rotated a secret of alerts", {"target": target_id})
    return replace(current, secrets=secrets)


def _secrets(target: Target) -> Secrets:
    return msgspec.json.decode(target.secrets, type=Secrets)


def rules(tx: Transaction, account_id: str | None = None) -> list[Rule]:
    """Return the rules of an account, or of all accounts, the oldest first."""
    rows = tx.rows(_ALL_RULES) if account_id is None else tx.rows(_RULES_OF, owner=account_id)
    return [Rule(*row) for row in rows]


def rule(tx: Transaction, account_id: str, id: str) -> Rule:
    """Return a rule of an account.

    Raises:
        NotFound: The account has no such rule.
    """
    row = only_row(tx.rows(_RULE, owner=account_id, rule=id))
    if row is None:
        raise NotFound(f"there is no rule {id}", remedy="chainfolio alert list")
    return Rule(*row)


def add_rule(tx: Transaction, new: Rule, max_rules: int) -> None:
    """Store a rule.

    Raises:
        BadRequest: The account has `max_rules` rules.
    """
    if len(rules(tx, new.account_id)) >= max_rules:
        raise BadRequest(
            "rule", f"an account has at most {max_rules} rules", remedy="remove one, or raise alerts.max_rules"
        )
    tx.run(_ADD_RULE, **_values(new))


def remove_rule(tx: Transaction, account_id: str, id: str) -> None:
    """Delete a rule, end its pending deliveries, and delete its target if no other rule uses it.

    Raises:
        NotFound: The account has no such rule.
    """
    removed = rule(tx, account_id, id)
    tx.run(_DROP_RULE, rule=id)
    tx.run(_HOLD_TARGET, target=removed.target_id)  # all lock a rule, then its target, then deliveries: no deadlock
    tx.run(_END_PENDING, rule=id, owner=account_id)
    tx.run(_DROP_TARGET, target=removed.target_id)


def store_check(tx: Transaction, checked: Rule, active: str, problem: str, now_us: int) -> bool:
    """Store the result of a check; return False if another process stored one since `checked` was read."""
    arguments: dict[str, Value] = {"now_active": active, "reason": problem, "now": max(now_us, checked.checked_us + 1)}
    return tx.run(_CHECKED, rule=checked.id, before=checked.checked_us, **arguments) == 1


def store_problem(tx: Transaction, rule_id: str, problem: str) -> None:
    """Store why a rule cannot be evaluated; empty if it can."""
    tx.run(_PROBLEM, rule=rule_id, reason=problem)


def cursors(tx: Transaction) -> dict[tuple[str, str], Cursor]:
    """Return the cursors by chain and account."""
    return {(each.chain, each.account): each for each in (Cursor(*row) for row in tx.rows(_ALL_CURSORS))}


def move_cursor(tx: Transaction, old: Cursor | None, new: Cursor) -> bool:
    """Replace a cursor, or store the first one; return False if another process has moved it."""
    if old is None:
        return tx.run(_ADD_CURSOR, **_values(new)) == 1
    before: dict[str, Value] = {"old_height": old.height, "old_hash": old.hash, "old_final": old.final}
    return tx.run(_MOVE_CURSOR, **_values(new), **before) == 1


def _values(row: Target | Rule | Cursor) -> dict[str, Value]:
    names: Sequence[str] = type(row).__slots__
    return {name: getattr(row, name) for name in names}
