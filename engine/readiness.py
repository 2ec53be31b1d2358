"""How far each chain of a server is, and whether it can answer, by what worker and tail know: no node is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chainfolio.blocks import ahead_of_clock
from chainfolio.messages import public
from engine.answers import ChainReadiness, EndpointHealth, Readiness, TaskHealth

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.supervisor import Supervisor, Task
    from indexer.follow import Status
    from indexer.wiring import System


def readiness(system: System, indexing: Mapping[str, Status], supervisor: Supervisor) -> Readiness:
    """Every chain and task. `indexing` is what the worker knows, where one runs beside the server."""
    chains = [_chain(system, chain, indexing.get(chain.key), supervisor) for chain in system.chains]
    serves = not chains or any(chain.healthy for chain in chains)
    tasks = [_task_health(task) for task in supervisor.tasks]
    return Readiness(ready=serves and not supervisor.problems(), chains=chains, tasks=tasks)


def _chain(system: System, chain: Chain, status: Status | None, supervisor: Supervisor) -> ChainReadiness:
    tail = system.tail
    top = tail.top(chain.key) or tail.anchor(chain.key)
    indexed = top.height if top else None
    newest_us = max([top.time_us if top else 0, *(each.head_us or 0 for each in chain.health())])
    wrong = ahead_of_clock(newest_us, system.seams.clock.now_us())
    if status is None:
        return ChainReadiness(
            key=chain.key, healthy=not wrong, indexed=indexed, reason=wrong or None, endpoints=_endpoints(chain)
        )
    problems = [*([wrong] if wrong else []), *supervisor.problems(chain.key)]
    reason = public("; ".join(problems) or status.halted or status.problem) or None
    lag = max(0, status.head - (indexed or 0)) if status.head else None
    return ChainReadiness(
        key=chain.key,
        healthy=not status.halted and not problems,
        head=status.head or None,
        indexed=indexed,
        lag_blocks=lag,
        reason=reason,
        endpoints=_endpoints(chain),
    )


def _task_health(task: Task) -> TaskHealth:
    return TaskHealth(
        task=task.name,
        chain=task.chain or None,
        healthy=not task.problem,
        failures=task.failures,
        reason=public(task.problem) or None,
    )


def _endpoints(chain: Chain) -> list[EndpointHealth]:
    """The health of a chain's endpoints, without the evidence: it may repeat what somebody asked."""
    return [
        EndpointHealth(
            endpoint=each.endpoint,
            height=each.height,
            lag_blocks=each.lag_blocks,
            latency_ms=each.latency_ms,
            faults=each.faults,
            quarantined=each.quarantined,
        )
        for each in chain.health()
    ]
