"""Adding rules, and rules, targets and deliveries as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from chainfolio.alerts.kinds import checked_bound, checked_subject, kind_of
from chainfolio.alerts.signing import as_text, secret_of
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, alerts, audit
from chainfolio.transport.reachable import check_url

if TYPE_CHECKING:
    from chainfolio.storage.state.alerts import Rule, Target
    from chainfolio.storage.state.database import Transaction
    from chainfolio.storage.state.deliveries import Delivery

TargetKind = Literal["webhook", "command", "file"]
MAX_ADDRESS: Final = 2000


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule as it is requested. `over` and `under` are decimals as text, one of them or none."""

    kind: str
    subject: str
    target_kind: TargetKind
    target: str
    over: str | None = None
    under: str | None = None
    chains: Sequence[str] = ()

    def check(self, *, is_operator: bool) -> None:
        """Check the rule without reading anything.

        Raises:
            BadRequest: A field is wrong, or only the operator may add such a rule.
        """
        kind = kind_of(self.kind)
        if not is_operator and (kind.for_operator or self.target_kind != "webhook"):
            raise BadRequest("kind", f"`{self.kind}` to a {self.target_kind} is for the operator: chainfolio alert add")
        checked_subject(self.kind, self.subject)
        checked_bound(self.kind, self.over, self.under)
        if self.chains and not kind.of_blocks:
            raise BadRequest("chain", f"a rule `{self.kind}` is about no chain")
        if self.target_kind == "webhook":
            check_url(self.target)
        elif not self.target.strip() or len(self.target) > MAX_ADDRESS or "\0" in self.target:
            raise BadRequest(self.target_kind, f"empty, or longer than {MAX_ADDRESS} characters")


def add(tx: Transaction, rule: Rule, target: Target, max_rules: int, actor: str = audit.OPERATOR) -> Rule:
    """Store a rule with its target, and return it; a target of the same address is shared.

    Raises:
        BadRequest: The account has too many rules.
    """
    accounts.lock(tx, rule.account_id)
    shared = alerts.shared_target(tx, target)
    stored = replace(rule, target_id=shared.id)
    alerts.add_rule(tx, stored, max_rules)
    audit.record(tx, rule.created_us, actor, rule.account_id, "added an alert", {"rule": rule.id, "kind": rule.kind})
    return stored


def rule_document(rule: Rule, target: Target | None) -> dict[str, Any]:
    """Return a rule as one document; without a target its three texts are empty.

    Keys are `id`, `kind`, `subject`, `bound`, `target` (the address), `targetKind`, `targetId`, `chains` (sorted keys),
    `active` (what the condition holds for), `problem` and `createdAt`.
    """
    return {
        "id": rule.id,
        "kind": rule.kind,
        "subject": rule.subject,
        "bound": rule.bound,
        "target": "" if target is None else target.address,
        "targetKind": "" if target is None else target.kind,
        "targetId": rule.target_id,
        "chains": sorted(msgspec.json.decode(rule.starts, type=dict[str, int])),
        "active": active_of(rule),
        "problem": rule.problem,
        "createdAt": iso(rule.created_us),
    }


def delivery_document(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as one document: its state, its last attempt, and the event as decoded JSON.

    Keys are `id`, `rule`, `type`, `state`, `attempts`, `status`, `error`, `createdAt`, `attemptedAt` (None before the
    first attempt) and `event`.
    """
    return {
        "id": delivery.id,
        "rule": delivery.rule_id,
        "type": delivery.type,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "status": delivery.status,
        "error": delivery.error,
        "createdAt": iso(delivery.created_us),
        "attemptedAt": None if delivery.attempted_us is None else iso(delivery.attempted_us),
        "event": msgspec.json.decode(delivery.body),
    }


def secrets_of(target: Target, key: bytes, now_us: int) -> list[str]:
    """Return the valid secrets of a target, newest first. `key` is the state store's secret for alerts."""
    return [as_text(secret_of(key, target.id, number)) for number in target.valid_secrets(now_us)]


def new_rule(
    new: NewRule, ids: tuple[str, str], owner: str, starts: Mapping[str, int], now_us: int
) -> tuple[Rule, Target]:
    """Return a checked rule and its target as rows. `ids` are those of the rule and of the target."""
    subject, bound = checked_subject(new.kind, new.subject), checked_bound(new.kind, new.over, new.under)
    encoded = msgspec.json.encode(starts).decode()
    rule = alerts.Rule(ids[0], owner, new.kind, subject, bound, ids[1], encoded, now_us)
    return rule, alerts.Target(ids[1], owner, new.target_kind, new.target)


def iso(at_us: int) -> str:
    """Return a time in UTC as text."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).isoformat().replace("+00:00", "Z")


def active_of(rule: Rule) -> list[str]:
    """Return the names of what the condition of a rule holds for, by its last check."""
    return msgspec.json.decode(rule.active, type=list[str]) if rule.active else []
