"""Errors and outcomes that nobody expects: the job fails and says why, and the worker goes on."""

from __future__ import annotations

import asyncio

import pytest

from onceward.worker import Worker
from tests.sdk.odd_ends import MESSAGES, app, ends, ends_in_a_process, ends_in_a_thread, good

EVERYWHERE = [
    pytest.param(ends, id="async"),
    pytest.param(ends_in_a_thread, id="in a thread"),
    pytest.param(ends_in_a_process, id="in a process", marks=pytest.mark.slow),
]


@pytest.fixture
def client(onceward_database):
    with app.client(onceward_database) as client:
        yield client


def last_error(client, onceward_database, task, **payload):
    odd, other = client.enqueue(task, payload), client.enqueue(good)

    asyncio.run(Worker(app, dsn=onceward_database).drain())

    assert client.wait(other) == "good"
    job = client.job(odd)
    assert job.state == "dead_letter"
    return job.last_error


@pytest.mark.parametrize("task", EVERYWHERE[:2])
@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_a_message_that_is_not_text_is_passed_over_for_the_text_of_the_error(
    client, onceward_database, task, number
):
    error = last_error(client, onceward_database, task, kind="message", number=number)
    assert (error["type"], error["message"]) == ("WithMessage", "the text")


@pytest.mark.parametrize("task", EVERYWHERE)
def test_an_error_without_text_is_known_by_its_class(client, onceward_database, task):
    error = last_error(client, onceward_database, task, kind="empty")
    assert (error["type"], error["message"]) == ("Empty", "Empty")


@pytest.mark.parametrize("task", EVERYWHERE)
@pytest.mark.parametrize("kind", ["property", "str"])
def test_an_error_whose_text_cannot_be_had_says_so(client, onceward_database, task, kind):
    error = last_error(client, onceward_database, task, kind=kind)
    assert (error["type"], error["message"]) == ("Textless", "<Textless whose text cannot be read>")


@pytest.mark.parametrize("task", EVERYWHERE[:2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("snooze", "a snooze must be a timedelta, got 'soon'"),
        ("reason", "a reason must be text, got 5"),
        ("cancel", "a reason must be text, got 5"),
    ],
)
def test_an_outcome_that_makes_no_sense_waits_for_a_person(client, onceward_database, task, kind, message):
    assert last_error(client, onceward_database, task, kind=kind)["message"] == message
