"""Send spans and their durations to an OpenTelemetry collector, if the settings name one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chainfolio import __version__, spans
from chainfolio.errors import needs_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span

    from chainfolio.settings import Telemetry

SEND_S: Final = 2.0  # a collector that is away delays the end of a process by twice as long
BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
LABELS: Final = frozenset({"operation", "status", "chain", "endpoint", "job"})  # of metrics; the rest is in traces


@contextmanager
def telemetry(settings: Telemetry) -> Iterator[None]:
    """Record the spans of this process during the block, and send the last ones at its end.

    Nothing happens, and nothing is imported, if the settings name no endpoint.

    Raises:
        MissingDependency: The extra `otel` is not installed.
    """
    if not settings.endpoint:
        yield
        return
    with needs_extra("otel", "telemetry.endpoint"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

    url = settings.endpoint.rstrip("/")
    processor = BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", timeout=SEND_S))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics", timeout=SEND_S))
    with recording(settings, processor, reader):
        yield


@contextmanager
def recording(settings: Telemetry, processor: SpanProcessor, reader: MetricReader) -> Iterator[None]:
    """Give the spans of this process to a processor, and their durations to a reader, during the block."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    resource = Resource({"service.name": settings.service, "service.version": __version__})
    sampler = ParentBased(TraceIdRatioBased(1 / settings.sample))
    traces = TracerProvider(sampler, resource, shutdown_on_exit=False)
    traces.add_span_processor(processor)
    metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
    spans.set_tracer(_OtelTracer(traces, metrics))
    try:
        yield
    finally:
        spans.set_tracer(None)
        traces.shutdown()
        metrics.shutdown()


class _MeasuredSpan:
    """A span whose attributes are also labels of its duration."""

    def __init__(self, span: Span, attributes: dict[str, spans.Value]) -> None:
        self._span, self.attributes = span, attributes

    def set_attribute(self, key: str, value: spans.Value, /) -> None:
        """Add an attribute."""
        self.attributes[key] = value
        self._span.set_attribute(f"chainfolio.{key}", value)


class _OtelTracer:
    """Records spans as those of OpenTelemetry, and their durations as a histogram.

    Of an error only the type is recorded: its text may name an address.
    """

    def __init__(self, traces: TracerProvider, metrics: MeterProvider) -> None:
        self._tracer = traces.get_tracer("chainfolio", __version__)
        self._durations = metrics.get_meter("chainfolio", __version__).create_histogram(
            "chainfolio.span.duration",
            unit="s",
            description="duration of requests, node calls, snapshots and jobs",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )

    @contextmanager
    def span(self, name: spans.Name, attributes: dict[str, spans.Value]) -> Iterator[spans.Span]:
        """Record a span during the block."""
        from opentelemetry.trace import StatusCode

        began_s, error = time.perf_counter(), ""
        with self._tracer.start_as_current_span(
            f"chainfolio.{name}", record_exception=False, set_status_on_exception=False
        ) as span:
            recorded = _MeasuredSpan(span, {})
            for key, value in attributes.items():
                recorded.set_attribute(key, value)
            try:
                yield recorded
            except BaseException as raised:  # also cancellation: any end of the work is recorded, and raised again
                error = type(raised).__name__
                span.set_attribute("error.type", error)
                span.set_status(StatusCode.ERROR)
                raise
            finally:
                labels = {key: value for key, value in recorded.attributes.items() if key in LABELS}
                took_s = time.perf_counter() - began_s
                self._durations.record(took_s, {"span": name, **labels, **({"error": error} if error else {})})
