"""Readiness of each chain of a server, by the state of worker and tail: no node is asked.

The response needs no key, so endpoints have numbers, in the order of the settings, and no hosts or ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chainfolio.blocks import ahead_of_clock
from chainfolio.engine.results import ChainReadiness, EndpointHealth, Readiness, TaskHealth
from chainfolio.messages import public

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.follow import Status
    from chainfolio.indexer.parts import IndexedChains
    from chainfolio.supervisor import Supervisor, Task


def readiness(system: IndexedChains, indexing: Mapping[str, Status], supervisor: Supervisor) -> Readiness:
    """Return the readiness of all chains and tasks.

    Args:
        indexing: Status of each chain in the worker, if the server runs one.
    """
    chains = [_chain(system, chain, indexing.get(chain.key), supervisor) for chain in system.chains]
    serves = not chains or any(chain.healthy for chain in chains)
    names = {name: number for chain in system.chains for name, number in _numbers(chain).items()}
    tasks = [_task_health(task, names) for task in supervisor.tasks]
    return Readiness(ready=serves and not supervisor.problems(), chains=chains, tasks=tasks)


def _chain(system: IndexedChains, chain: Chain, status: Status | None, supervisor: Supervisor) -> ChainReadiness:
    """Return the readiness of a chain: unhealthy if it is halted, has a problem, or is ahead of the clock.

    A problem of one read is a reason, but not unhealthy. `lag_blocks` is None until the head was read. Reasons do not
    name endpoints. Without a status, nothing in this process indexes the chain: only the clock counts.
    """
    tail = system.tail
    top = tail.top(chain.key) or tail.anchor(chain.key)
    indexed = top.height if top else None
    newest_us = max([top.time_us if top else 0, *(each.head_us or 0 for each in chain.health())])
    clock_problem = ahead_of_clock(newest_us, system.environment.clock.now_us())
    if status is None:
        return ChainReadiness(
            key=chain.key,
            healthy=not clock_problem,
            indexed=indexed,
            reason=clock_problem or None,
            endpoints=_endpoints(chain),
        )
    problems = [*([clock_problem] if clock_problem else []), *supervisor.problems(chain.key)]
    reason = _anonymous("; ".join(problems) or status.halted or status.problem, _numbers(chain)) or None
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


def _numbers(chain: Chain) -> dict[str, str]:
    """Return the public name (`endpoint 1` …) of each endpoint of a chain."""
    return {each.endpoint: f"endpoint {number}" for number, each in enumerate(chain.health(), 1)}


def _anonymous(text: str, names: Mapping[str, str]) -> str:
    """Return a text without the words of nodes, and with public names of endpoints."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return public(text)


def _task_health(task: Task, names: Mapping[str, str]) -> TaskHealth:
    """Return the health of a task; its reason has no names of endpoints."""
    return TaskHealth(
        task=task.name,
        chain=task.chain or None,
        healthy=not task.problem,
        failures=task.failures,
        reason=_anonymous(task.problem, names) or None,
    )


def _endpoints(chain: Chain) -> list[EndpointHealth]:
    """Return the health of a chain's endpoints as `endpoint 1`, `endpoint 2` and so on.

    Their names are left out, and their evidence: it may repeat a customer's request.
    """
    return [
        EndpointHealth(
            endpoint=f"endpoint {number}",
            height=each.height,
            lag_blocks=each.lag_blocks,
            latency_ms=each.latency_ms,
            faults=each.faults,
            quarantined=each.quarantined,
        )
        for number, each in enumerate(chain.health(), 1)
    ]
