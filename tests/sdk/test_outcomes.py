"""What a handler returns and nobody can use: a person decides, the work is not repeated."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from onceward.worker import Worker
from tests.sdk import shop


def ended(client, dsn, task, payload=None):
    job = client.enqueue(task, payload)
    asyncio.run(Worker(shop.app, dsn=dsn).drain())
    return client.job(job)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("negative", "a snooze must be between 0 and 10 years, got -1 day, 23:59:59"),
        ("endless", "a snooze must be between 0 and 10 years, got 3654 days"),
        ("number", "a snooze must be a timedelta, got 5"),
        ("nan", "a snooze must be a timedelta, got nan"),
        ("infinite", "a snooze must be a timedelta, got inf"),
        ("nothing", "a snooze must be a timedelta, got None"),
    ],
)
def test_a_snooze_of_no_sensible_length_is_not_repeated(plain, onceward_database, kind, words):
    job = ended(plain, onceward_database, "snoozes_badly", {"kind": kind})

    assert (job.state, job.attempt, job.last_error["category"]) == ("dead_letter", 1, "result")
    assert words in job.last_error["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "payload", "words"),
    [
        ("returns_a_lock", {}, "pickle"),
        ("returns_unsendable", {"how": "to send"}, "not to be sent"),
        ("returns_unsendable", {"how": "to read"}, "not to be read"),
    ],
)
def test_a_result_that_cannot_leave_its_process_is_not_repeated(
    plain, onceward_database, task, payload, words
):
    job = ended(plain, onceward_database, task, payload)

    assert (job.state, job.attempt, job.last_error["category"]) == ("dead_letter", 1, "result")
    assert words in job.last_error["message"]
    assert "Return what JSON can hold" in job.last_error["message"]
    # The others of the pool go on.
    assert ended(plain, onceward_database, "square", {"n": 3}).result == 9


@pytest.mark.slow
def test_what_a_handler_in_a_process_makes_is_known_as_made_by_its_job(plain, onceward_database):
    job = ended(plain, onceward_database, "emits_in_a_process", {"dsn": onceward_database})

    with psycopg.connect(onceward_database) as connection:
        found = connection.execute("select name, made_by from onceward.events").fetchall()
    assert (job.state, found) == ("done", [("made", job.id)])


IN_A_PROCESS = pytest.param("says_no_in_a_process", marks=pytest.mark.slow)


@pytest.mark.parametrize("task", ["says_no", "says_no_in_a_thread"])
@pytest.mark.parametrize(
    ("how", "kind", "state", "category", "wait"),
    [
        ("closed", "Closed", "scheduled", "closed", timedelta(hours=2)),
        ("temporary", "TemporaryFailure", "scheduled", "temporary", timedelta(hours=1)),
        ("card", "PermanentFailure", "dead_letter", "card", None),
        ("odd", "TemporaryFailure", "scheduled", "temporary", timedelta(hours=1)),
        ("nul", "TemporaryFailure", "scheduled", ("a\\x00b" * 90)[:100], timedelta(hours=1)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_an_exception_says_under_which_category_and_when_again(
    plain, onceward_database, task, how, kind, state, category, wait
):
    job = ended(plain, onceward_database, task, {"how": how})

    (attempt,) = plain.attempts(job.id)
    assert (job.state, attempt.error_type, attempt.category) == (state, kind, category)
    assert (attempt.retry_at and attempt.retry_at - attempt.ended_at) == wait


@pytest.mark.slow
def test_an_exception_of_another_process_says_as_much(plain, onceward_database):
    job = ended(plain, onceward_database, "says_no_in_a_process", {"how": "closed"})

    (attempt,) = plain.attempts(job.id)
    assert (attempt.error_type, attempt.category) == ("Closed", "closed")
    assert attempt.retry_at - attempt.ended_at == timedelta(hours=2)
    assert "in say_no" in attempt.traceback


@pytest.mark.parametrize("task", ["says_no", "says_no_in_a_thread", IN_A_PROCESS])
def test_a_provider_that_asks_to_wait_costs_no_attempt(plain, onceward_database, task):
    job = ended(plain, onceward_database, task, {"how": "limited"})

    assert (job.state, job.attempt, job.snoozes) == ("scheduled", 0, 1)
