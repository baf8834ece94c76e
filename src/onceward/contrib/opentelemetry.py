"""Traces from the enqueue to the handler, its steps and deliveries, with OpenTelemetry.

    from onceward.contrib.opentelemetry import instrument

    instrument(app)

The trace travels as `traceparent` in the headers of the job, in W3C's form, so that a producer in any language takes
part: `p_headers => '{"traceparent": "00-…"}'`.  Spans hold names, ids and numbers; no payload, no tenant, and of an
error its type only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from onceward.tracing import Outcome, Traceable, TracedJob

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "onceward.contrib.opentelemetry needs the package opentelemetry-api: pip install 'onceward[opentelemetry]'"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

_PROPAGATOR = TraceContextTextMapPropagator()


def instrument(app: Traceable, *, tracer_provider: TracerProvider | None = None) -> None:
    """Trace what the clients and the workers of this application do; without a provider, with the global one."""
    app.tracing = OpenTelemetry(tracer_provider)


def headers() -> dict[str, str]:
    """The present trace as headers, for a client without an application or for SQL; empty without a trace."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier


class OpenTelemetry:
    """The spans of one application."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("onceward", version("onceward"), tracer_provider)

    @contextmanager
    def enqueue(self, task: str, headers: Mapping[str, str], *, count: int) -> Iterator[dict[str, str]]:
        attributes: dict[str, Any] = {
            "messaging.system": "onceward",
            "messaging.operation.type": "send",
            "onceward.task": task,
        }
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        with self._span(f"enqueue {task}", SpanKind.PRODUCER, attributes):
            carrier = dict(headers)
            # A caller that passes on a trace of its own knows better.
            if "traceparent" not in carrier:
                _PROPAGATOR.inject(carrier)
            yield carrier

    @contextmanager
    def attempt(self, job: TracedJob) -> Iterator[Outcome]:
        # What others wrote into the headers need not be text, and must not stop the job.
        carrier = {
            name: value
            for name, value in (job.headers or {}).items()
            if name in {"traceparent", "tracestate"} and isinstance(value, str)
        }
        parent = _PROPAGATOR.extract(carrier)
        links: list[Link] = []
        if job.epoch > 1:
            # A later attempt may come days after: a trace of its own, linked to where it all began.
            origin = get_current_span(parent).get_span_context()
            links = [Link(origin)] if origin.is_valid else []
            parent = trace.set_span_in_context(trace.INVALID_SPAN)
        attributes = {
            "messaging.system": "onceward",
            "messaging.operation.type": "process",
            "messaging.destination.name": job.lane,
            "messaging.message.id": job.ref,
            "onceward.task": job.task,
            "onceward.attempt": job.attempt,
            "onceward.epoch": job.epoch,
        }
        with self._span(
            f"run {job.task}", SpanKind.CONSUMER, attributes, context=parent, links=links
        ) as span:
            yield _outcome(span)

    @contextmanager
    def part(self, name: str, attributes: Mapping[str, str], *, outside: bool) -> Iterator[Outcome]:
        kind = SpanKind.CLIENT if outside else SpanKind.INTERNAL
        with self._span(name, kind, dict(attributes)) as span:
            yield _outcome(span)

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: dict[str, Any], **more: Any) -> Iterator[Span]:
        """A span that ends with the type of an error, not with its text: that may hold what is nobody's business."""
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
            **more,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("onceward.outcome", "failed")
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise
            except BaseException as interruption:
                # A job that sleeps, or was told to stop: no error.
                span.set_attribute("onceward.outcome", getattr(interruption, "outcome", "interrupted"))
                raise


def _outcome(span: Span) -> Outcome:
    def say(outcome: str) -> None:
        span.set_attribute("onceward.outcome", outcome)

    return say
