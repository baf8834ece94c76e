"""What a producer can do, on both clients."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from onceward import Retry
from onceward.errors import (
    InvalidArgument,
    InvalidPayload,
    JobFailed,
    KeyConflict,
    PayloadTooLarge,
    UnknownJob,
    UnknownLane,
    UnknownTask,
    WaitTimeout,
    WrongState,
)
from onceward.model import JobFilter
from onceward.worker import Worker
from tests.sdk import shop

NOTHING = timedelta(0)


def drain(dsn, **options):
    return asyncio.run(Worker(shop.app, dsn=dsn, **options).drain())


def test_wait_returns_the_result(client, onceward_database):
    job = client.enqueue(shop.greet, {"name": "Ada", "times": 2})
    drain(onceward_database)
    assert client.wait(job) == "Hello Ada Hello Ada"


def test_a_client_of_a_tenant_finds_no_job_of_another_whatever_its_login_may_see(
    make_client, onceward_database
):
    job = make_client(tenant="acme").enqueue(shop.greet, {"name": "Ada"})
    drain(onceward_database)
    globex = make_client(tenant="globex")

    with pytest.raises(UnknownJob):
        globex.job(job)
    with pytest.raises(UnknownJob):
        globex.wait(job, timeout=timedelta(seconds=1))
    assert globex.attempts(job) == []
    assert make_client(tenant="acme").wait(job) == make_client(tenant="*").wait(job) == "Hello Ada"


def test_wait_gives_up_but_the_job_goes_on(client):
    job = client.enqueue(shop.greet, {"name": "Ada"})
    with pytest.raises(WaitTimeout, match="has not finished within 0 s"):
        client.wait(job, timeout=NOTHING)
    assert client.job(job).state == "ready"


def test_wait_says_how_a_job_failed(client, onceward_database):
    job = client.enqueue("hopeless")
    drain(onceward_database)
    with pytest.raises(JobFailed, match="dead_letter: the address does not exist"):
        client.wait(job)


def test_options_of_the_call_override_those_of_the_task(client):
    usual = client.job(client.enqueue(shop.ship, {"number": 1}))
    special = client.job(
        client.enqueue(shop.ship, {"number": 1}, lane="default", priority=-1, max_attempts=1)
    )
    assert (usual.lane, usual.priority, usual.max_attempts) == ("orders", 5, 3)
    assert (special.lane, special.priority, special.max_attempts) == ("default", -1, 1)


def test_every_option_reaches_the_job(client):
    at = datetime.now(UTC) + timedelta(days=1)
    job = client.job(
        client.enqueue(
            shop.greet,
            {"name": "Ada"},
            run_at=at,
            expires_at=at + timedelta(hours=1),
            timeout=timedelta(minutes=5),
            key="k",
            key_window=timedelta(days=1),
            concurrency_key="c",
            concurrency_limit=3,
            retry=Retry(waits=[timedelta(seconds=7)], jitter=True, max_snoozes=2),
            tenant="acme",
            headers={"traceparent": "00-1"},
        )
    )
    assert (job.state, job.run_at, job.expires_at) == ("scheduled", at, at + timedelta(hours=1))
    assert (job.timeout, job.key, job.concurrency_key, job.concurrency_limit) == (
        timedelta(minutes=5),
        "k",
        "c",
        3,
    )
    assert job.retry == {"waits": [7], "jitter": True, "max_snoozes": 2}
    assert (job.tenant, job.headers) == ("acme", {"traceparent": "00-1"})


def test_the_same_key_gives_the_same_job(client, onceward_database):
    first = client.enqueue(shop.greet, {"name": "Ada"}, key="hello", key_window="forever")
    again = client.enqueue(shop.greet, {"name": "Ada"}, key="hello", key_window="forever")
    drain(onceward_database)
    after = client.enqueue(shop.greet, {"name": "Ada"}, key="hello", key_window="forever")
    assert (first.created, again.created, after.created) == (True, False, False)
    assert first.id == again.id == after.id
    assert again.answer == "existing"


def test_the_same_key_with_another_payload_is_an_error(client):
    client.enqueue(shop.greet, {"name": "Ada"}, key="hello")
    with pytest.raises(KeyConflict, match='key "hello" of task "greet"'):
        client.enqueue(shop.greet, {"name": "Grace"}, key="hello")


def test_many_jobs_in_one_call_keep_their_order(client, onceward_database):
    jobs = client.enqueue_many(shop.greet, [{"name": str(i)} for i in range(250)])
    drain(onceward_database)
    assert [client.wait(job) for job in jobs] == [f"Hello {i}" for i in range(250)]


def test_keys_of_many_jobs_are_one_per_payload(client):
    jobs = client.enqueue_many(
        shop.greet, [{"name": "a"}, {"name": "b"}, {"name": "a"}], keys=["a", None, "a"]
    )
    assert [job.created for job in jobs] == [True, True, False]
    assert jobs[0].id == jobs[2].id
    with pytest.raises(InvalidArgument, match=r"keys must be as many as payloads \(1\), got 2"):
        client.enqueue_many(shop.greet, [{"name": "a"}], keys=["a", "b"])


def test_concurrency_keys_of_many_jobs_are_one_per_payload(client, onceward_database):
    jobs = client.enqueue_many(
        shop.greet,
        [{"name": str(n)} for n in range(4)],
        keys=["a", None, None, "b"],
        concurrency_keys=("x", None, "y", "x"),
        concurrency_limit=2,
    )

    found = [client.job(job) for job in jobs]
    assert [(job.state, job.concurrency_key, job.concurrency_limit, job.key) for job in found] == [
        ("blocked", "x", 2, "a"),
        ("ready", None, None, None),
        ("blocked", "y", 2, None),
        ("blocked", "x", 2, "b"),
    ]
    drain(onceward_database)
    assert [client.wait(job) for job in jobs] == [f"Hello {n}" for n in range(4)]


def test_lists_are_filtered(client):
    client.enqueue(shop.greet, {"name": "Ada"}, key="x")
    client.enqueue(shop.ship, {"number": 1})
    assert [job.task for job in client.jobs(JobFilter(lane="orders"))] == ["ship"]
    assert [job.task for job in client.jobs(JobFilter(key="x"))] == ["greet"]
    assert client.jobs(JobFilter(states=["done"])) == []
    assert len(client.jobs()) == 2


def test_delays_are_counted_by_the_clock_of_the_database(client, onceward_clock):
    onceward_clock.advance("2h")
    job = client.job(
        client.enqueue(shop.greet, {"name": "Ada"}, delay=timedelta(hours=1), expires_in=timedelta(hours=1))
    )
    assert job.state == "scheduled"
    assert job.run_at - job.created_at == timedelta(hours=1)
    assert job.expires_at - job.run_at == timedelta(hours=1)


def test_a_waiting_job_is_cancelled_at_once(client):
    job = client.enqueue(shop.greet, {"name": "Ada"})
    assert client.cancel(job, "not needed") == "cancelled"
    assert (client.job(job).state, client.job(job).note) == ("cancelled", "not needed")


def test_a_dead_letter_runs_again_with_an_edited_payload(client, onceward_database):
    job = client.enqueue(shop.flaky, {"good_at": 9})
    drain(onceward_database)
    assert client.job(job).state == "dead_letter"
    assert client.requeue(job, payload={"good_at": 1}) == "ready"
    drain(onceward_database)
    assert client.wait(job) == 1
    assert [a.outcome for a in client.attempts(job)] == ["failed", "failed", "dead_letter", "done"]


def test_a_dead_letter_is_resolved_with_a_note(client, onceward_database):
    job = client.enqueue("hopeless")
    drain(onceward_database)
    client.resolve(job, "refunded by hand")
    assert client.job(job).state == "resolved"
    with pytest.raises(WrongState, match="cannot resolve"):
        client.resolve(job, "again")


def test_a_scheduled_job_can_be_started_now(client, onceward_database):
    job = client.enqueue(shop.greet, {"name": "Ada"}, delay=timedelta(days=1))
    assert client.run_now(job) == "ready"
    drain(onceward_database)
    assert client.wait(job) == "Hello Ada"


def test_a_paused_lane_keeps_its_jobs(client, onceward_database):
    job = client.enqueue(shop.greet, {"name": "Ada"})
    assert client.pause_lane("default", "maintenance") is True
    assert drain(onceward_database) == 0
    assert client.resume_lane("default") is True
    assert drain(onceward_database) == 1
    assert client.job(job).state == "done"


def test_lanes_that_tasks_name_exist_without_ceremony(client):
    client.enqueue(shop.ship, {"number": 1})
    assert "orders" in [lane.name for lane in client.lanes()]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "name: Field required"),
        ({"name": 5}, "name: Input should be a valid string, got 5"),
        ({"name": "Ada", "tmies": 2}, "tmies: Extra inputs are not permitted"),
        ({"name": "a\x00b"}, "payload.name contains a NUL character"),
        ({"name": "\ud800"}, "payload.name contains a lone surrogate"),
        (["Ada"], "must be an object of named values, got list"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_field(client, payload, message):
    with pytest.raises(InvalidPayload) as error:
        client.enqueue(shop.greet, payload)
    assert message in str(error.value)
    assert "Nothing was written." in str(error.value)
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": timedelta(seconds=-5)}, "delay must not be negative, got -5 s"),
        ({"run_at": datetime(9999, 1, 1, tzinfo=UTC)}, "run_at must lie within the next 10 years"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at must have a time zone, got 2030-01-01T00:00:00"),  # noqa: DTZ001
        ({"delay": timedelta(1), "run_at": datetime.now(UTC)}, "delay and run_at cannot be given together"),
        ({"priority": 5000}, "priority must be between -1000 and 1000, got '5000'"),
        ({"max_attempts": 0}, "max_attempts must be between 1 and 1000, got '0'"),
        (
            {"key_window": "soon", "key": "k"},
            "key_window must be live, forever or an interval such as 24 hours, got 'soon'",
        ),
        ({"expires_in": timedelta(seconds=-1)}, "expires_in must not be negative"),
        ({"colour": "red"}, "enqueue has no option colour"),
        ({"delay": 5}, "delay must be a timedelta, got 5"),
        ({"timeout": 5}, "timeout must be a timedelta, got 5"),
        ({"run_at": "2030-01-01"}, "run_at must be a datetime, got '2030-01-01'"),
        ({"priority": 10**30}, "priority is out of range"),
        ({"priority": 1.5}, "priority must be an int, got 1.5"),
        ({"lane": "a\x00"}, "lane must not contain NUL"),
        ({"key": 5}, "key must be a str, got 5"),
        ({"retry": {"waits": [1]}}, "retry must be a Retry"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(client, options, message):
    with pytest.raises(InvalidArgument) as error:
        client.enqueue(shop.greet, {"name": "Ada"}, **options)
    assert message in str(error.value)
    assert client.jobs() == []


def test_unknown_names_come_with_the_nearest_one(client):
    with pytest.raises(UnknownTask, match=r'task "gret" is not registered[\s\S]*Did you mean "greet"'):
        client.enqueue("gret", {"name": "Ada"})
    with pytest.raises(UnknownLane, match='lane "nowhere" does not exist'):
        client.enqueue(shop.greet, {"name": "Ada"}, lane="nowhere")
    with pytest.raises(UnknownJob):
        client.job("00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidArgument, match="job id must be a UUID, got 'seven'"):
        client.job("seven")


def test_a_payload_over_the_cap_is_refused(client):
    with pytest.raises(PayloadTooLarge, match='payload must be at most 262144 bytes in lane "default"'):
        client.enqueue(shop.greet, {"name": "x" * 300_000})
    assert client.jobs() == []


def test_a_bad_payload_among_many_is_named_by_its_place(client):
    with pytest.raises(InvalidPayload, match=r"1\.name: Input should be a valid string, got 5"):
        client.enqueue_many(shop.greet, [{"name": "a"}, {"name": 5}])
    with pytest.raises(InvalidPayload, match=r"payloads\[1\]\.name contains a NUL character"):
        client.enqueue_many(shop.greet, [{"name": "a"}, {"name": "\x00"}])
    many = [{"name": "a"}] * 250
    with pytest.raises(InvalidPayload, match=r"250\.name: Input should be a valid string, got 5"):
        client.enqueue_many(shop.greet, [*many, {"name": 5}])
    with pytest.raises(InvalidPayload, match=r"payloads\[250\]\.name contains a NUL character"):
        client.enqueue_many(shop.greet, [*many, {"name": "\x00"}])
    assert client.jobs() == []
    assert client.enqueue_many(shop.greet, []) == []


def test_arguments_of_the_wrong_kind_are_named(client):
    with pytest.raises(InvalidArgument, match="task must be a task or its name, got None"):
        client.enqueue(None, {})
    with pytest.raises(InvalidArgument, match="key_window must be a str or a timedelta, got 5"):
        client.enqueue(shop.greet, {"name": "Ada"}, key="k", key_window=5)
    with pytest.raises(InvalidArgument, match="job id must be a UUID, got 5"):
        client.cancel(5)
    with pytest.raises(InvalidArgument, match=r"timeout must be a timedelta, got 15"):
        client.wait("00000000-0000-0000-0000-000000000000", timeout=15)
    with pytest.raises(InvalidPayload, match=r"payload\.good_at contains a number of more than 4300 digits"):
        client.enqueue(shop.flaky, {"good_at": 10**4500})
