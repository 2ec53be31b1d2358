"""GET /healthz and /readyz: liveness and readiness, for process managers and load balancers."""

from __future__ import annotations

import msgspec

from chainfolio.api.context import Answer, Context, encoded
from chainfolio.api.router import get
from chainfolio.engine.results import Readiness


class Health(msgspec.Struct, frozen=True):
    """The process is alive."""

    status: str = "ok"


@get("/healthz", tag="Health", summary="Whether the process is alive", public=True, example={"status": "ok"})
async def healthz(request: Context) -> Health:
    """Returns 200 if the process is alive.

    Nodes and stores are not checked: the process must not be restarted because a node is down.
    """
    return Health()


@get(
    "/readyz",
    tag="Health",
    summary="Whether requests should be sent here, chain by chain",
    public=True,
    answers={200: Readiness, 503: Readiness},
    example={
        "ready": True,
        "stopping": False,
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
    """Returns the state of each chain and of the background tasks.

    A chain has its head, its newest indexed block, the lag, the problem if any, and its endpoints. The status is 503
    with the same body while the server is not ready. A task that failed is unhealthy until it makes progress. A server
    that was told to stop is not ready: `stopping` is true, and it answers requests until it closes its port.
    """
    readiness = await request.engine.readiness()
    if request.parts.stopping.is_set():
        readiness = msgspec.structs.replace(readiness, ready=False, stopping=True)
    return encoded(readiness, 200 if readiness.ready else 503)
