"""GET /healthz and /readyz: for whoever restarts the process and whoever sends it requests."""

from __future__ import annotations

import msgspec

from chainfolio.api.context import Answer, Context, encoded
from chainfolio.api.router import get
from chainfolio.engine.answers import Readiness


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "ok"


@get("/healthz", tag="Health", summary="Whether the process is alive", public=True, example={"status": "ok"})
async def healthz(request: Context) -> Health:
    """Looks at nothing else: a process whose node is down must not be restarted for it."""
    return Health()


@get(
    "/readyz",
    tag="Health",
    summary="Whether requests should be sent here, chain by chain",
    public=True,
    answers={200: Readiness, 503: Readiness},
    example={
        "ready": True,
        "chains": [
            {
                "key": "ethereum",
                "healthy": True,
                "head": 120,
                "indexed": 118,
                "lagBlocks": 2,
                "reason": None,
                "endpoints": [
                    {
                        "endpoint": "endpoint 1",
                        "height": 120,
                        "lagBlocks": 0,
                        "latencyMs": 12,
                        "faults": 0,
                        "quarantined": False,
                    }
                ],
            }
        ],
        "tasks": [{"task": "indexing", "chain": "ethereum", "healthy": True, "failures": 0, "reason": None}],
    },
)
async def readyz(request: Context) -> Answer:
    """503 while not ready, with the same body: each chain's head, what is indexed, the lag, what ails it, and the
    health of its endpoints; and the background tasks, of which one that failed is unhealthy until it makes progress."""
    readiness = await request.engine.readiness()
    return encoded(readiness, 200 if readiness.ready else 503)
