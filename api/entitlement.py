"""Entitlements: the grants and plans that routes need, and the refusal without each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.api.auth import CHALLENGE
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Principal
from chainfolio.api.router import Route

PRO: Final = "pro"
OPERATOR_HINT: Final = "ask the operator of this server for it"

# The interface specifies 401 for a missing add-on, as for a missing key.
_MISSING: Final[Mapping[str, tuple[int, str]]] = {
    "portfolio": (403, "this needs the portfolio entitlement"),
    "at-block": (401, "this needs the Portfolio at Block add-on"),
    "enterprise": (403, "this needs an enterprise subscription"),
    "sql": (403, "this needs the SQL entitlement"),
    PRO: (403, "this needs a Pro subscription"),
}


def missing(route: Route, caller: Principal, now_us: int) -> Problem | None:
    """Return the refusal if the caller lacks the entitlement that the route needs, else None."""
    if not route.needs or entitled(route.needs, caller, now_us):
        return None
    status, reason = _MISSING[route.needs]
    headers = dict(CHALLENGE) if status == 401 else {}
    return Problem(status, f"{reason}; {OPERATOR_HINT}", code="FORBIDDEN", headers=headers)


def entitled(needs: str, caller: Principal, now_us: int) -> bool:
    """Return True if the caller has the entitlement now; an expired plan does not count."""
    if needs == PRO:
        return caller.plan == "PRO" and (caller.plan_expires_us is None or caller.plan_expires_us > now_us)
    return needs in caller.grants
