"""What a failure does to the jobs that wait, by their policies, with a real worker."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from onceward import Job, Onceward, PermanentFailure, Retry, Workflow

POLICIES = ["fail", "ignore", "compensate"]


@pytest.fixture
def kit(onceward_kit):
    onceward_kit.clock.pin()
    return onceward_kit


@pytest.fixture
def app():
    return Onceward()


@pytest.fixture
def story(app):
    """An application whose first task fails as long as it is told to; what ran, in order."""
    ran = []
    broken = [True]

    @app.task
    async def begin() -> None:
        ran.append("begin")
        if broken[0]:
            raise PermanentFailure("no")

    @app.task
    async def follow(node: str) -> None:
        ran.append(node)

    def mend() -> None:
        broken[0] = False

    return begin, follow, ran, mend


def branches(begin, follow) -> Workflow:
    """One job for each policy after the first, and one after each of those."""
    flow = Workflow()
    start = flow.add("begin", begin)
    for policy in POLICIES:
        then = flow.add(policy, follow, {"node": policy}, after=[start], after_policy=policy)
        flow.add(f"after {policy}", follow, {"node": f"after {policy}"}, after=[then])
    return flow


def states(client, flow) -> dict[str, str]:
    return {job.node: job.state for job in client.workflow_jobs(flow)}


def test_policies_when_the_job_before_fails(app, kit, story):
    begin, follow, ran, _ = story
    client = kit.client(app)
    jobs = client.enqueue_workflow(branches(begin, follow))
    flow = client.job(jobs["begin"]).workflow_id

    kit.drain(app)

    assert sorted(ran) == ["after compensate", "after ignore", "begin", "compensate", "ignore"]
    assert states(client, flow) == {
        "begin": "dead_letter", "fail": "cancelled", "after fail": "cancelled", "ignore": "done", "after ignore": "done",
        "compensate": "done", "after compensate": "done",
    }  # fmt: skip
    assert client.job(jobs["fail"]).note == f"job {jobs['begin']}, which it waited for, failed"
    assert [info.state for info in client.workflows()] == ["dead_letter"]


def test_policies_when_the_job_before_is_done(app, kit, story):
    begin, follow, ran, mend = story
    mend()
    client = kit.client(app)
    jobs = client.enqueue_workflow(branches(begin, follow))

    kit.drain(app)

    assert sorted(ran) == ["after fail", "after ignore", "begin", "fail", "ignore"]
    assert client.job(jobs["compensate"]).state == "cancelled"
    assert "not needed" in client.job(jobs["compensate"]).note


def test_a_requeued_workflow_goes_on_where_it_stopped(app, kit, story):
    begin, follow, ran, mend = story
    client = kit.client(app)
    flow = Workflow()
    start = flow.add("begin", begin)
    middle = flow.add("middle", follow, {"node": "middle"}, after=[start])
    flow.add("end", follow, {"node": "end"}, after=[middle])
    jobs = client.enqueue_workflow(flow)
    flow = client.job(jobs["begin"]).workflow_id
    kit.drain(app)
    assert set(states(client, flow).values()) == {"dead_letter", "cancelled"}

    mend()
    assert client.requeue_workflow(flow) == 3
    kit.drain(app)

    assert ran == ["begin", "begin", "middle", "end"]
    assert set(states(client, flow).values()) == {"done"}


def test_a_job_that_will_be_tried_again_has_not_failed(app, kit):
    @app.task(retry=Retry(waits=[timedelta(hours=1)]))
    async def flaky(job: Job) -> None:
        if job.attempt == 1:
            raise ConnectionError("blip")

    client = kit.client(app)
    first = client.enqueue(flaky)
    then = client.enqueue(flaky, after=[first])
    kit.drain(app)
    assert (client.job(first).state, client.job(then).state) == ("scheduled", "blocked")

    kit.clock.advance("1h")
    kit.drain(app)

    assert (client.job(first).state, client.job(then).attempt) == ("done", 1)


def test_a_dead_letter_that_a_person_resolves_before_counts_as_done(app, kit, story):
    begin, follow, ran, _ = story
    client = kit.client(app)
    job = client.enqueue(begin)
    kit.drain(app)
    client.resolve(job, "done by hand")

    client.enqueue(follow, {"node": "then"}, after=[job])
    kit.drain(app)

    assert ran == ["begin", "then"]


def test_a_workflow_may_end_in_one_job_after_very_many(app, kit):
    ran = []

    @app.task
    async def part(n: int) -> None:
        ran.append(n)

    @app.task
    async def whole() -> int:
        return len(ran)

    client = kit.client(app)
    flow = uuid4()
    parts = client.enqueue_many(part, [{"n": n} for n in range(500)], workflow_id=flow)
    job = client.enqueue(whole, after=parts)
    kit.drain(app)

    assert client.wait(job) == 500
    (info,) = client.workflows()
    assert (info.id, info.jobs, info.done) == (flow, 501, 501)
