"""Build the endpoints of a chain from its settings and the stored facts about each."""

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
from chainfolio.transport.http_endpoint import EndpointRecord, identity
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
    """Build every configured endpoint of a chain, over one transport.

    No request is sent. Each endpoint may run twice `settings.concurrency` requests at once.

    Args:
        make: The endpoint class of the kind of chain.
        key: The chain.
        settings: Addresses and limits.
        environment: Clock, randomness and byte budget.
        memory: Stored capabilities, evidence and answers.
        transport: Replaces HTTP in tests.

    Raises:
        Unavailable: No endpoint is configured.
    """
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
            record=_record(memory, identity(url), environment.clock.now_us),
        )
        for url in settings.rpc
    ]


def _record(memory: EndpointMemory, endpoint: str, now_us: Callable[[], int]) -> EndpointRecord:
    """Return what is stored of an endpoint, and the functions that store changes."""
    return EndpointRecord(
        memory.capabilities(endpoint),
        partial(memory.on_capability, endpoint),
        _decode_evidence(memory.quarantined(endpoint)),
        partial(_store_evidence, memory.on_quarantine, endpoint),
        RecentAnswers(endpoint, memory.answers, now_us) if memory.answers else None,
    )


def _store_evidence(on_quarantine: Callable[[str, bytes], None], endpoint: str, evidence: Evidence) -> None:
    on_quarantine(endpoint, msgspec.json.encode(evidence))


def _decode_evidence(content: bytes | None) -> Evidence | None:
    return None if content is None else msgspec.json.decode(content, type=Evidence)
