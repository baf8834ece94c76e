from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from onceward.errors import InvalidArgument, OncewardError
from onceward.testing.kit import contains
from tests.testing import shop


def test_each_test_has_a_database_of_its_own_in_which_the_engine_is_installed(onceward_kit, onceward_server):
    with onceward_server.cloned() as other:
        onceward_kit.connect().execute("create table mine ()")
        with psycopg.connect(other.dsn) as connection:
            assert connection.execute(
                "select to_regclass('mine'), count(*) from onceward.jobs"
            ).fetchone() == (None, 0)


def test_everything_ready_or_due_is_run_and_counted(onceward_kit):
    client = onceward_kit.client(shop.app)
    jobs = [client.enqueue(shop.remind, {"invoice": n}) for n in range(5)]
    client.enqueue(shop.remind, {"invoice": 9}, run_at=onceward_kit.clock.now() + timedelta(days=14))

    assert onceward_kit.drain(shop.app) == 5
    assert [client.job(job).result for job in jobs] == [f"reminded of invoice {n}" for n in range(5)]
    onceward_kit.clock.advance("14 days")
    assert onceward_kit.drain(shop.app) == 1
    assert onceward_kit.drain(shop.app) == 0


def test_a_retry_is_run_when_the_clock_has_reached_it(onceward_kit):
    client = onceward_kit.client(shop.app)
    job = client.enqueue(shop.remind, {"invoice": 1, "fails": True})

    assert onceward_kit.drain(shop.app) == 1
    assert client.job(job).state == "scheduled"
    onceward_kit.clock.advance("5 min")
    assert onceward_kit.drain(shop.app) == 1
    assert client.job(job).state == "dead_letter"


def test_only_the_lanes_that_are_named_are_drained(onceward_kit):
    client = onceward_kit.client(shop.app)
    client.enqueue(shop.remind, {"invoice": 1})
    client.enqueue(shop.remind, {"invoice": 2}, lane="slow")

    assert onceward_kit.drain(shop.app, lanes=["slow"]) == 1
    onceward_kit.assert_enqueued("remind", {"invoice": 1}, state="ready")


async def drain_within_a_coroutine(kit):
    return kit.drain(shop.app)


def test_draining_works_from_a_coroutine_too(onceward_kit):
    import asyncio

    onceward_kit.client(shop.app).enqueue(shop.remind, {"invoice": 1})

    assert asyncio.run(drain_within_a_coroutine(onceward_kit)) == 1


@pytest.mark.slow
def test_a_crashed_worker_leaves_its_jobs_to_the_next_one(onceward_kit):
    client = onceward_kit.client(shop.app)
    job = client.enqueue(shop.hang)

    crash = onceward_kit.crash_worker("tests.testing.shop:app", lanes=["slow"])

    assert crash.job_ids == [job.id]
    held = client.job(job)
    assert (held.state, held.worker_id, held.attempt) == ("running", crash.worker_id, 1)
    onceward_kit.connect().execute("select onceward.rescue()")
    assert client.job(job).state == "ready"


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why(onceward_kit):
    with pytest.raises(OncewardError, match="no_such_module"):
        onceward_kit.crash_worker("no_such_module:app")


def test_a_job_is_found_by_parts_of_its_payload_and_by_its_columns(onceward_kit):
    client = onceward_kit.client()
    job = client.enqueue("mail.send", {"to": "a@example.org", "data": {"n": 1, "m": 2}}, key="k", priority=3)
    client.enqueue("mail.send", {"to": "b@example.org"})

    found = onceward_kit.assert_enqueued("mail.send", {"data": {"n": 1}}, key="k", priority=3, state="ready")
    assert found.id == job.id
    assert onceward_kit.assert_enqueued("mail.send", count=2).id == job.id


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["mail.sent"], {}),
        (["mail.send", {"to": "b@example.org"}], {}),
        (["mail.send"], {"lane": "other"}),
        (["mail.send"], {"count": 2}),
        (["mail.send"], {"count": 0}),
    ],
)
def test_a_job_that_is_not_there_fails_the_assertion_and_lists_those_that_are(onceward_kit, arguments, where):
    job = onceward_kit.client().enqueue("mail.send", {"to": "a@example.org"})

    with pytest.raises(AssertionError) as failed:
        onceward_kit.assert_enqueued(*arguments, **where)

    assert arguments[0] in str(failed.value)
    assert (str(job.id) in str(failed.value)) == (arguments[0] == "mail.send")


def test_an_unknown_column_is_named(onceward_kit):
    with pytest.raises(InvalidArgument, match="colour"):
        onceward_kit.assert_enqueued("mail.send", colour="red")


@pytest.mark.parametrize(
    ("actual", "wanted", "answer"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": 1}, {"a": None}, False),
        ({}, {"a": None}, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1], False),
        ("x", None, True),
    ],
)
def test_a_payload_contains_what_is_named(actual, wanted, answer):
    assert contains(actual, wanted) is answer


def test_connections_and_clients_are_closed_after_the_test(onceward_database):
    from onceward.testing import Kit

    with Kit(onceward_database) as kit:
        connection = kit.connect()
        kit.client().jobs()

    assert connection.closed


def test_the_plugin_loads_nothing_that_a_run_without_a_database_does_not_need():
    import subprocess
    import sys

    code = "import sys, onceward.testing.plugin; print(sorted({'psycopg', 'pydantic', 'asyncio', 'typer'} & set(sys.modules)))"
    # pytest itself may load some of them: compare with what it alone loads.
    alone = subprocess.check_output(
        [sys.executable, "-c", code.replace("onceward.testing.plugin", "pytest")], text=True
    )
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, cwd=Path(__file__).parent) == alone
    )


def test_that_nothing_was_enqueued_can_be_asserted(onceward_kit):
    onceward_kit.assert_enqueued("mail.send", count=0)
    onceward_kit.client().enqueue("mail.send", {"n": 1})

    onceward_kit.assert_enqueued("mail.send", {"n": 2}, count=0)
    with pytest.raises(AssertionError, match=r'expected no job of task "mail.send", found 1'):
        onceward_kit.assert_enqueued("mail.send", count=0)
    for count in (-1, "0", True):
        with pytest.raises(InvalidArgument, match="count must be a whole number of at least 0, got"):
            onceward_kit.assert_enqueued("mail.send", count=count)


def test_an_application_and_its_name_are_not_taken_for_each_other(onceward_kit):
    with pytest.raises(InvalidArgument, match="drain must be given an Onceward application, got 'shop:app'"):
        onceward_kit.drain("shop:app")
    for target in (shop.app, "shop"):
        with pytest.raises(
            InvalidArgument, match=r'crash_worker must be given a text "package\.module:app", got '
        ):
            onceward_kit.crash_worker(target)
