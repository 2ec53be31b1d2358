"""An account that has something of everything, so that every route has something to answer."""

from __future__ import annotations

import uuid
from typing import Final

import sqlalchemy as sa

from chainfolio.api.errors import CODED, ERROR, MESSAGE, SHAPES
from chainfolio.api.router import Route
from chainfolio.settings import Quotas
from chainfolio.storage.state import (
    address_book,
    alerts,
    bundles,
    deliveries,
    saved_queries,
    schema,
    subscriptions,
    virtual_users,
)
from chainfolio.storage.state.database import Statement, Transaction, argument
from chainfolio.storage.state.saved_queries import SavedQuery
from tests.api import targets
from tests.api.fakes import ALICE, BOB, POOL
from tests.api.tenants import World

GRANTS: Final = ("portfolio", "at-block", "enterprise", "sql")
DOCUMENT: Final = b'[{"chain":"ethereum","contract":"native","amount":"1.5"}]'
_OWN = sa.select(schema.bundles.c.id).where(schema.bundles.c.account_id == argument("owner"))
_EMPTIED = [
    Statement(schema.bundle_members.delete().where(schema.bundle_members.c.bundle_id.in_(_OWN))),
    *(
        Statement(table.delete().where(table.c.account_id == argument("owner")))
        for table in (
            schema.bundles,
            schema.entries,
            schema.subscriptions,
            schema.virtual_users,
            schema.alert_deliveries,
            schema.alert_rules,
            schema.alert_targets,
            schema.saved_queries,
        )
    ),
]


def bundle_of(account_id: str) -> str:
    """The id of its bundle, which holds Alice and Bob."""
    return f"bundle-of-{account_id}"


def virtual_user_of(account_id: str) -> str:
    """The id of its virtual user."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, account_id))


def furnish(world: World, account_id: str) -> None:
    """Reset an account to three wallets in its address book, a bundle, a virtual user and a subscription."""
    now_us = world.state.clock.now_us()

    def work(tx: Transaction) -> None:
        for statement in _EMPTIED:
            tx.run(statement, owner=account_id)
        address_book.add(tx, account_id, {ALICE: "", BOB: "", POOL: ""}, Quotas(), now_us)
        bundles.create(tx, account_id, bundle_of(account_id), "Treasury", [ALICE, BOB], Quotas())
        subscriptions.add(tx, account_id, {ALICE: ""}, now_us)
        _add_alert(tx, account_id, bundle_of(account_id))
        saved_queries.save(tx, account_id, SavedQuery(f"q-{bundle_of(account_id)}", "SELECT 1", now_us), 100)
        virtual_users.add(tx, account_id, virtual_user_of(account_id), "BALANCE", "Safe", DOCUMENT, now_us)

    world.state.database.write(work)


def _add_alert(tx: Transaction, account_id: str, name: str) -> None:
    """A rule with a webhook, and an event of it that was given up."""
    target = alerts.Target(f"tgt_{name}", account_id, "webhook", "https://hooks.example/furnished")
    rule = alerts.Rule(f"alr_{name}", account_id, "credits", "", "under 5", target.id, "{}", 0)
    alerts.shared_target(tx, target)
    alerts.add_rule(tx, rule, 100)
    event = deliveries.Event(f"evt_{name}", account_id, target.id, rule.id, "credits.low", b'{"type":"credits.low"}')
    deliveries.add(tx, [event], 0)
    deliveries.record(tx, target, [deliveries.Attempt(event.id, 0, "dead", 500, "answered 500")], 0, 1)


def request_of(route: Route, account_id: str) -> tuple[str, str, bytes | None]:
    """A request to the route that a furnished account is answered: method, target and body."""
    target = targets.target(route, bundle_of(account_id), virtual_user_of(account_id))
    return route.method, target, targets.body(route).encode() or None


def fields_of_refusal(envelope: str, status: int) -> list[str]:
    """The fields of a refusal's body, as the family of routes words that status."""
    extras = {
        402: ["creditsAvailable", "creditsNeeded", "creditsRequired"],
        429: ["retryAfter", "retry_after"],
    }.get(status, [])
    return {
        MESSAGE: ["message"],
        ERROR: ["error"],
        CODED: ["error"],
    }.get(SHAPES[envelope].get(status, ""), sorted(["error", "message", *extras]))
