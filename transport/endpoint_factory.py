"""The endpoints of a chain as its settings name them, each with what is remembered of it over a restart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from chainfolio.environment import Environment
from chainfolio.errors import Unavailable
from chainfolio.kinds import EndpointMemory
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.health import Evidence
from chainfolio.transport.http import HttpTransport, Transport
from chainfolio.transport.http_endpoint import identity
from chainfolio.transport.recent_answers import RecentAnswers
from chainfolio.transport.settings import EndpointSettings

NO_MEMORY = EndpointMemory()
E = TypeVar("E", bound=Endpoint)


def make_endpoints(
    make: Callable[..., E],
    key: str,
    settings: EndpointSettings,
    environment: Environment,
    *,
    memory: EndpointMemory = NO_MEMORY,
    transport: Transport | None = None,
) -> list[E]:
    """Every endpoint of a chain, over one transport. Unavailable where none is configured."""
    if not settings.rpc:
        raise Unavailable(key, "no endpoint is configured", remedy=f"set chains.{key}.rpc in the settings")
    shared = transport or HttpTransport(environment.answers)
    return [
        make(
            url,
            shared,
            environment,
            timeout_s=settings.timeout_s,
            max_rps=settings.max_rps,
            concurrency=settings.concurrency * 2,
            capabilities=memory.capabilities(known),
            on_capability=partial(memory.on_capability, known),
            evidence=_evidence(memory.quarantined(known)),
            on_quarantine=partial(_keep, memory.on_quarantine, known),
            recent=RecentAnswers(known, memory.answers, environment.clock.now_us) if memory.answers else None,
        )
        for url in settings.rpc
        for known in [identity(url)]
    ]


def _keep(on_quarantine: Callable[[str, bytes], None], endpoint: str, evidence: Evidence) -> None:
    on_quarantine(endpoint, msgspec.json.encode(evidence))


def _evidence(kept: bytes | None) -> Evidence | None:
    return None if kept is None else msgspec.json.decode(kept, type=Evidence)
