"""Every route as a request that it answers: its path filled in, with the parameters it requires."""

from __future__ import annotations

from typing import Final

from api.routes import ROUTES
from tests.api.fakes import ALICE, POOL

# What stands in the paths; and what the routes require that do not ask for addresses, or for more than these.
IN_PATHS: Final = {"{key}": "ethereum", "{index}": "7", "{pubkey}": "0x" + "ab" * 48}
REQUIRED: Final = {
    "/v1/chains": "",
    "/v1/beacon/validators/rewards": "rangeType=epoch&rangeFrom=0&rangeTo=1&granularity=day",
    "/v1/beacon": "",
    "/v1/token-overview": f"addresses={ALICE}&date=2026-03-01",
    "/v1/contract-protocol": f"contract={POOL}",
}


def filled(path: str) -> str:
    """A route's path with values in it."""
    for name, value in IN_PATHS.items():
        path = path.replace(name, value)
    return path


def target(path: str) -> str:
    """A filled path with what it requires."""
    if not path.startswith("/v1"):
        return path
    query = next((query for start, query in REQUIRED.items() if path.startswith(start)), f"addresses={ALICE}")
    return f"{path}?{query}" if query else path


PATHS: Final = [filled(route.path) for route in ROUTES]
KEYED: Final = [filled(route.path) for route in ROUTES if not route.public]
