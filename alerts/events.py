"""Ids, types and bodies of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from chainfolio.alerts.kinds import KINDS
from chainfolio.storage.state.alerts import Rule
from chainfolio.storage.state.deliveries import Delivery, Event

CORRECTION: Final = "event.corrected"
TEST: Final = "event.test"
ID_DIGITS: Final = 40


def event(
    rule: Rule, key: str, at_us: int, data: Mapping[str, Any], *, chain: str = "", height: int | None = None
) -> Event:
    """Return an event of a rule. The same rule and key give the same id."""
    kind = KINDS[rule.kind]
    id = "evt_" + sha256(f"{rule.id}\n{chain}\n{key}".encode()).hexdigest()[:ID_DIGITS]
    content = {"rule": rule.id, "kind": rule.kind, **data}
    return Event(
        id, rule.account_id, rule.target_id, rule.id, kind.type, _body(kind.type, at_us, content), chain, height
    )


def restored(new: Event, number: int) -> Event:
    """Return an event that is valid again after `number` corrections, with a new id; unchanged for 0."""
    return replace(new, id=f"{new.id}_{number}") if number else new


def trial(rule: Rule, key: str, now_us: int) -> Event:
    """Return a test event of a rule, by which its receiver can be tried. The same key gives the same id."""
    new = event(rule, f"test {key}", now_us, {})
    content = {"rule": rule.id, "kind": rule.kind, "subject": rule.subject}
    return Event(new.id, new.account_id, new.target_id, new.rule_id, TEST, _body(TEST, now_us, content))


def correction(wrong: Delivery, now_us: int) -> Event:
    """Return the correction of an event whose block has left the chain."""
    content_sent = msgspec.json.decode(wrong.body)
    reason = "the block has left the chain, or has other transactions now"
    content = {"rule": wrong.rule_id, "corrects": wrong.id, "reason": reason, "event": content_sent}
    id = f"cor_{sha256(wrong.id.encode()).hexdigest()[:ID_DIGITS]}"
    body = _body(CORRECTION, now_us, content)
    return Event(id, wrong.account_id, wrong.target_id, wrong.rule_id, CORRECTION, body, wrong.chain)


def base_of(event_id: str) -> tuple[str, int]:
    """Return the id without the number of its return, and that number."""
    head, mark, number = event_id[4:].partition("_")
    return event_id[:4] + head, int(number) if mark else 0


def _body(type_: str, at_us: int, data: Mapping[str, Any]) -> bytes:
    time = datetime.fromtimestamp(at_us // 1_000_000, UTC).isoformat().replace("+00:00", "Z")
    return msgspec.json.encode({"type": type_, "timestamp": time, "data": data})
