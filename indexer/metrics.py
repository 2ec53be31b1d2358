"""Prometheus metrics of the worker: the state of chains and the errors of endpoints.

Labels contain no secret: an endpoint is its host and port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chainfolio.capabilities import Capability, find_capability
from chainfolio.errors import BadSettings

if TYPE_CHECKING:
    from chainfolio.chain_results import EndpointHealth
    from chainfolio.indexer.schedule import JobSchedule
    from chainfolio.indexer.worker import Worker
    from chainfolio.supervisor import Supervisor


class WorkerMetrics:
    """Metrics of a worker, computed at each scrape."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._chains()
        yield from self._endpoints()

    def _chains(self) -> Iterable[Metric]:
        """Return heights, whether a chain is halted, and counts of reorganisations and recoveries, by chain.

        Heights of a chain that another process indexes are left out.
        """
        head = GaugeMetricFamily("chainfolio_head_block", "newest block of the node", labels=["chain"])
        indexed = GaugeMetricFamily("chainfolio_indexed_block", "newest block that is indexed", labels=["chain"])
        halted = GaugeMetricFamily("chainfolio_halted", "1 where a chain has stopped", labels=["chain"])
        reorgs = CounterMetricFamily("chainfolio_reorgs", "reorganisations undone", labels=["chain"])
        recovered_reorgs = CounterMetricFamily(
            "chainfolio_healed", "times a chain left its final past and was indexed again", labels=["chain"]
        )
        for key, status in self._worker.status.items():
            # If another process indexes the chain, nothing is known here, and 0 would be wrong.
            if status.head:
                head.add_metric([key], status.head)
                indexed.add_metric([key], status.indexed)
            if status.head or status.halted:
                halted.add_metric([key], 1 if status.halted else 0)
            reorgs.add_metric([key], status.reorgs)
            recovered_reorgs.add_metric([key], status.recovered_reorgs)
        return head, indexed, halted, reorgs, recovered_reorgs

    def _endpoints(self) -> Iterable[Metric]:
        """Return metrics by endpoint, and the hedged reads and listener failures by chain."""
        labels = ["chain", "endpoint"]
        requests = CounterMetricFamily("chainfolio_node_requests", "HTTP requests to nodes", labels=labels)
        errors = CounterMetricFamily("chainfolio_node_errors", "what went wrong, by kind", labels=[*labels, "kind"])
        gauges = {
            name: GaugeMetricFamily(f"chainfolio_node_{name}", description, labels=labels)
            for name, description in (
                ("height", "newest block that an endpoint claimed"),
                ("lag_blocks", "blocks behind the best endpoint"),
                ("latency_seconds", "average of its exchanges, the newest weighing most"),
                ("faults", "how many of its last exchanges came to nothing"),
                ("quarantined", "1 if it gave wrong data and gets no requests"),
            )
        }
        hedged = CounterMetricFamily("chainfolio_node_hedged", "reads asked of a second endpoint", labels=["chain"])
        listeners = CounterMetricFamily(
            "chainfolio_listener_failures", "times that listening to nodes ended by an error of ours", labels=["chain"]
        )
        for chain in self._worker.system.chains:
            health = chain.health()
            if (listener := find_capability(chain, Capability.HEAD_EVENTS)) is not None:
                listeners.add_metric([chain.key], listener.listener_failures)
            hedged.add_metric([chain.key], sum(each.hedged for each in health))
            for each in health:
                for name, value in _known_figures(each).items():
                    gauges[name].add_metric([chain.key, each.endpoint], value)
                requests.add_metric([chain.key, each.endpoint], each.requests)
                for kind, count in each.errors.items():
                    errors.add_metric([chain.key, each.endpoint, kind], count)
        return requests, errors, hedged, listeners, *gauges.values()


class TaskMetrics:
    """Metrics of a process's background tasks, computed at each scrape."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the failures and the health of each background task, with its chain ("" without one)."""
        labels = ["task", "chain"]
        failures = CounterMetricFamily("chainfolio_task_failures", "failed runs of a background task", labels=labels)
        healthy = GaugeMetricFamily(
            "chainfolio_task_healthy", "0 from a background task's failure until it makes progress", labels=labels
        )
        for task in self._supervisor.tasks:
            failures.add_metric([task.name, task.chain], task.failures)
            healthy.add_metric([task.name, task.chain], 0 if task.problem else 1)
        yield failures
        yield healthy


class JobMetrics:
    """Metrics of a process's recurring jobs, computed at each scrape."""

    def __init__(self, jobs: JobSchedule) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. A job has no duration and no end before its first run has ended."""
        labels = ["job", "chain"]
        runs = CounterMetricFamily("chainfolio_job_runs", "runs of a recurring job that have ended", labels=labels)
        skipped = CounterMetricFamily("chainfolio_job_skipped", "firings while a run still lasted", labels=labels)
        missed = CounterMetricFamily("chainfolio_job_missed", "firings that came too late", labels=labels)
        running = GaugeMetricFamily("chainfolio_job_running", "1 while a run lasts", labels=labels)
        failed = GaugeMetricFamily("chainfolio_job_failed", "1 if the last run failed", labels=labels)
        took = GaugeMetricFamily("chainfolio_job_seconds", "duration of the last run", labels=labels)
        ended = GaugeMetricFamily("chainfolio_job_ended_timestamp_seconds", "end of the last run", labels=labels)
        for job in self._jobs.jobs.values():
            values = [job.name, job.chain]
            runs.add_metric(values, job.run_count)
            skipped.add_metric(values, job.skipped_count)
            missed.add_metric(values, job.missed_count)
            running.add_metric(values, int(job.is_running))
            if job.ended_us is not None:
                failed.add_metric(values, int(job.has_failed))
                took.add_metric(values, job.duration_s)
                ended.add_metric(values, job.ended_us / 1_000_000)
        yield from (runs, skipped, missed, running, failed, took, ended)


def _known_figures(health: EndpointHealth) -> dict[str, float]:
    """Return an endpoint's `height`, `lag_blocks`, `latency_seconds`, `faults` and `quarantined` (0 or 1).

    Unknown ones are absent, because 0 would be wrong.
    """
    figures: dict[str, float | None] = {
        "height": health.height,
        "lag_blocks": health.lag_blocks,
        "latency_seconds": health.latency_s,
        "faults": health.faults,
        "quarantined": int(health.quarantined),
    }
    return {name: value for name, value in figures.items() if value is not None}


@contextmanager
def serve_metrics(collectors: Sequence[Any], host: str, port: int) -> Iterator[int]:
    """Serve metrics at `http://host:port/metrics` for the duration of the block, and yield the port.

    Raises:
        BadSettings: The port cannot be used.
    """
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        remedy = "stop the other server or choose another port"
        raise BadSettings("server.metrics_port", f"{port} on {host}: {error.strerror}", remedy=remedy) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
