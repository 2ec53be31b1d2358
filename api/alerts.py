"""/v1/alerts: rules of an account, and the deliveries of their events to webhooks."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from chainfolio.alerts import rules as documents
from chainfolio.alerts.events import trial
from chainfolio.alerts.kinds import KINDS, kind_of
from chainfolio.alerts.signing import PURPOSE
from chainfolio.api.changes import change
from chainfolio.api.context import Answer, Context
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.router import RouteOptions, get, write
from chainfolio.assets import account
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, alerts, deliveries
from chainfolio.storage.state.credentials import BASE62
from chainfolio.storage.state.database import Transaction

MAX_LISTED: Final = 1000
HOUR_US: Final = 3_600_000_000
ID_LENGTH: Final = 16
OFFERED: Final = tuple(name for name, kind in KINDS.items() if not kind.for_operator)
FAMILY: Final[RouteOptions] = {"tag": "Alerts", "needs": "portfolio", "cost": 1}
Kind = Literal[
    "transaction",
    "incoming",
    "outgoing",
    "approval",
    "approval-used",
    "liquidation",
    "health-factor",
    "validator",
    "price",
    "balance",
    "credits",
]
Bound = Annotated[
    str | None,
    msgspec.Meta(description="An exact decimal; in USD for values and prices.", examples=["1000"]),
]


class NewAlert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule to add. `kind` decides what `subject` is, and whether it needs `over` or `under`."""

    kind: Kind
    url: Annotated[
        str,
        msgspec.Meta(
            description="The webhook: an http or https URL of a public host.",
            max_length=2000,
            examples=["https://hooks.example/wallet"],
        ),
    ]
    subject: Annotated[
        str, msgspec.Meta(description="An address, asset or validator; empty for `credits`.", examples=[WALLET])
    ]
    over: Bound = None
    under: Bound = None

    def __post_init__(self) -> None:
        try:
            self.requested.check(is_operator=False)
        except BadRequest as error:
            raise ValueError(f"`{error.field}`: {error.reason}") from None

    @property
    def requested(self) -> documents.NewRule:
        """The rule, unchecked."""
        return documents.NewRule(self.kind, self.subject, "webhook", self.url, self.over, self.under)


class NewSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long the newest secret before the new one stays valid."""

    overlap_hours: Annotated[int, msgspec.Meta(description="Hours.", ge=0, le=720, examples=[24])]


class AlertPath(msgspec.Struct, frozen=True, rename="camel"):
    """Id of a rule."""

    alert_id: Annotated[str, msgspec.Meta(description="Id of a rule.", examples=["alr_1"])]


class DeliveryPath(msgspec.Struct, frozen=True, rename="camel"):
    """Id of a delivery."""

    delivery_id: Annotated[str, msgspec.Meta(description="Id of a delivery.", examples=["evt_1"])]


class DeliveriesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The newest deliveries of one state, or of all."""

    state: Annotated[
        Literal["pending", "done", "dead"] | None, msgspec.Meta(description="`dead`: given up after three days.")
    ] = None
    limit: Annotated[int, msgspec.Meta(description="Maximum number of items.", ge=1, le=MAX_LISTED)] = 100


class Alert(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule.

    `active` is what its condition holds for, `problem` why it could not be checked the last time.
    """

    id: str
    kind: str
    subject: str
    bound: str
    target: str
    target_kind: str
    target_id: str
    chains: list[str]
    active: list[str]
    problem: str
    created_at: str


class Alerts(msgspec.Struct, frozen=True):
    """Rules in the order in which they were added."""

    data: list[Alert]


class Secrets(msgspec.Struct, frozen=True):
    """The secrets of a webhook that are valid now, the newest first."""

    data: list[str]


class Delivery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event with its last attempt. `event` is the body as it was sent."""

    id: str
    rule: str
    type: str
    state: str
    attempts: int
    status: int | None
    error: str
    created_at: str
    attempted_at: str | None
    event: dict[str, Any]


class Deliveries(msgspec.Struct, frozen=True):
    """Deliveries, the newest first."""

    data: list[Delivery]


EXAMPLE: Final = {
    "id": "alr_1",
    "kind": "incoming",
    "subject": WALLET,
    "bound": "over 1000",
    "target": "https://hooks.example/wallet",
    "targetKind": "webhook",
    "targetId": "tgt_1",
    "chains": ["ethereum"],
    "active": [],
    "problem": "",
    "createdAt": "2026-03-01T12:00:00Z",
}
DELIVERY: Final = {
    "id": "evt_1",
    "rule": "alr_1",
    "type": "event.test",
    "state": "done",
    "attempts": 1,
    "status": 204,
    "error": "",
    "createdAt": "2026-03-01T12:00:00Z",
    "attemptedAt": "2026-03-01T12:00:01Z",
    "event": {"type": "event.test", "timestamp": "2026-03-01T12:00:00Z", "data": {"rule": "alr_1"}},
}
UNKNOWN: Final = {404: "The account has no such rule or delivery."}


@get("/v1/alerts", summary="All rules", example={"data": [EXAMPLE]}, **FAMILY)
async def list_alerts(request: Context) -> Alerts:
    """Returns the rules of the account, in the order in which they were added."""
    owner = request.principal.account_id

    def work(tx: Transaction) -> Alerts:
        targets = alerts.targets(tx, owner)
        return Alerts([_alert(each, targets.get(each.target_id)) for each in alerts.rules(tx, owner)])

    return await request.parts.state.read(work)


@write("POST", "/v1/alerts", summary="Add a rule", answers={200: Alert}, example=EXAMPLE, **FAMILY)
async def add_alert(request: Context, body: NewAlert) -> Answer:
    """Adds a rule whose events go to a webhook, signed as Standard Webhooks.

    Blocks count from now on. The secret is at `/v1/alerts/{alertId}/secrets`; rules with the same URL share it.
    """
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    new, max_rules = body.requested, request.parts.settings.alerts.max_rules
    starts = await request.engine.heads.newest_of(account(new.subject)) if kind_of(new.kind).of_blocks else {}
    rule, target = documents.new_rule(new, (_id(request, "alr"), _id(request, "tgt")), owner, starts, now_us)

    def work(tx: Transaction) -> Alert:
        stored = documents.add(tx, rule, target, max_rules, request.principal.key_id)
        return _alert(stored, alerts.target(tx, stored.target_id))

    return await change(request, work)


@write("DELETE", "/v1/alerts/{alertId}", summary="Remove a rule", answers={204: Answer}, fails=UNKNOWN, **FAMILY)
async def remove_alert(request: Context, path: AlertPath) -> Answer:
    """Removes a rule and ends its pending deliveries."""
    owner = request.principal.account_id

    def work(tx: Transaction) -> None:
        accounts.lock(tx, owner)
        alerts.remove_rule(tx, owner, path.alert_id)

    return await change(request, work, 204)


@get(
    "/v1/alerts/{alertId}/secrets",
    summary="Secrets of a rule's webhook",
    fails=UNKNOWN,
    example={"data": ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]},
    **FAMILY,
)
async def alert_secrets(request: Context, path: AlertPath) -> Secrets:
    """Returns the secrets that sign now, the newest first. A request has one signature for each of them."""
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    key = request.parts.state.secret(PURPOSE)

    def work(tx: Transaction) -> Secrets:
        target = alerts.target(tx, alerts.rule(tx, owner, path.alert_id).target_id)
        return Secrets([] if target is None else documents.secrets_of(target, key, now_us))

    return await request.parts.state.read(work)


@write(
    "POST",
    "/v1/alerts/{alertId}/rotate",
    summary="Add a secret",
    answers={200: Alert},
    example=EXAMPLE,
    fails=UNKNOWN,
    **FAMILY,
)
async def rotate_secret(request: Context, path: AlertPath, body: NewSecret) -> Answer:
    """Adds a secret to the webhook of a rule.

    The last one stays valid for `overlapHours`, older ones to their end.
    """
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()

    def work(tx: Transaction) -> Alert:
        accounts.lock(tx, owner)
        rule = alerts.rule(tx, owner, path.alert_id)
        target = alerts.rotate(tx, owner, rule.target_id, body.overlap_hours * HOUR_US, now_us)
        return _alert(rule, target)

    return await change(request, work)


@write(
    "POST",
    "/v1/alerts/{alertId}/test",
    summary="Send a test event",
    answers={200: Delivery},
    example=DELIVERY,
    fails=UNKNOWN,
    **FAMILY,
)
async def test_alert(request: Context, path: AlertPath) -> Answer:
    """Stores a test event of a rule, which is delivered within seconds.

    `/v1/alert-deliveries` has the result.
    """
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    key = _id(request, "test")

    def work(tx: Transaction) -> Delivery:
        test = trial(alerts.rule(tx, owner, path.alert_id), key, now_us)
        deliveries.add(tx, [test], now_us)
        return _delivery(deliveries.one(tx, owner, test.id))

    return await change(request, work)


@get("/v1/alert-deliveries", summary="Deliveries", example={"data": [DELIVERY]}, **FAMILY)
async def list_deliveries(request: Context, query: DeliveriesQuery) -> Deliveries:
    """Returns events and their last attempts, the newest first."""
    owner, state = request.principal.account_id, query.state or ""
    stored = await request.parts.state.read(lambda tx: deliveries.listing(tx, owner, state, query.limit))
    return Deliveries([_delivery(each) for each in stored])


@write(
    "POST",
    "/v1/alert-deliveries/{deliveryId}/replay",
    summary="Deliver an event again",
    answers={200: Delivery},
    example=DELIVERY,
    fails=UNKNOWN,
    **FAMILY,
)
async def replay_delivery(request: Context, path: DeliveryPath) -> Answer:
    """Makes an event pending again, for three more days."""
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()

    def work(tx: Transaction) -> Delivery:
        deliveries.replay(tx, owner, path.delivery_id, now_us)
        return _delivery(deliveries.one(tx, owner, path.delivery_id))

    return await change(request, work)


ROUTES: Final = (
    list_alerts,
    add_alert,
    remove_alert,
    alert_secrets,
    rotate_secret,
    test_alert,
    list_deliveries,
    replay_delivery,
)


def _alert(rule: alerts.Rule, target: alerts.Target | None) -> Alert:
    return msgspec.convert(documents.rule_document(rule, target), Alert)


def _delivery(delivery: deliveries.Delivery) -> Delivery:
    return msgspec.convert(documents.delivery_document(delivery), Delivery)


def _id(request: Context, kind: str) -> str:
    return f"{kind}_{''.join(request.parts.environment.random.choices(BASE62, k=ID_LENGTH))}"
