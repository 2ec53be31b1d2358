"""Who may call what: the grants and the plan that a route needs, and how each refusal is worded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.api.auth import CHALLENGE
from chainfolio.api.errors import Problem
from chainfolio.api.keys import Principal
from chainfolio.api.router import Route

PRO: Final = "pro"
ASK: Final = "ask the operator of this server for it"

# The service description answers a missing add-on like a missing key.
_MISSING: Final[Mapping[str, tuple[int, str]]] = {
    "portfolio": (403, "this needs the portfolio entitlement"),
    "at-block": (401, "this needs the Portfolio at Block add-on"),
    "enterprise": (403, "this needs an enterprise subscription"),
    PRO: (403, "this needs a Pro subscription"),
}


def missing(route: Route, caller: Principal, now_us: int) -> Problem | None:
    """The refusal where the caller lacks what the route needs."""
    if not route.needs or entitled(route.needs, caller, now_us):
        return None
    status, reason = _MISSING[route.needs]
    headers = dict(CHALLENGE) if status == 401 else {}
    return Problem(status, f"{reason}; {ASK}", code="FORBIDDEN", headers=headers)


def entitled(needs: str, caller: Principal, now_us: int) -> bool:
    """Whether the caller has it now: a plan that lapsed gives nothing, though it keeps its name."""
    if needs == PRO:
        return caller.plan == "PRO" and (caller.plan_expires_us is None or caller.plan_expires_us > now_us)
    return needs in caller.grants
