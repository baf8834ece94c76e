"""What a handler returns and nobody can use: a person decides, the work is not repeated."""

from __future__ import annotations

import asyncio

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
