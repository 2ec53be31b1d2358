"""The kinds of rules: what each needs, and the checks of a new rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from chainfolio.assets import account
from chainfolio.errors import BadRequest

Subject = Literal["address", "asset", "validator", "name", "none"]
NUMBER: Final = re.compile(r"[0-9]{1,30}(\.[0-9]{1,18})?", re.ASCII)
MAX_SUBJECT: Final = 200


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rule.

    Attributes:
        type: Type of its events in their bodies.
        subject: What the rule is about.
        bounds: Bounds that it may have; it needs one of them if there are any.
        help: The event in words.
        of_blocks: True if its events follow from indexed blocks, False if a condition is checked regularly.
        for_operator: True if only the operator may add it, because it shows the state of the service.
    """

    type: str
    subject: Subject
    bounds: tuple[str, ...]
    help: str
    of_blocks: bool = False
    for_operator: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "transaction": Kind("transaction.new", "address", (), "a new transaction of a wallet", of_blocks=True),
    "incoming": Kind("value.incoming", "address", ("over",), "a wallet gets more than X USD", of_blocks=True),
    "outgoing": Kind("value.outgoing", "address", ("over",), "more than X USD leave a wallet", of_blocks=True),
    "approval": Kind("approval.granted", "address", (), "a wallet lets another spend a token", of_blocks=True),
    "approval-used": Kind(
        "approval.used", "address", (), "assets leave a wallet in a transaction of another", of_blocks=True
    ),
    "liquidation": Kind("position.liquidated", "address", (), "a loan of a wallet is liquidated", of_blocks=True),
    "health-factor": Kind("position.unhealthy", "address", ("under",), "the health of a loan falls under X"),
    "validator": Kind("validator.problem", "validator", (), "a validator is offline or slashed"),
    "price": Kind("price.crossed", "asset", ("over", "under"), "a price in USD rises over, or falls under X"),
    "balance": Kind("balance.differs", "address", (), "a balance differs from the history"),
    "credits": Kind("credits.low", "none", ("under",), "the account has fewer than X credits"),
    "job": Kind("job.failed", "name", (), "a recurring job fails", for_operator=True),
    "endpoint": Kind("endpoint.unhealthy", "name", (), "an endpoint is unhealthy", for_operator=True),
}


def kind_of(name: str) -> Kind:
    """Return a kind of rule by its name.

    Raises:
        BadRequest: There is no such kind.
    """
    if name not in KINDS:
        raise BadRequest("kind", f"`{name}` is none of {', '.join(KINDS)}")
    return KINDS[name]


def checked_subject(name: str, subject: str) -> str:
    """Return the subject of a new rule in its canonical form.

    Raises:
        BadRequest: The kind needs another subject, or none.
    """
    kind = kind_of(name)
    if kind.subject == "none":
        if subject:
            raise BadRequest("subject", f"a rule `{name}` has no subject: it is about the account")
        return ""
    if len(subject) > MAX_SUBJECT:
        raise BadRequest("subject", f"longer than {MAX_SUBJECT} characters")
    if kind.subject == "address":
        return account(subject).address
    if kind.subject != "name" and not subject:
        raise BadRequest("subject", f"a rule `{name}` needs the {kind.subject} that it is about")
    if kind.subject == "validator" and not re.fullmatch(r"[0-9]{1,12}|0x[0-9a-f]{96}", subject):
        raise BadRequest("subject", f"`{subject}` is no index and no public key of a validator")
    return subject


def checked_bound(name: str, over: str | None, under: str | None) -> str:
    """Return the bound of a new rule as text (`over 5`), empty if its kind has none.

    Raises:
        BadRequest: The kind needs another bound, or the bound is no decimal.
    """
    bounds = {side: text for side, text in (("over", over), ("under", under)) if text is not None}
    kind = kind_of(name)
    if not kind.bounds and not bounds:
        return ""
    if len(bounds) != 1 or not bounds.keys() <= {*kind.bounds}:
        needed = f"one bound: {' or '.join(kind.bounds)}" if kind.bounds else "no bound"
        raise BadRequest("bound", f"a rule `{name}` has {needed}")
    ((side, text),) = bounds.items()
    if not NUMBER.fullmatch(text):
        raise BadRequest(side, f"`{text[:40]}` is not a decimal of at least 0")
    return f"{side} {text}"


def is_crossed(bound: str, value: Decimal) -> bool:
    """Return True if a value is beyond a bound; True for an empty bound."""
    side, _, text = bound.partition(" ")
    return not bound or (value > Decimal(text) if side == "over" else value < Decimal(text))
