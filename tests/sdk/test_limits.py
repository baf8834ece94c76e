"""Limits as an application uses them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from onceward import Onceward, calls
from onceward.bounds import AsyncBounds, Bounds, ShareInfo
from onceward.errors import (
    EnqueueRejected,
    InvalidArgument,
    InvalidPayload,
    LimitTooSmall,
    UnknownLimit,
)
from onceward.limits import AsyncLimits, Limit, Limits, NoRoom, RateLimited, exhausted, retry_after, use
from onceward.model_limits import Use
from onceward.worker import Job, Worker
from onceward.workflow import Workflow


class Prompt(BaseModel):
    text: str
    estimated_tokens: int = 10


@pytest.fixture
def app(db):
    app = Onceward(db.dsn)
    app.limit("llm", requests=1000, tokens=10_000, tokens_burst=100, burst=50)
    app.limit("keyed", requests=1000, burst=2, per_key=True)

    @app.task(limits=[use("llm", tokens=lambda p: p.estimated_tokens)])
    async def complete(prompt: Prompt, job: Job) -> None:
        await job.settle("llm", tokens=3)

    @app.task(limits=[use("llm", tokens=5)])
    def complete_in_a_thread(job: Job) -> None:
        job.settle("llm", tokens=1)

    @app.task(limits=[use("keyed", key=lambda p: p.account)])
    async def sync(account: str) -> None: ...

    return app


@pytest.fixture
def client(app):
    with app.client() as client:
        # What every worker does when it starts.
        asyncio.run(Worker(app).drain())
        yield client


def drain(app):
    return asyncio.run(Worker(app).drain())


def test_a_task_says_what_its_jobs_use(app, client, db):
    job = client.enqueue("complete", {"text": "hello", "estimated_tokens": 40})
    default = client.enqueue(app.tasks["complete"], Prompt(text="hello"))

    assert client.job(job).uses == [{"limit": "llm", "key": "", "weight": 40}]
    assert client.job(default).uses == [{"limit": "llm", "key": "", "weight": 10}]


def test_keys_are_computed_from_the_payload(client):
    jobs = client.enqueue_many("sync", [{"account": "a"}, {"account": "b"}])

    assert [client.job(job).uses[0]["key"] for job in jobs] == ["a", "b"]


def test_limits_can_be_given_with_a_job(client):
    job = client.enqueue("sync", {"account": "a"}, limits=[use("llm", weight=7)])

    assert client.job(job).uses == [{"limit": "llm", "key": "", "weight": 7}]
    many = client.enqueue_many("sync", [{"account": "a"}], limits=[use("llm", weight=7)])
    assert client.job(many[0]).uses == [{"limit": "llm", "key": "", "weight": 7}]


def test_nodes_children_and_schedules_use_the_limits_of_their_task(app, client, db):
    @app.task
    async def parent(job: Job) -> list[str]:
        return [str(child) for child in await job.spawn("children", "sync", [{"account": "c"}])]

    workflow = Workflow()
    workflow.add("one", "sync", {"account": "w"})
    node = client.enqueue_workflow(workflow)["one"]
    assert client.job(node).uses[0]["key"] == "w"
    job = client.enqueue(parent)
    drain(app)
    assert client.job(client.wait(job)[0]).uses[0]["key"] == "c"
    app.add_schedule("nightly", "sync", "1 hour", payload={"account": "s"})
    drain(app)
    assert db.value("select uses from onceward.schedule_private") == [{"limit": "keyed", "key": "s"}]


def test_what_was_really_used_is_settled(app, client, db):
    for _ in range(3):
        client.enqueue("complete", {"text": "hello", "estimated_tokens": 30})
    client.enqueue("complete_in_a_thread")
    db.clock.pin()
    assert drain(app) == 4

    # Three times 3, and 1.
    assert round(db.value("select weight_left from onceward.limits where name = 'llm'")) == 90


def test_jobs_without_room_stay_ready_and_run_later(app, client, db):
    db.clock.pin()
    jobs = client.enqueue_many("sync", [{"account": "a"}] * 5)

    assert drain(app) == 2
    assert sorted(client.job(job).state for job in jobs) == ["done", "done", "ready", "ready", "ready"]
    db.clock.advance("1 min")
    assert drain(app) == 2


def test_a_running_worker_goes_on_as_soon_as_there_is_room(app, client, db):
    """Without anybody moving a clock: the database has told the worker when to look again."""
    app.limit("slow", requests=10, per=timedelta(seconds=1), burst=1)

    @app.task(limits=[use("slow")])
    async def tick() -> None: ...

    db.clock.unpin()
    # A look in between would hide that nobody tells; the first job may have to wait for one.
    worker = Worker(app, poll=timedelta(seconds=10))

    async def run():
        running = asyncio.create_task(worker.run())
        async with app.async_client() as other:
            await other.run(calls.declare_limits(list(app.limits.values())))
            jobs = await other.enqueue_many(tick, [{}] * 5)
            async with asyncio.timeout(30):
                for job in jobs:
                    await other.wait(job, timedelta(seconds=30))
        worker.stop()
        await running

    asyncio.run(run())
    assert worker.executed == 5


def test_a_job_that_the_provider_refuses_waits_with_all_others_and_keeps_its_attempt(app, client, db):
    asked = []

    @app.task(limits=[use("llm")])
    async def refused(n: int) -> None:
        asked.append(n)
        if len(asked) == 1:
            raise RateLimited("429 Too Many Requests", retry_after=timedelta(seconds=20), limit="llm")

    db.clock.pin()
    first = client.enqueue(refused, {"n": 1})
    drain(app)
    client.enqueue(refused, {"n": 2})
    assert drain(app) == 0
    row = client.job(first)
    assert (row.state, row.attempt, row.snoozes) == ("scheduled", 0, 1)
    assert "429 Too Many Requests" in db.value("select reason from onceward.limits where name = 'llm'")

    db.clock.advance("20 s")
    assert drain(app) == 2
    assert client.job(first).state == "done"


def test_a_handler_observes_what_is_left(app, client, db):
    @app.task(limits=[use("llm")])
    async def watches(job: Job) -> None:
        await job.observe("llm", {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "5s"})
        await job.observe(
            "llm", {"X-RateLimit-Remaining-Requests": "0", "X-RateLimit-Reset-Requests": "1m5s"}
        )

    @app.task(limits=[use("llm")])
    def watches_in_a_thread(job: Job) -> None:
        job.observe("llm", {})
        job.observe("llm", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "120"})

    db.clock.pin()
    client.enqueue(watches)
    drain(app)
    assert db.value(
        "select paused_until - onceward.now() from onceward.limits where name = 'llm'"
    ) == timedelta(seconds=65)
    Limits(client).resume("llm")
    client.enqueue(watches_in_a_thread)
    drain(app)
    assert db.value(
        "select paused_until - onceward.now() from onceward.limits where name = 'llm'"
    ) == timedelta(minutes=2)


NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "400",
    "anthropic-ratelimit-requests-remaining": "399",
    "anthropic-ratelimit-requests-reset": "2026-11-16T12:00:15Z",
    "anthropic-ratelimit-input-tokens-remaining": "20000",
    "anthropic-ratelimit-input-tokens-reset": "2026-11-16T12:00:40Z",
}


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"Retry-After": "Mon, 16 Nov 2026 12:00:30 GMT"}, 30),
        ({"Retry-After": "Mon, 16 Nov 2026 11:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"anthropic-ratelimit-requests-remaining": "0"}, None),
        ({"Retry-After": "soon", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        (ANTHROPIC | {"anthropic-ratelimit-requests-remaining": "0"}, 15),
        (ANTHROPIC | {"anthropic-ratelimit-input-tokens-remaining": "0"}, 40),
        (ANTHROPIC, None),
        (ANTHROPIC | {"anthropic-ratelimit-requests-remaining": "0", "retry-after": "8"}, 8),
        ({}, None),
    ],
)
def test_what_a_provider_asks_for_is_understood(headers, wait):
    assert retry_after(headers, now=NOW) == (None if wait is None else timedelta(seconds=wait))


@pytest.mark.parametrize(
    ("remaining", "reset", "wait"),
    [
        ("0", "12ms", 0.012),
        ("0", "1.5s", 1.5),
        ("0", "1h2m3s", 3723),
        ("0", "1d", 86400),
        ("0", "60", 60),
        ("1", "60", None),
        ("0", str(int(NOW.timestamp()) + 90), 90),
        ("0", str(int(NOW.timestamp()) - 90), 0),
        ("0", str(int(NOW.timestamp() * 1000)), None),
        ("0", "2026-11-16T12:01:00+00:00", 60),
        ("0", "2026-11-16T12:01:00", 60),
        ("0", "2027-11-16T12:01:00Z", None),
        ("0", "whenever", None),
        ("0", "", None),
        ("none", "60", None),
    ],
)
def test_what_is_left_is_understood(remaining, reset, wait):
    headers = {"x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset}
    assert exhausted(headers, now=NOW) == (None if wait is None else timedelta(seconds=wait))


# ------------------------------------------------------------ direct use


def test_a_limit_is_used_directly(client, db):
    db.clock.pin()
    limits = Limits(client)
    limits.set(Limit("api", tokens=1000, tokens_burst=100, slots=1))
    hold = limits.acquire("api", tokens=80)
    limits.settle(hold, 10)
    with pytest.raises(NoRoom, match="all slots are held"):
        limits.acquire("api")
    assert limits.release(hold) is True
    with limits.slot("api") as held:
        assert held.limit == "api"
    assert {info.name for info in limits.all()} >= {"api", "openai"}
    assert limits.pause("api", timedelta(seconds=5)) > db.now()
    assert limits.resume("api") is True
    limits.drop("api")
    with pytest.raises(UnknownLimit):
        limits.acquire("api")


def test_a_limit_is_used_directly_from_asyncio(app, client, db):
    db.clock.unpin()

    async def run():
        async with app.async_client() as other:
            limits = AsyncLimits(other)
            await limits.set(Limit("api", requests=10, per=timedelta(seconds=1), burst=1, slots=5))
            for _ in range(3):
                # There is room a tenth of a second later.
                hold = await limits.acquire("api", wait=timedelta(seconds=20))
                await limits.release(hold)
            async with limits.slot("api", wait=timedelta(seconds=20)) as held:
                await limits.settle(held, 0)
            await limits.pause("api", timedelta(hours=1))
            with pytest.raises(NoRoom, match="paused"):
                await limits.acquire("api", wait=timedelta(seconds=1))
            await limits.resume("api")
            assert any(info.name == "api" for info in await limits.all())
            await limits.drop("api")

    asyncio.run(run())


# ------------------------------------------------------------ back-pressure


@pytest.fixture
def full(client, db):
    def fill(over):
        db.call("set_bound", lane="default", max_depth=1, over=over)
        db.enqueue_many("sync", [{"account": "a"}] * 3)
        db.promote()

    return fill


def test_the_answer_of_enqueue_is_typed(client, full):
    assert client.enqueue("complete", {"text": "x"})[2:] == ("accepted", None, None)
    full("signal")

    ref = client.enqueue("complete", {"text": "x"})

    assert (ref.answer, ref.reason) == ("accepted", 'more than 1 jobs are ready in lane "default"')


def test_a_deferred_job_says_until_when(client, full):
    full("defer")

    ref = client.enqueue("complete", {"text": "x"})
    (many,) = client.enqueue_many("complete", [{"text": "x"}])

    assert (ref.answer, many.answer) == ("deferred", "deferred")
    assert client.job(ref).run_at == ref.until


def test_a_rejected_job_is_an_error_that_nobody_overlooks(client, full):
    full("reject")

    with pytest.raises(EnqueueRejected, match="more than 1 jobs are ready"):
        client.enqueue("complete", {"text": "x"})
    with pytest.raises(EnqueueRejected, match="more than 1 jobs are ready"):
        client.enqueue_many("complete", [{"text": "x"}])


def test_bounds_and_shares_are_set_and_read(app, client, db):
    bounds = Bounds(client)
    bounds.set("default", max_depth=5, over="reject")
    bounds.set_share("default", "acme", 3)
    assert [(bound.lane, bound.max_depth, bound.over) for bound in bounds.all()] == [("default", 5, "reject")]
    assert bounds.shares("default") == [ShareInfo("default", "acme", 3)]
    assert bounds.drop("default") is True

    async def run():
        async with app.async_client() as other:
            bounds = AsyncBounds(other)
            await bounds.set("default", max_age=timedelta(minutes=1), tenant="*")
            await bounds.set_share("default", "acme", 4)
            assert [bound.tenant for bound in await bounds.all("default")] == ["*"]
            assert await bounds.shares() == [ShareInfo("default", "acme", 4)]
            assert await bounds.drop("default", tenant="*") is True

    asyncio.run(run())


# ------------------------------------------------------------ slips


def test_a_job_too_heavy_for_its_limit_is_refused(client):
    with pytest.raises(LimitTooSmall, match="never gives 101 at once"):
        client.enqueue("complete", {"text": "x", "estimated_tokens": 101})


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (lambda app: app.limit("x", requests=5, per="1 minute"), 'per of limit "x" must be a timedelta'),
        (lambda app: app.limit("x", request=5), "a limit has no option request"),
        (lambda app: app.limit("llm", requests=5), "declared twice"),
        (
            lambda app: app.task(name="x", limits=["llm"])(lambda: None),
            'limits of task "x" must be a list of use',
        ),
        (lambda app: use("llm", tokens=1, weight=1), "tokens and weight"),
        (lambda app: use(""), "limit must be a name"),
        (lambda app: Use("llm", weight=lambda p: -1).of({}), "tokens of limit llm must be a whole number"),
        (lambda app: Use("llm", weight=lambda p: 1.5).of({}), "tokens of limit llm must be a whole number"),
        (lambda app: Use("llm", key=lambda p: None).of({}), "key of limit llm must be a text"),
    ],
)
def test_a_slip_is_named(app, slip, words):
    with pytest.raises(InvalidArgument, match=words):
        slip(app)


def test_a_payload_that_does_not_fit_is_refused_before_its_limits_are_computed(client):
    with pytest.raises(InvalidPayload, match="estimated_tokens"):
        client.enqueue("complete", {"text": "x", "estimated_tokens": "many"})
    with pytest.raises(InvalidPayload):
        client.enqueue_many("complete", [{"nope": 1}])
