"""Schedules in code: declared beside their task, written by the worker, fired by it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from onceward import AsyncClient, Client, Onceward, Retry
from onceward.errors import InvalidArgument, InvalidPayload, UnknownSchedule, UnknownTask
from onceward.schedules import AsyncSchedules, Schedules
from onceward.worker import Worker
from tests.sdk.conftest import Blocking
from tests.sdk.test_worker import until, working

NOON = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)


def make_app(**options):
    app = Onceward(**options)
    app.ran = []

    @app.task(
        priority=3, max_attempts=2, retry=Retry(base=timedelta(seconds=1)), timeout=timedelta(minutes=1)
    )
    async def report(kind: str = "short") -> None:
        app.ran.append(kind)

    return app


def drain(dsn, app):
    return asyncio.run(Worker(app, dsn=dsn).drain())


@pytest.fixture(params=["sync", "async"])
def schedules(request, onceward_database):
    if request.param == "sync":
        with Client(onceward_database) as client:
            yield Schedules(client)
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database)
        yield Blocking(AsyncSchedules(client), runner)
        runner.run(client.close())


# ---------------------------------------------------------------- declaring


def test_a_schedule_takes_the_options_of_its_task_unless_it_has_its_own():
    app = make_app()
    app.add_schedule(
        "daily",
        "report",
        "07:00",
        zone="Asia/Tokyo",
        payload={"kind": "long"},
        priority=9,
        jitter=timedelta(seconds=5),
    )

    (schedule,) = app.schedules.values()

    assert schedule.to_json() == {
        "name": "daily", "task": "report", "spec": "07:00", "zone": "Asia/Tokyo", "payload": {"kind": "long"},
        "priority": 9, "max_attempts": 2, "lane": "default", "jitter": "5.000000 seconds", "timeout": "60.000000 seconds",
        "retry": {"base": 1.0, "factor": 3.0, "cap": 3600.0},
    }  # fmt: skip


def test_the_decorator_stands_above_a_task_or_makes_one():
    app = Onceward()

    @app.schedule("0 7 * * *")
    @app.schedule(timedelta(seconds=30), name="often", lane="quick")
    @app.task(name="a")
    async def first() -> None: ...

    @app.schedule("1 hour")
    def second() -> None: ...

    assert [(name, schedule.task, schedule.spec) for (_, name), schedule in app.schedules.items()] == [
        ("often", "a", "30 seconds"),
        ("a", "a", "0 7 * * *"),
        ("second", "second", "1 hour"),
    ]
    assert set(app.tasks) == {"a", "second"}
    assert app.lanes == ["default", "quick"]


@pytest.mark.parametrize(
    ("spec", "options", "error", "fragment"),
    [
        ("", {}, InvalidArgument, "spec of a schedule must be"),
        (None, {}, InvalidArgument, "spec of a schedule must be"),
        (timedelta(seconds=0.5), {}, InvalidArgument, "whole seconds"),
        (
            "07:00",
            {"missed": "some"},
            InvalidArgument,
            "missed of a schedule must be one of none, latest, all",
        ),
        ("07:00", {"overlap": "maybe"}, InvalidArgument, "overlap of a schedule must be one of"),
        ("07:00", {"grace": 5}, InvalidArgument, "grace of a schedule must be a timedelta"),
        ("07:00", {"jitter": timedelta(seconds=-1)}, InvalidArgument, "must not be negative"),
        ("07:00", {"catch_up": True}, InvalidArgument, "catch_up of a schedule must be an int"),
        ("07:00", {"colour": "red"}, InvalidArgument, "a schedule has no option colour"),
        ("07:00", {"name": "a b"}, InvalidArgument, "name of a schedule must be"),
        ("07:00", {"payload": {"kid": 1}}, InvalidPayload, "payload does not fit task report"),
    ],
)
def test_what_python_can_see_is_refused_when_it_is_declared(spec, options, error, fragment):
    app = make_app()

    with pytest.raises(error, match=fragment):
        app.schedule(spec, **options)(app.tasks["report"])
    assert app.schedules == {}


def test_a_name_is_declared_once_per_tenant():
    app = make_app()
    app.add_schedule("daily", "report", "07:00", tenant="acme")
    app.add_schedule("daily", "report", "07:00", tenant="globex")

    with pytest.raises(InvalidArgument, match='schedule "daily" is declared twice'):
        app.add_schedule("daily", "report", "08:00", tenant="acme")
    with pytest.raises(UnknownTask, match="reprot"):
        app.add_schedule("other", "reprot", "08:00")


# ---------------------------------------------------------------- the worker


def test_the_worker_declares_and_the_clock_fires(onceward_kit, onceward_database):
    app = make_app()
    app.add_schedule("hourly", "report", "1 hour", missed="all", overlap="allow")
    onceward_kit.clock.pin(NOON)
    assert onceward_kit.drain(app) == 0

    onceward_kit.clock.advance("3h")

    assert onceward_kit.drain(app) == 3
    assert app.ran == ["short"] * 3
    job = onceward_kit.assert_enqueued("report", count=3)
    assert (job.priority, job.max_attempts, job.timeout) == (3, 2, timedelta(minutes=1))
    assert job.headers == {"schedule": "hourly", "slot": "2026-06-15T13:00:00Z"}


def test_jobs_that_wait_for_each_other_are_drained_too(onceward_kit):
    app = make_app()
    app.add_schedule("hourly", "report", "1 hour", missed="all", overlap="queue")
    onceward_kit.clock.pin(NOON)
    onceward_kit.drain(app)
    onceward_kit.clock.advance("3h")

    assert onceward_kit.drain(app) == 3


def test_a_spec_that_cannot_be_read_stops_the_worker(onceward_database):
    app = make_app()
    app.add_schedule("bad", "report", "99 * * * *")

    with pytest.raises(InvalidArgument, match='schedule "bad": cron field "minute"'):
        drain(onceward_database, app)
    with Client(onceward_database) as client:
        assert Schedules(client).all() == []


@pytest.mark.slow
def test_the_command_says_what_is_wrong_with_a_schedule_and_ends(onceward_database, tmp_path):
    (tmp_path / "bad_shop.py").write_text(
        "from onceward import Onceward\n"
        "app = Onceward()\n"
        "@app.schedule('0 25 * * *')\n"
        "def report() -> None: ...\n"
    )
    command = [sys.executable, "-m", "onceward.cli", "--dsn", onceward_database, "worker", "bad_shop:app"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert 'error: schedule "report": cron field "hour" must have values from 0 to 23' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lane_of_a_schedule_is_made_before_it_is_needed(onceward_database):
    app = make_app()
    app.add_schedule("hourly", "report", "1 hour", lane="reports")
    asyncio.run(Worker(app, dsn=onceward_database, lanes=["default"]).drain())

    with Client(onceward_database) as client:
        assert "reports" in {lane.name for lane in client.lanes()}


def test_an_app_with_a_name_speaks_for_its_own_schedules_only(onceward_database):
    first, second = make_app(name="first"), make_app(name="second")
    first.add_schedule("a", "report", "1 hour")
    second.add_schedule("b", "report", "1 hour")
    for app in (first, second, make_app(), make_app(name="first")):
        drain(onceward_database, app)

    with Client(onceward_database) as client:
        assert {row.name: (row.app, row.declared) for row in Schedules(client).all()} == {
            "a": ("first", False),
            "b": ("second", True),
        }


@pytest.mark.slow
def test_a_running_worker_fires_every_second(onceward_database):
    app = make_app()
    app.add_schedule("often", "report", timedelta(seconds=1), overlap="allow")

    async def main():
        async with working(onceward_database, app):
            await until(lambda: len(app.ran) >= 3)

    asyncio.run(main())


# ---------------------------------------------------------------- those in the database


def test_schedules_are_added_paused_run_and_dropped(schedules):
    app = make_app()
    report = app.tasks["report"]

    change = schedules.add(report, "07:00", name="daily", zone="Asia/Tokyo", payload={"kind": "long"})
    assert change.outcome == "created"
    assert (
        schedules.add(report, "07:00", name="daily", zone="Asia/Tokyo", payload={"kind": "long"}).outcome
        == "unchanged"
    )

    (row,) = schedules.all()
    assert (row.name, row.zone, row.payload, row.priority, row.source) == (
        "daily",
        "Asia/Tokyo",
        {"kind": "long"},
        3,
        "person",
    )
    assert schedules.pause("daily", "holiday") is True
    assert schedules.resume("daily") is True
    job = schedules.run_now("daily")
    (tick,) = schedules.ticks(row)
    assert (tick.job_id, tick.outcome) == (job, "fired")
    assert len(schedules.next_ticks("30 seconds", count=3)) == 3
    schedules.drop("daily")
    with pytest.raises(UnknownSchedule, match='schedule "daily" of tenant "default" does not exist'):
        schedules.drop("daily")


def test_a_tenant_of_ones_own(onceward_database):
    app = make_app()
    with Client(onceward_database) as client:
        acme = Schedules(client, tenant="acme")
        acme.add(app.tasks["report"], "07:00")

        assert [row.tenant for row in acme.all()] == ["acme"]
        assert Schedules(client, tenant="globex").all() == []
