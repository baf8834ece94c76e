"""Traces from the enqueue to the handler, read from the SDK's in-memory exporter."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
from datetime import timedelta

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from onceward import AsyncClient, Client, Job, Onceward, Retry, Snooze, Workflow
from onceward.contrib.opentelemetry import headers, instrument
from onceward.deliveries import Deliveries, Outbox
from onceward.tracing import UNTRACED
from onceward.worker import Worker

SECRET = "canary-51f0"


class Traces:
    """A provider whose spans stay here."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def all(self, name: str):
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time)

    def one(self, name: str):
        (span,) = self.all(name)
        return span


class Blocking:
    """Something async that is called as if it were not, inside the caller's trace."""

    def __init__(self, inner, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return Blocking(found, self._runner)
        return lambda *args, **kwargs: self._runner.run(
            found(*args, **kwargs), context=contextvars.copy_context()
        )


@pytest.fixture
def traces():
    return Traces()


@pytest.fixture
def app(traces, tmp_path):
    app = Onceward()
    Deliveries(app, email=Outbox(tmp_path / "outbox", sender="shop@example.com"), environ={})

    @app.task
    async def greet(name: str) -> str:
        return name

    @app.task
    def greet_in_a_thread(name: str) -> str:
        assert trace.get_current_span().get_span_context().is_valid
        return name

    @app.task(retry=Retry(waits=[timedelta(0)]), max_attempts=2)
    async def flaky(job: Job) -> None:
        if job.attempt == 1:
            raise ValueError(SECRET)

    @app.task
    async def steps(job: Job) -> None:
        await job.step("price", lambda: 7)
        async with job.transaction("book") as connection:
            await connection.execute("select 1")

    @app.task
    def steps_in_a_thread(job: Job) -> None:
        job.step("price", lambda: 7)
        with job.transaction("book") as connection:
            connection.execute("select 1")

    @app.task
    async def naps(job: Job) -> None:
        await job.sleep(timedelta(0))

    @app.task
    async def put_off(job: Job) -> Snooze:
        return Snooze(timedelta(hours=1))

    @app.task
    async def parent(job: Job) -> None:
        await job.spawn("children", greet, [{"name": "a"}, {"name": "b"}])

    instrument(app, tracer_provider=traces.provider)
    return app


@pytest.fixture(params=["sync", "async"])
def client(request, app, onceward_database):
    if request.param == "sync":
        with Client(onceward_database, app=app) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database, app=app)
        yield Blocking(client, runner)
        runner.run(client.close())


@pytest.fixture
def plain(app, onceward_database):
    with Client(onceward_database, app=app) as client:
        yield client


@pytest.fixture
def work(app, onceward_database):
    return lambda: asyncio.run(Worker(app, dsn=onceward_database).drain())


@pytest.mark.parametrize("task", ["greet", "greet_in_a_thread"])
def test_a_trace_goes_from_the_caller_through_the_enqueue_to_the_handler(traces, client, work, task):
    with traces.tracer.start_as_current_span("request") as request:
        job = client.enqueue(task, {"name": SECRET}, headers={"locale": "de"})
    work()

    enqueue, run = traces.one(f"enqueue {task}"), traces.one(f"run {task}")
    assert enqueue.parent.span_id == request.get_span_context().span_id
    assert run.parent.span_id == enqueue.context.span_id
    assert {span.context.trace_id for span in traces.spans} == {request.get_span_context().trace_id}
    assert (enqueue.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert run.attributes["messaging.message.id"] == str(job.id)
    assert run.attributes["messaging.destination.name"] == "default"
    assert (run.attributes["onceward.task"], run.attributes["onceward.outcome"]) == (task, "done")
    assert run.links == ()
    carried = client.job(job).headers
    assert carried["locale"] == "de"
    assert f"{request.get_span_context().trace_id:032x}" in carried["traceparent"]


def test_many_jobs_share_one_span_of_their_producer(traces, client, work):
    client.enqueue_many("greet", [{"name": "a"}, {"name": "b"}, {"name": "c"}])
    work()

    enqueue = traces.one("enqueue greet")
    assert enqueue.attributes["messaging.batch.message_count"] == 3
    assert {span.parent.span_id for span in traces.all("run greet")} == {enqueue.context.span_id}


def test_a_workflow_is_one_trace(traces, client, work):
    flow = Workflow()
    first = flow.add("first", "greet", {"name": "a"})
    flow.add("second", "greet", {"name": "b"}, after=[first])
    client.enqueue_workflow(flow)
    work()

    enqueue = traces.one("enqueue workflow")
    assert [span.parent.span_id for span in traces.all("run greet")] == [enqueue.context.span_id] * 2


def test_a_retry_has_a_trace_of_its_own_with_a_link_to_the_enqueue(traces, plain, work):
    plain.enqueue("flaky")
    work()

    enqueue, (first, second) = traces.one("enqueue flaky"), traces.all("run flaky")
    assert first.parent.span_id == enqueue.context.span_id
    assert (first.status.status_code, first.attributes["onceward.outcome"]) == (StatusCode.ERROR, "failed")
    assert first.attributes["error.type"] == "ValueError"
    assert second.parent is None
    assert [link.context.span_id for link in second.links] == [enqueue.context.span_id]
    assert second.context.trace_id != enqueue.context.trace_id
    assert (second.attributes["onceward.attempt"], second.attributes["onceward.outcome"]) == (2, "done")


@pytest.mark.parametrize("task", ["steps", "steps_in_a_thread"])
def test_steps_and_transactions_are_spans_inside_the_attempt(traces, plain, work, task):
    plain.enqueue(task)
    work()

    run = traces.one(f"run {task}")
    for name in ("step price", "transaction book"):
        assert traces.one(name).parent.span_id == run.context.span_id


def test_a_job_that_sleeps_has_not_failed(traces, plain, work):
    plain.enqueue("naps")
    work()

    first, second = traces.all("run naps")
    assert (first.status.status_code, first.attributes["onceward.outcome"]) == (StatusCode.UNSET, "suspended")
    assert second.attributes["onceward.outcome"] == "done"


def test_a_snooze_is_told_as_one(traces, plain, work):
    plain.enqueue("put_off")
    work()

    assert traces.one("run put_off").attributes["onceward.outcome"] == "snoozed"


def test_children_belong_to_the_attempt_that_spawned_them(traces, plain, work):
    plain.enqueue("parent")
    work()

    run, enqueue = traces.one("run parent"), traces.one("enqueue greet")
    assert enqueue.parent.span_id == run.context.span_id
    assert [span.parent.span_id for span in traces.all("run greet")] == [enqueue.context.span_id] * 2


def test_a_delivery_is_traced_up_to_its_sending(traces, client, work):
    client.deliveries.email(key="welcome:1", to="jane@example.com", subject=SECRET, text=SECRET)
    work()

    enqueue, run = traces.one("enqueue onceward.deliver"), traces.one("run onceward.deliver")
    send = traces.one("send email")
    assert run.parent.span_id == enqueue.context.span_id
    assert (send.parent.span_id, send.kind) == (run.context.span_id, SpanKind.CLIENT)
    assert send.attributes["onceward.outcome"] == "sent"


def test_a_producer_in_sql_takes_part(traces, plain, work, onceward_database):
    with (
        traces.tracer.start_as_current_span("request") as request,
        psycopg.connect(onceward_database) as conn,
    ):
        conn.execute(
            "select onceward.enqueue('greet', '{\"name\": \"a\"}', p_headers => %s::jsonb)",
            [json.dumps(headers())],
        )
    work()

    assert traces.one("run greet").parent.span_id == request.get_span_context().span_id


@pytest.mark.parametrize(
    "odd", [{"traceparent": "rubbish"}, {"traceparent": 7}, {"traceparent": None, "tracestate": []}]
)
def test_odd_headers_do_not_stop_a_job(traces, plain, work, onceward_database, odd):
    with psycopg.connect(onceward_database) as conn:
        conn.execute(
            "select onceward.enqueue('greet', '{\"name\": \"a\"}', p_headers => %s::jsonb)", [json.dumps(odd)]
        )
    work()

    assert traces.one("run greet").parent is None


def test_the_trace_of_a_caller_that_passes_one_on_stays(traces, plain, work):
    theirs = {"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}
    job = plain.enqueue("greet", {"name": "a"}, headers=theirs)
    work()

    assert plain.job(job).headers == theirs
    assert traces.one("run greet").context.trace_id == 0x0123456789ABCDEF0123456789ABCDEF


def test_spans_hold_no_payload_and_no_text_of_an_error(traces, plain, work):
    plain.enqueue("greet", {"name": SECRET}, tenant=SECRET, key=SECRET)
    plain.enqueue("flaky")
    plain.deliveries.email(key=SECRET, to=f"{SECRET}@example.com", subject=SECRET, text=SECRET)
    work()

    assert len(traces.spans) >= 7
    for span in traces.spans:
        assert SECRET not in span.to_json()


def test_nothing_is_traced_that_was_not_asked_for(traces, onceward_database):
    app = Onceward()

    @app.task
    async def quiet(job: Job) -> None:
        assert job.part("step", "x") is UNTRACED

    with Client(onceward_database, app=app) as client:
        job = client.enqueue(quiet)
        asyncio.run(Worker(app, dsn=onceward_database).drain())
        assert client.job(job).headers is None
        assert client.job(job).state == "done"
    assert traces.spans == ()
