"""Workflows through the clients: enqueued as one, in the caller's transaction too, read, cancelled and requeued."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from onceward import AsyncClient, Client, Workflow
from onceward.errors import (
    InvalidArgument,
    InvalidPayload,
    InvalidWorkflow,
    KeyConflict,
    UnknownJob,
    UnknownLane,
    UnknownTask,
)
from tests.sdk import shop
from tests.sdk.test_connections import asyncpg_options, django_connection, sqlalchemy_url

ADA = {"name": "Ada"}


@pytest.fixture
def kit(onceward_kit):
    onceward_kit.clock.pin()
    return onceward_kit


def chain(*names: str) -> Workflow:
    """Each after the one before."""
    flow = Workflow()
    before = []
    for name in names:
        before = [flow.add(name, shop.greet, {"name": name}, after=before)]
    return flow


# ---------------------------------------------------------------- both clients


def test_a_workflow_is_enqueued_with_everything_that_was_said_of_its_jobs(client):
    flow = Workflow()
    first = flow.add("first", shop.greet, ADA)
    at = datetime.now(UTC) + timedelta(hours=1)
    flow.add(
        "second", shop.ship, {"number": 7}, after=[first], after_policy="ignore", priority=9, run_at=at,
        timeout=timedelta(seconds=90), max_attempts=2, concurrency_key="c", concurrency_limit=3,
    )  # fmt: skip
    flow.add("third", "greet", ADA, after=["first", "second"], lane="orders")

    jobs = client.enqueue_workflow(flow)

    assert list(jobs) == ["first", "second", "third"]
    first, second, third = (client.job(jobs[name]) for name in jobs)
    assert {first.workflow_id, second.workflow_id, third.workflow_id} == {first.workflow_id}
    assert (first.state, first.node, first.after, first.payload) == ("ready", "first", None, ADA)
    assert (second.state, second.lane, second.priority, second.run_at) == ("blocked", "orders", 9, at)
    assert (second.after, second.after_policy, second.awaits) == ([first.id], "ignore", "jobs")
    assert (second.timeout, second.max_attempts) == (timedelta(seconds=90), 2)
    assert (second.concurrency_key, second.concurrency_limit) == ("c", 3)
    assert (third.after, third.after_policy, third.lane) == ([first.id, second.id], "fail", "orders")


def test_a_workflow_has_an_id_and_with_a_key_it_is_enqueued_once(client):
    first = client.enqueue_workflow(chain("a", "b"), key="order 7")
    again = client.enqueue_workflow(chain("a", "b"), key="order 7")
    alone = client.enqueue_workflow(chain("a", "b"))

    assert (first.created, again.created, alone.created) == (True, False, True)
    assert first == again
    assert first.id == again.id == client.job(first["a"]).workflow_id
    assert alone.id != first.id
    with pytest.raises(KeyConflict, match="different nodes"):
        client.enqueue_workflow(chain("a"), key="order 7")


def test_the_key_of_a_workflow_has_a_window(client, kit):
    first = client.enqueue_workflow(chain("a"), key="k", key_window=timedelta(hours=1))
    kit.clock.advance("2 h")

    assert client.enqueue_workflow(chain("a"), key="k").id != first.id
    with pytest.raises(InvalidArgument, match="key_window goes with a key"):
        client.enqueue_workflow(chain("a"), key_window="forever")


def test_a_workflow_runs_in_order(client, kit):
    jobs = client.enqueue_workflow(chain("a", "b", "c"))
    flow = client.job(jobs["a"]).workflow_id

    kit.drain(shop.app)

    (info,) = client.workflows()
    assert (info.id, info.state, info.jobs, info.done, info.live) == (flow, "done", 3, 3, 0)
    members = client.workflow_jobs(flow)
    assert [(job.node, job.state) for job in members] == [("a", "done"), ("b", "done"), ("c", "done")]
    assert [job.after for job in members] == [None, [jobs["a"]], [jobs["b"]]]
    assert client.wait(jobs["c"]) == "Hello c"
    assert client.workflows("running") == []
    assert [job.node for job in client.workflow_jobs(flow, limit=2)] == ["a", "b"]


def test_a_workflow_is_cancelled_and_requeued_as_one(client, kit):
    jobs = client.enqueue_workflow(chain("a", "b"))
    alone = client.enqueue(shop.greet, ADA)
    flow = client.job(jobs["a"]).workflow_id

    assert client.cancel_workflow(flow, "not needed") == 2
    assert [(job.state, job.note) for job in client.workflow_jobs(flow)] == [("cancelled", "not needed")] * 2
    assert client.cancel_workflow(flow) == 0
    assert client.requeue_workflow(flow) == 2
    assert [job.state for job in client.workflow_jobs(flow)] == ["ready", "blocked"]
    assert client.job(alone).state == "ready"
    kit.drain(shop.app)
    assert client.workflows()[0].state == "done"


def test_what_is_no_workflow_is_refused(client):
    nowhere = uuid4()

    for call in (client.cancel_workflow, client.requeue_workflow):
        with pytest.raises(UnknownJob, match=f"workflow {nowhere} does not exist"):
            call(nowhere)
    assert client.workflow_jobs(nowhere) == []


def test_a_job_runs_after_others_that_are_named_in_any_way(client, kit):
    first, second, third = (client.enqueue(shop.greet, ADA) for _ in range(3))

    job = client.enqueue(shop.greet, ADA, after=[first, second.id, str(third.id)])
    many = client.enqueue_many(shop.greet, [ADA, ADA], after=[job], after_policy="ignore")

    assert client.job(job).after == [first.id, second.id, third.id]
    assert {client.job(each).state for each in many} == {"blocked"}
    assert {client.job(each).workflow_id for each in [job, *many]} == {first.id}
    assert kit.drain(shop.app) == 6
    assert {info.state for info in client.jobs()} == {"done"}


def test_a_job_may_come_after_one_that_has_ended_and_join_a_workflow_by_its_id(client, kit):
    ended = client.enqueue(shop.greet, ADA)
    kit.drain(shop.app)

    job = client.enqueue(shop.greet, ADA, after=[ended])
    flow = uuid4()
    member = client.enqueue(shop.greet, ADA, workflow_id=flow)
    kit.drain(shop.app)

    assert client.job(job).state == "done"
    assert [info.id for info in client.workflow_jobs(flow)] == [member.id]


@pytest.mark.parametrize(
    ("options", "error", "fragment"),
    [
        ({"after": [UUID(int=7)]}, UnknownJob, f"job {UUID(int=7)} does not exist"),
        ({"after": ["x"]}, InvalidArgument, "job id must be a UUID, got 'x'"),
        ({"after": "x"}, InvalidArgument, "after must be a list or a tuple, got 'x'"),
        ({"after": []}, InvalidArgument, "after must name at least one job"),
        ({"workflow_id": "x"}, InvalidArgument, "workflow_id must be a UUID, got 'x'"),
    ],
    ids=str,
)
def test_what_a_job_waits_for_is_checked_and_nothing_is_written(client, options, error, fragment):
    with pytest.raises(error, match=re.escape(fragment)):
        client.enqueue(shop.greet, ADA, **options)
    assert client.jobs() == []


def test_a_policy_that_is_none_is_refused(client):
    first = client.enqueue(shop.greet, ADA)

    with pytest.raises(InvalidArgument, match="after_policy must be fail, ignore or compensate, got 'hope'"):
        client.enqueue(shop.greet, ADA, after=[first], after_policy="hope")


# ---------------------------------------------------------------- the builder


def test_a_name_is_given_once():
    flow = chain("a")

    with pytest.raises(InvalidArgument, match='workflow has a node "a" already'):
        flow.add("a", shop.greet, ADA)


def looped() -> Workflow:
    flow = Workflow()
    flow.add("d", shop.greet, ADA)
    flow.add("a", shop.greet, ADA, after=["d", "c"])
    flow.add("b", shop.greet, ADA, after=["a"])
    flow.add("c", shop.greet, ADA, after=["b"])
    return flow


def one(*args, **options) -> Workflow:
    flow = Workflow()
    flow.add(*args, **options)
    return flow


@pytest.mark.parametrize(
    ("flow", "error", "fragment"),
    [
        (looped(), InvalidWorkflow, "workflow has a cycle: "),
        (Workflow(), InvalidArgument, "must be a list of 1 to 1000 nodes"),
        (one("a", shop.greet, ADA, after=["z"]), InvalidArgument, "must be the name of a node"),
        (one("", shop.greet, ADA), InvalidArgument, "must be objects with a name and a task"),
        (one("a", "nothing"), UnknownTask, "nothing"),
        (one("a", shop.greet, {"nam": "Ada"}), InvalidPayload, "nam"),
        (one("a", shop.greet, ADA, lane="nowhere"), UnknownLane, 'lane "nowhere" does not exist'),
        (one("a", shop.greet, ADA, priority=5000), InvalidArgument, "priority must be between"),
        (one("a", shop.greet, ADA, timeout=5), InvalidArgument, "timeout must be a timedelta"),
        (one("a", shop.greet, ADA, run_at=datetime(2030, 1, 1)), InvalidArgument, "run_at must have a time zone"),  # noqa: DTZ001 - what is refused
    ],
    ids=["cycle", "empty", "unknown node", "no name", "unknown task", "payload", "lane", "priority", "timeout", "zone"],
)  # fmt: skip
def test_a_workflow_that_cannot_be_is_refused_as_a_whole(client, flow, error, fragment):
    with pytest.raises(error, match=re.escape(fragment)):
        client.enqueue_workflow(flow)
    assert client.jobs() == []


def test_a_cycle_is_named(plain):
    with pytest.raises(InvalidWorkflow) as caught:
        plain.enqueue_workflow(looped())

    path = caught.value.message.removeprefix("workflow has a cycle: ").split(" waits for ")
    assert set(path) == {"a", "b", "c"}
    assert path[0] == path[-1]
    assert caught.value.hint == 'Take one of these names out of "after".'


# ---------------------------------------------------------------- the caller's transaction


@pytest.fixture
def first(onceward_database):
    """A job that others wait for."""
    with Client(onceward_database) as client:
        return client.enqueue("greet", ADA)


@pytest.fixture
def added(onceward_database, first):
    """How many jobs and edges were committed beside the first."""

    def count():
        with psycopg.connect(onceward_database) as conn:
            return conn.execute(
                "select (select count(*) - 1 from onceward.jobs), (select count(*) from onceward.dependencies)"
            ).fetchone()

    return count


@pytest.mark.parametrize(("commit", "count"), [(True, (3, 2)), (False, (0, 0))])
class TestTransactions:
    """One job after another, and a workflow of two: all of it with the caller's transaction."""

    def test_psycopg(self, onceward_database, first, added, commit, count):
        with Client(app=shop.app) as client, psycopg.connect(onceward_database, row_factory=dict_row) as conn:
            client.enqueue(shop.greet, ADA, after=[first], connection=conn)
            client.enqueue_workflow(chain("a", "b"), connection=conn)
            conn.commit() if commit else conn.rollback()
        assert added() == count

    def test_asyncpg(self, onceward_database, first, added, commit, count):
        async def main():
            client = AsyncClient(app=shop.app)
            conn = await asyncpg.connect(**asyncpg_options(onceward_database))
            transaction = conn.transaction()
            await transaction.start()
            await client.enqueue(shop.greet, ADA, after=[first], connection=conn)
            await client.enqueue_workflow(chain("a", "b"), connection=conn)
            await (transaction.commit() if commit else transaction.rollback())
            await conn.close()

        asyncio.run(main())
        assert added() == count

    def test_sqlalchemy(self, onceward_database, first, added, commit, count):
        engine = create_engine(sqlalchemy_url(onceward_database, "psycopg"))
        with Client(app=shop.app) as client, Session(engine) as session:
            client.enqueue(shop.greet, ADA, after=[first], connection=session)
            client.enqueue_workflow(chain("a", "b"), connection=session)
            session.commit() if commit else session.rollback()
        engine.dispose()
        assert added() == count

    @pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
    def test_sqlalchemy_async(self, onceward_database, first, added, commit, count, driver):
        async def main():
            engine = create_async_engine(sqlalchemy_url(onceward_database, driver))
            client = AsyncClient(app=shop.app)
            async with AsyncSession(engine) as session:
                await client.enqueue(shop.greet, ADA, after=[first], connection=session)
                await client.enqueue_workflow(chain("a", "b"), connection=session)
                await (session.commit() if commit else session.rollback())
            await engine.dispose()

        asyncio.run(main())
        assert added() == count

    def test_django(self, onceward_database, first, added, commit, count):
        connection = django_connection(onceward_database)
        from django.db import transaction

        with Client(app=shop.app) as client, transaction.atomic():
            client.enqueue(shop.greet, ADA, after=[first], connection=connection)
            client.enqueue_workflow(chain("a", "b"), connection=connection)
            transaction.set_rollback(not commit)
        connection.close()
        assert added() == count


@pytest.mark.parametrize("commit", [True, False])
def test_an_event_is_emitted_with_the_callers_transaction(onceward_database, client, commit):
    with Client() as other, psycopg.connect(onceward_database) as conn:
        assert other.emit_event("paid", {"by": "Ada"}, connection=conn)
        conn.commit() if commit else conn.rollback()

    assert client.emit_event("paid", keep=timedelta(days=1)) is not commit
