"""Steps in handlers: done once, whatever becomes of the attempt; async and sync handlers alike."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from uuid import UUID

import pytest
from pydantic import BaseModel

from onceward import Job, Onceward, Retry
from onceward.errors import EventTimeout, JobsFailed, PermanentFailure
from onceward.worker.tries import Tries

NOW = Retry(waits=[timedelta(0)])


class Label(BaseModel):
    batch: str
    printed: date


@pytest.fixture
def app():
    return Onceward()


@pytest.fixture
def kit(onceward_kit):
    onceward_kit.clock.pin()
    return onceward_kit


@pytest.fixture
def ran():
    """What has really happened, in order."""
    return []


def test_a_step_that_is_done_is_not_run_again(app, kit, ran):
    @app.task(retry=NOW)
    async def print_label(job: Job, batch: str) -> str:
        async def generate() -> Label:
            ran.append("generate")
            return Label(batch=batch, printed=date(2026, 11, 15))

        def upload(label: Label) -> str:
            ran.append("upload")
            return f"/{label.batch}.pdf"

        label = await job.step("generated", generate)
        path = await job.step("uploaded", upload, label)
        if job.attempt < 3:
            raise RuntimeError("the printer is on fire")
        return f"{path} {label.printed.year}"

    client = kit.client(app)
    job = client.enqueue(print_label, {"batch": "b1"})
    kit.drain(app)

    assert client.wait(job) == "/b1.pdf 2026"
    assert ran == ["generate", "upload"]
    assert [(s.name, s.state, s.tries, s.result) for s in client.steps(job)] == [
        ("generated", "done", 1, {"batch": "b1", "printed": "2026-11-15"}),
        ("uploaded", "done", 1, "/b1.pdf"),
    ]


def test_sync_handlers_have_the_same(app, kit, ran):
    @app.task(retry=NOW)
    def charge(job: Job) -> int:
        amount = job.step("priced", lambda: ran.append("priced") or 42)
        job.step("noted", ran.append, "noted")
        if job.attempt == 1:
            raise RuntimeError("not yet")
        return amount

    client = kit.client(app)
    job = client.enqueue(charge)
    kit.drain(app)

    assert client.wait(job) == 42
    assert ran == ["priced", "noted"]


def test_short_retries_use_up_no_attempt(app, kit, ran):
    @app.task(max_attempts=1)
    async def call_them(job: Job) -> str:
        async def call() -> str:
            ran.append("call")
            if len(ran) < 3:
                raise ConnectionError("blip")
            return "ok"

        return await job.step("called", call, tries=3, waits=[0.001], on=(ConnectionError,))

    client = kit.client(app)
    job = client.enqueue(call_them)
    kit.drain(app)

    assert client.wait(job) == "ok"
    assert [(s.name, s.tries) for s in client.steps(job)] == [("called", 3)]


@pytest.mark.parametrize(
    ("error", "tried"), [(KeyError("k"), 1), (PermanentFailure("no"), 1), (ConnectionError("blip"), 2)]
)
def test_only_the_errors_that_were_named_are_tried_again(app, kit, ran, error, tried):
    @app.task(max_attempts=1)
    async def call_them(job: Job) -> None:
        async def call() -> None:
            ran.append("call")
            raise error

        await job.step("before", lambda: "x")
        await job.step("called", call, tries=2, on=(ConnectionError, PermanentFailure))

    client = kit.client(app)
    job = client.enqueue(call_them)
    kit.drain(app)

    assert len(ran) == tried
    assert client.job(job).state == "dead_letter"
    step = client.steps(job)[-1]
    assert (step.state, step.tries, step.error["type"]) == ("failed", tried, type(error).__name__)
    (half,) = client.partial_completions()
    assert (half.job_id, half.done, half.failed, half.last_done, half.last_failed) == (
        job.id,
        1,
        1,
        "before",
        "called",
    )


def test_a_try_that_takes_too_long_is_given_up(app, kit, ran):
    @app.task(max_attempts=1)
    async def call_them(job: Job) -> str:
        async def call() -> str:
            ran.append("call")
            if len(ran) == 1:
                await asyncio.Event().wait()
            return "second"

        return await job.step("called", call, tries=2, timeout=0.01)

    client = kit.client(app)
    job = client.enqueue(call_them)
    kit.drain(app)

    assert client.wait(job) == "second"


def test_a_name_used_twice_is_an_error(app, kit, ran):
    @app.task(max_attempts=1)
    async def twice(job: Job) -> None:
        await job.step("same", ran.append, 1)
        await job.step("same", ran.append, 2)

    client = kit.client(app)
    job = client.enqueue(twice)
    kit.drain(app)

    assert ran == [1]
    assert "'same' is used twice" in client.job(job).last_error["message"]


def test_a_handler_whose_steps_have_changed_is_reported(app, kit, ran):
    old = Onceward()

    @old.task(name="ship", retry=NOW)
    async def ship_then(job: Job) -> None:
        await job.step("weighed", ran.append, "weighed")
        raise RuntimeError("deploy in between")

    @app.task(name="ship")
    async def ship_now(job: Job) -> None:
        await job.step("packed", ran.append, "packed")

    client = kit.client(old)
    job = client.enqueue("ship", max_attempts=2)
    kit.drain(old)
    assert client.requeue(job) == "ready"
    kit.drain(app)

    info = client.job(job)
    assert (info.state, info.last_error["type"]) == ("dead_letter", "StepsChanged")
    assert "weighed" in info.last_error["message"]
    versions = {step.name: step.version for step in client.steps(job)}
    assert versions["weighed"] != versions["packed"]


@pytest.mark.parametrize("form", ["block", "function"])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_rows_and_checkpoint_are_committed_together(app, kit, ran, kind, form):
    conn = kit.connect()
    conn.execute("create table charge (amount int)")

    if kind == "async":

        @app.task(retry=NOW)
        async def charge(job: Job) -> None:
            async def insert(connection, amount: int) -> int:
                await connection.execute("insert into charge values (%s)", [amount])
                return amount + 1

            if form == "function":
                ran.append(await job.transaction("charged", insert, 5))
            else:
                async with job.transaction("charged") as connection:
                    await insert(connection, 5)
                    ran.append(6)
            if job.attempt == 1:
                raise RuntimeError("after the commit")
    else:

        @app.task(retry=NOW)
        def charge(job: Job) -> None:
            def insert(connection, amount: int) -> int:
                connection.execute("insert into charge values (%s)", [amount])
                return amount + 1

            if form == "function":
                ran.append(job.transaction("charged", insert, 5))
            else:
                with job.transaction("charged") as connection:
                    insert(connection, 5)
                    ran.append(6)
            if job.attempt == 1:
                raise RuntimeError("after the commit")

    client = kit.client(app)
    job = client.enqueue(charge)
    kit.drain(app)

    assert client.job(job).state == "done"
    assert conn.execute("select amount from charge").fetchall() == [(5,)]
    # A function gives its result again; a block that was committed is left at its first use of the connection.
    assert ran == ([6, 6] if form == "function" else [6])


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_transaction_that_fails_leaves_neither_rows_nor_checkpoint(app, kit, kind):
    conn = kit.connect()
    conn.execute("create table charge (amount int)")

    if kind == "async":

        @app.task(max_attempts=1)
        async def charge(job: Job) -> None:
            async with job.transaction("charged") as connection:
                await connection.execute("insert into charge values (1)")
                raise RuntimeError("no")
    else:

        @app.task(max_attempts=1)
        def charge(job: Job) -> None:
            with job.transaction("charged") as connection:
                connection.execute("insert into charge values (1)")
                raise RuntimeError("no")

    client = kit.client(app)
    job = client.enqueue(charge)
    kit.drain(app)

    assert conn.execute("select count(*) from charge").fetchone() == (0,)
    assert client.job(job).state == "dead_letter"
    assert [(s.name, s.state) for s in client.steps(job)] == [("charged", "failed")]


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_sleeping_job_gives_its_slot_back(app, kit, ran, kind):
    if kind == "async":

        @app.task
        async def remind(job: Job) -> int:
            await job.step("first", ran.append, "first")
            await job.sleep(timedelta(days=3))
            await job.sleep(timedelta(hours=1), "a little more")
            await job.step("second", ran.append, "second")
            return job.attempt
    else:

        @app.task
        def remind(job: Job) -> int:
            job.step("first", ran.append, "first")
            job.sleep(timedelta(days=3))
            job.sleep(timedelta(hours=1), "a little more")
            job.step("second", ran.append, "second")
            return job.attempt

    client = kit.client(app)
    job = client.enqueue(remind)
    kit.drain(app)
    assert (client.job(job).state, client.job(job).worker_id) == ("scheduled", None)

    kit.clock.advance("71h")
    kit.drain(app)
    assert ran == ["first"]
    kit.clock.advance("1h")
    kit.drain(app)
    assert ran == ["first"]
    kit.clock.advance("1h")
    kit.drain(app)

    assert client.wait(job) == 1
    assert ran == ["first", "second"]


@pytest.mark.parametrize("order", ["event first", "job first"])
def test_an_event_reaches_the_job_that_waits_for_it(app, kit, order):
    @app.task
    async def order_paid(job: Job, number: int) -> str:
        paid = await job.wait_event(f"paid {number}")
        return paid["by"]

    client = kit.client(app)
    job = client.enqueue(order_paid, {"number": 7})
    if order == "job first":
        kit.drain(app)
    assert client.emit_event("paid 7", {"by": "Ada"})
    assert not client.emit_event("paid 7", {"by": "Bob"})
    kit.drain(app)

    assert client.wait(job) == "Ada"


def test_a_wait_ends_at_its_timeout(app, kit):
    @app.task
    async def order_paid(job: Job) -> str:
        try:
            await job.wait_event("paid", timeout=timedelta(hours=2))
        except EventTimeout:
            await job.step("reminded", lambda: None)
            return "reminded"
        return "paid"

    client = kit.client(app)
    job = client.enqueue(order_paid)
    kit.drain(app)
    kit.clock.advance("2h")
    kit.drain(app)
    client.emit_event("paid")

    assert client.wait(job) == "reminded"


def test_children_are_spawned_once_and_joined(app, kit, ran):
    @app.task
    async def resize(n: int) -> int:
        ran.append(n)
        return n * n

    @app.task(retry=NOW)
    async def album(job: Job) -> int:
        children = await job.spawn("fan out", resize, [{"n": n} for n in range(20)])
        if job.attempt == 1:
            raise RuntimeError("after the fan-out")
        outcomes = await job.join("fan in", children)
        return sum(outcome.result for outcome in outcomes)

    client = kit.client(app)
    job = client.enqueue(album)
    kit.drain(app)

    assert client.wait(job) == sum(n * n for n in range(20))
    assert sorted(ran) == list(range(20))
    (flow,) = client.workflows()
    assert (flow.id, flow.state, flow.jobs, flow.done) == (job.id, "done", 21, 21)
    assert {item.parent_id for item in client.workflow_jobs(job.id)} == {None, job.id}


@pytest.mark.parametrize("on_failure", ["fail", "ignore"])
def test_a_child_that_fails(app, kit, on_failure):
    @app.task(max_attempts=1)
    async def resize(n: int) -> int:
        return 10 // n

    @app.task(max_attempts=1)
    async def album(job: Job) -> list[str]:
        children = await job.spawn("fan out", resize, [{"n": n} for n in range(3)])
        try:
            outcomes = await job.join("fan in", children, on_failure=on_failure)
        except JobsFailed as error:
            return [str(error)]
        return [outcome.state for outcome in outcomes]

    client = kit.client(app)
    job = client.enqueue(album)
    kit.drain(app)

    result = client.wait(job)
    if on_failure == "ignore":
        assert result == ["dead_letter", "done", "done"]
    else:
        assert "1 of 3 jobs have failed" in result[0]


def test_steps_side_by_side(app, kit, ran):
    @app.task(retry=NOW)
    async def both(job: Job) -> list[int]:
        async def one(n: int) -> int:
            ran.append(n)
            return n

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job.step(f"n{n}", one, n)) for n in range(5)]
            tasks.append(group.create_task(job.sleep(timedelta(hours=1))))
        return [task.result() for task in tasks[:5]]

    client = kit.client(app)
    job = client.enqueue(both)
    kit.drain(app)
    assert client.job(job).state == "scheduled"
    kit.clock.advance("1h")
    kit.drain(app)

    assert client.wait(job) == list(range(5))


def test_the_ids_of_children_are_ids(app, kit):
    @app.task
    async def leaf() -> None: ...

    @app.task(retry=NOW)
    async def tree(job: Job) -> bool:
        children = await job.spawn("leaves", leaf, [{}, {}])
        if job.attempt == 1:
            raise RuntimeError("again")
        return all(isinstance(child, UUID) for child in children)

    client = kit.client(app)
    job = client.enqueue(tree)
    kit.drain(app)
    assert client.wait(job) is True


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(None, 2.0), (1, 2.0), (5, 5), (3600, 60.0), ("5", 2.0)],
    ids=["nothing", "less", "more", "too much", "no number"],
)
def test_a_try_waits_as_long_as_the_error_asks_within_reason(asked, waited):
    error = ConnectionError("429")
    error.retry_after = asked
    assert Tries(3, [1.0, 2.0], None, (Exception,)).wait(2, error) == waited
