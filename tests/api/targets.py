"""Each route with the least that it takes: what a test over all routes sends."""

from __future__ import annotations

from typing import Final

from api.router import Route
from tests.api.fakes import ALICE

REQUIRED: Final = {
    "/v1/portfolio/at-block": f"?addresses={ALICE}&chainKey=ethereum&blockNumber=7",
    "/v1/historical": f"?addresses={ALICE}&date=2024-02-29",
    "/v1/transactions": f"?addresses={ALICE}&limit=10&offset=0",
}
BODIES: Final = {"/v1/sync-transactions": f'{{"addresses":["{ALICE}"]}}'}


def target(route: Route) -> str:
    """Path and query."""
    takes_addresses = "query" in route.arguments
    query = REQUIRED.get(route.path, f"?addresses={ALICE}" if takes_addresses else "")
    return route.path.replace("{chain}", "ethereum") + query


def body(route: Route) -> str:
    """The body; empty where none is taken."""
    return BODIES.get(route.path, "")
