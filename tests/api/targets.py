"""Each route with the least that it takes: what a test over all routes sends."""

from __future__ import annotations

from typing import Final

from chainfolio.api.router import Route
from chainfolio.api.routes import ROUTES
from tests.api.fakes import ALICE, BOB, POOL, SOL

NOBODYS: Final = "00000000-0000-4000-8000-000000000000"
# What stands in the paths; and what the routes require that do not ask for addresses, or for more than these.
IN_PATHS: Final = {
    "{chain}": "ethereum",
    "{key}": "ethereum",
    "{index}": "7",
    "{pubkey}": "0x" + "ab" * 48,
    "{address}": ALICE,
    "{kind}": "transactions",
}
REQUIRED: Final = {
    "/v1/portfolio/at-block": f"addresses={ALICE}&chainKey=ethereum&blockNumber=7",
    "/v1/historical": f"addresses={ALICE}&date=2024-02-29",
    "/v1/transactions": f"addresses={ALICE}&limit=10&offset=0",
    "/v1/chains/{key}/protocols": "",
    "/v1/beacon/validators/rewards/index/{index}": "rangeType=epoch&rangeFrom=0&rangeTo=1&granularity=day",
    "/v1/beacon/validators/rewards/pubkey/{pubkey}": "rangeType=epoch&rangeFrom=0&rangeTo=1&granularity=day",
    "/v1/token-overview": f"addresses={ALICE}&date=2026-03-01",
    "/v1/performance": f"addresses={ALICE}&startDate=2026-02-01&endDate=2026-03-01",
    "/v1/contract-protocol": f"contract={POOL}",
}
# By the name of the operation.
BODIES: Final = {
    "sync_transactions": f'{{"addresses":["{ALICE}"]}}',
    "subscribe_snapshot": f'{{"addresses":[{{"address":"{BOB}"}}]}}',
    "add_entries": f'{{"entries":[{{"address":"{SOL}"}}]}}',
    "rename_entry": '{"label":"Cold"}',
    "create_bundle": f'{{"name":"Other","addresses":["{ALICE}"]}}',
    "rename_bundle": '{"name":"Vault"}',
    "add_alert": f'{{"kind":"transaction","subject":"{BOB}","url":"https://hooks.example/"}}',
    "rotate_secret": '{"overlapHours":1}',
    "run_sql": '{"query":"SELECT 1"}',
    "save_query": '{"name":"mine","query":"SELECT 1"}',
    "add_member": f'{{"address":"{POOL}"}}',
}


def path_of(route: Route, bundle: str = "b") -> str:
    """A path that leads to the route."""
    path = route.path
    for name, value in {
        **IN_PATHS,
        "{bundleId}": bundle,
        "{alertId}": f"alr_{bundle}",
        "{deliveryId}": f"evt_{bundle}",
        "{name}": f"q-{bundle}",
    }.items():
        path = path.replace(name, value)
    return path


def target(route: Route, bundle: str = "b", virtual_user: str = NOBODYS) -> str:
    """Path and query."""
    path = path_of(route, bundle)
    query = f"addresses=virtual:{virtual_user}" if route.name == "virtual_users_portfolio" else REQUIRED.get(route.path)
    if query is None:
        fields = getattr(route.arguments.get("query"), "__struct_fields__", ())
        query = f"addresses={ALICE}" if "addresses" in fields else ""
    return f"{path}?{query}" if query else path


def body(route: Route) -> str:
    """The body; empty where none is taken."""
    return BODIES.get(route.name, "")


# These routes read a tenant's rows from a store; the fakes have none.
KEPT: Final = (
    "/v1/addressbook",
    "/v1/bundles",
    "/v1/virtual-users",
    "/v1/subscribe-snapshot",
    "/v1/alerts",
    "/v1/alert-deliveries",
    "/v1/sql",
)
TARGETS: Final = [target(route) for route in ROUTES if route.method == "GET" and not route.path.startswith(KEPT)]
KEYED: Final = [route for route in ROUTES if not route.public]
