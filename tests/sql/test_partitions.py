from __future__ import annotations

import pytest

from onceward.install import upgrade
from tests.support.engine import Engine


def days(db, parent):
    return {
        row.relname: row.bound
        for row in db.run(
            "select c.relname, pg_get_expr(c.relpartbound, c.oid) as bound "
            "  from pg_inherits as i join pg_class as c on c.oid = i.inhrelid "
            " where i.inhparent = %s::regclass and c.relname !~ '_default$'",
            f"onceward.{parent}_private",
        )
    }


@pytest.fixture(scope="module")
def installed(onceward_server):
    """As an installation leaves it: databases of tests have fewer days.  Its test only looks."""
    database = onceward_server.create("partitions")
    upgrade(database.dsn)
    with Engine(database) as engine:
        yield engine
    onceward_server.drop(database)


@pytest.mark.parametrize("parent", ["archive", "attempt", "step", "audit", "seal_leaf"])
def test_partitions_reach_from_yesterday_to_two_weeks_ahead(installed, parent):
    found = sorted(days(installed, parent))

    today = installed.value("select to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    assert len(found) == 16
    assert found[1] == f"{parent}_{today}"


def test_days_ahead_are_attached_once(db):
    there = 5 * len(days(db, "archive"))

    assert db.answer("ensure_partitions", days_ahead=16) == 5 * 18 - there
    assert db.answer("ensure_partitions", days_ahead=16) == 0


def test_a_day_is_the_same_in_every_time_zone(db):
    """Bounds at the caller's midnight would overlap those that a caller elsewhere made before."""
    for number, zone in enumerate(["Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kolkata"], start=20):
        db.run(f"set timezone = '{zone}'")
        db.answer("ensure_partitions", days_ahead=number)
    db.run("set timezone = 'UTC'")

    bounds = [
        bound
        for parent in ("archive", "attempt", "step", "audit", "seal_leaf")
        for bound in days(db, parent).values()
    ]
    starts = {
        db.value("select onceward.id_at((now() at time zone 'UTC')::date + %s)::text", n)
        for n in range(-1, 23)
    }
    # The audit log's are moments, those of its leaves are days.
    starts |= {
        db.value(text, n)
        for n in range(-1, 23)
        for text in (
            "select ((now() at time zone 'UTC')::date + %s)::timestamptz::text",
            "select ((now() at time zone 'UTC')::date + %s)::text",
        )
    }
    assert {bound.split("'")[1] for bound in bounds} <= starts


def test_a_finished_job_lies_in_the_partition_of_its_day(db):
    job = db.done()
    db.fail(db.running())

    today = db.value("select to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    assert (
        db.value("select tableoid::regclass::text from onceward.archive_private where id = %s", job)
        == f"onceward.archive_{today}"
    )
    assert (
        db.value("select tableoid::regclass::text from onceward.attempt_private")
        == f"onceward.attempt_{today}"
    )


def test_a_job_of_a_day_without_a_partition_is_kept_in_the_default_one(db):
    today = db.value("select to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    db.run(f"drop table onceward.archive_{today}")
    job = db.done()

    assert (
        db.value("select tableoid::regclass::text from onceward.archive_private where id = %s", job)
        == "onceward.archive_default"
    )
    # Its day cannot be attached any more; the others can, and nothing fails.
    db.answer("ensure_partitions", days_ahead=15)
    assert db.state(job) == "done"


def test_partitions_are_as_closed_as_their_parent(db):
    db.answer("ensure_partitions", days_ahead=20)

    open_ones = db.run(
        "select c.relname from pg_class as c "
        " where c.relnamespace = 'onceward'::regnamespace and c.relispartition and c.relkind = 'r' "
        "   and (not c.relrowsecurity or not c.relforcerowsecurity or c.relacl::text ~ 'onceward_(producer|worker|operator|auditor)=')"
    )
    assert open_ones == []


def test_keys_past_their_window_are_tidied_away_and_others_stay(db):
    db.enqueue(key="short", key_window="1 hour")
    db.enqueue(key="long", key_window="1 day")
    db.enqueue(key="live")
    db.enqueue(key="forever", key_window="forever")
    db.clock.advance("1 hour")

    assert db.answer("tidy") == 1
    assert {row.key for row in db.run("select key from onceward.key_private")} == {"long", "live", "forever"}


def test_concurrency_keys_without_jobs_are_tidied_away_and_others_stay(db):
    db.done(concurrency_key="idle")
    db.running(concurrency_key="held")
    db.enqueue(concurrency_key="held")
    db.promote()

    assert db.answer("tidy") == 1
    assert db.value("select array_agg(concurrency_key) from onceward.concurrency_private") == ["held"]


def test_workers_that_ended_a_week_ago_are_removed(db):
    db.call("retire_worker", worker_id=db.worker("old"))
    db.clock.advance("7 days 1 s")
    db.call("retire_worker", worker_id=db.worker("recent"))
    db.worker("live")

    assert db.call("retain", kind="workers")[0].row_count == 1
    assert {row.name for row in db.run("select name from onceward.workers")} == {"recent", "live"}


def test_tidying_takes_no_more_of_a_kind_than_asked(db):
    for n in range(5):
        db.enqueue(key=f"k{n}", key_window="1 hour")
    db.clock.advance("1 hour")

    assert [db.answer("tidy", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_tidied_concurrency_key_works_again(db):
    db.done(concurrency_key="k")
    db.answer("tidy")

    db.complete(db.running(concurrency_key="k"))
