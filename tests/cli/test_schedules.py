"""`onceward schedule` and `onceward run`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

NOON = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def db(db):
    db.clock.pin(NOON)
    return db


def add(cli, *more, name="report"):
    return cli.ok("schedule", "add", name, "report", "07:00", *more)


def test_add_says_when_it_fires_next_and_what_was_done(cli, db):
    assert (
        'schedule "report" is created; next at 2026-06-15 14:00:00Z'
        in add(cli, "--zone", "America/Los_Angeles").err
    )
    assert 'No worker has announced task "report" yet' in add(cli, "--zone", "America/Los_Angeles").err
    assert "is changed" in add(cli, "--missed", "all").err


def test_add_passes_every_option_on(cli, db):
    db.call("add_lane", name="mail")

    change = cli.json(
        "schedule", "add", "report", "report", "30 seconds", '{"n": 1}', "--missed", "all", "--catch-up", "5", "--grace", "5m",
        "--overlap", "queue", "--jitter", "10s", "--lane", "mail", "--priority", "7", "--max-attempts", "3", "--timeout", "1h",
        "--expires-in", "2h", "--tenant", "acme",
    )  # fmt: skip

    assert change == {
        "outcome": "created", "next_slot": "2026-06-15T12:00:30Z", "next_at": "2026-06-15T12:00:30Z",
    }  # fmt: skip
    row = db.one("select * from onceward.schedules")
    assert (row.missed, row.catch_up, row.grace, row.overlap) == ("all", 5, timedelta(minutes=5), "queue")
    assert (row.jitter, row.lane, row.priority, row.max_attempts) == (timedelta(seconds=10), "mail", 7, 3)
    assert (row.timeout, row.expires_in, row.tenant) == (timedelta(hours=1), timedelta(hours=2), "acme")
    assert row.payload == {"n": 1}


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["99 * * * *"], 1, 'cron field "minute"'),
        (["07:00", "--zone", "Mars/Olympus"], 1, "zone must be a time zone"),
        (["07:00", "--missed", "some"], 2, "--missed must be one of none, latest, all"),
        (["07:00", "--overlap", "alow"], 2, 'Did you mean "allow"?'),
        (["07:00", "--grace", "soon"], 2, "--grace must be a duration"),
        (["07:00", "--lane", "defualt"], 1, 'Did you mean "default"?'),
        (["07:00", "{"], 2, "payload is not JSON"),
        (["07:00", "--catch-up", "0"], 2, "--catch-up must be at least 1"),
    ],
)
def test_bad_input_is_explained_and_nothing_is_stored(cli, db, arguments, status, fragment):
    assert fragment in cli.refused(status, "schedule", "add", "report", "report", *arguments)
    assert db.run("select * from onceward.schedules") == []


def test_list_and_show(cli, db):
    add(cli, "--zone", "America/Los_Angeles")
    db.clock.advance("3 h")
    db.call("tick")

    listed = cli.ok("schedule", "list").out
    assert listed.splitlines()[0].split()[:3] == ["SCHEDULE", "STATE", "SPEC"]
    assert "report" in listed
    assert "in 23h" in listed
    (row,) = cli.json("schedule", "list")
    assert (row["name"], row["next_at"], row["last_outcome"]) == ("report", "2026-06-16T14:00:00Z", "fired")

    shown = cli.ok("schedule", "show", "report").out
    assert "Tue 2026-06-16 07:00:00 PDT" in shown
    assert shown.count("07:00:00 PDT") == 10
    assert "2026-06-15T07:00:00  fired" in shown
    document = cli.json("schedule", "show", "report")
    assert len(document["next_ticks"]) == 10
    assert document["next_ticks"][0] == {"slot": "2026-06-16T07:00:00", "fire_at": "2026-06-16T14:00:00Z"}
    assert [tick["outcome"] for tick in document["ticks"]] == ["fired"]


def test_an_overdue_moment_is_shown_first(cli, db):
    add(cli)
    db.clock.advance("2 days")

    first, second, *_ = cli.json("schedule", "show", "report")["next_ticks"]

    assert (first["slot"], second["slot"]) == ("2026-06-16T07:00:00", "2026-06-17T07:00:00")


def test_without_schedules_the_list_says_so(cli):
    assert "no schedules" in cli.ok("schedule", "list").err
    assert cli.json("schedule", "list") == []


def test_pause_resume_run_and_drop(cli, db):
    add(cli)

    assert 'schedule "report" is paused' in cli.ok("schedule", "pause", "report", "--reason", "holiday").err
    assert "was paused already" in cli.ok("schedule", "pause", "report").err
    assert "holiday" in cli.ok("schedule", "show", "report").out
    assert cli.json("schedule", "show", "report")["next_ticks"] == []
    assert "is active" in cli.ok("schedule", "resume", "report").err
    assert "was not paused" in cli.ok("schedule", "resume", "report").err
    assert db.state(UUID(cli.ok("schedule", "run", "report").out.strip())) == "ready"
    assert db.state(UUID(cli.json("schedule", "run", "report")["id"])) == "ready"
    assert "is gone" in cli.ok("schedule", "drop", "report").err
    assert db.run("select * from onceward.schedules") == []


def test_dropping_what_code_declares_says_that_it_comes_back(cli, db):
    db.run("""select onceward.declare_schedules('shop', '[{"name": "r", "task": "r", "spec": "07:00"}]')""")

    assert "comes back with the next start of a worker" in cli.ok("schedule", "drop", "r").err


def test_an_unknown_schedule_is_answered_with_the_nearest(cli, db):
    add(cli)

    error = cli.refused(1, "schedule", "pause", "repotr")

    assert 'schedule "repotr" does not exist' in error
    assert 'Did you mean "report"?' in error


def test_a_name_of_several_tenants_needs_the_tenant(cli, db):
    add(cli, "--tenant", "red")
    cli.ok("schedule", "pause", "report")
    add(cli, "--tenant", "blue")

    assert "exists for 2 tenants" in cli.refused(2, "schedule", "pause", "report")
    assert "is paused" in cli.ok("schedule", "pause", "report", "--tenant", "blue").err


def test_preview_stores_nothing(cli, db):
    out = cli.ok(
        "schedule",
        "preview",
        "30 2 * * *",
        "--zone",
        "America/Los_Angeles",
        "--after",
        "2026-03-08",
        "--count",
        "2",
    ).out

    assert "Sun 2026-03-08 03:00:00 PDT  2026-03-08 10:00:00Z  2026-03-08T02:30:00" in out
    assert "Mon 2026-03-09 02:30:00 PDT" in out
    assert "EDT" in cli.ok("schedule", "preview", "07:00 America/New_York").out
    # PostgreSQL takes names of zones in any case.
    assert "EDT" in cli.ok("schedule", "preview", "07:00", "--zone", "america/new_york").out
    assert len(cli.json("schedule", "preview", "30 seconds", "--count", "3")) == 3
    assert db.run("select * from onceward.schedules") == []
    assert "cron field" in cli.refused(1, "schedule", "preview", "0 0 * * x")


def test_export_for_pg_cron_is_one_statement_that_ticks(cli):
    assert cli.ok("schedule", "export", "--pg-cron").out == (
        "select cron.schedule('onceward-tick', '10 seconds', $$select onceward.tick()$$);\n"
    )
    assert "'* * * * *'" in cli.ok("schedule", "export", "--pg-cron", "--every", "1m").out
    assert "'*/5 * * * *'" in cli.ok("schedule", "export", "--pg-cron", "--every", "5m").out
    assert (
        cli.ok("schedule", "export", "--pg-cron", "--remove").out
        == "select cron.unschedule('onceward-tick');\n"
    )
    assert "1s to 59s" in cli.refused(2, "schedule", "export", "--pg-cron", "--every", "90s")
    assert "Add --pg-cron" in cli.refused(2, "schedule", "export")


# ---------------------------------------------------------------- runs


def begin(db, key, **options):
    (row,) = db.call("begin_run", key=key, holder="host-1", **options)
    return row


def test_runs_are_listed_and_shown(cli, db):
    done, held = begin(db, "build:acme:2026-06-15"), begin(db, "detect:acme:2026-06-15", lease="1 min")
    db.call("finish_run", key="build:acme:2026-06-15", epoch=done.epoch, result={"n": 3})

    assert {row["key"]: row["state"] for row in cli.json("run", "list")} == {
        "build:acme:2026-06-15": "completed",
        "detect:acme:2026-06-15": "running",
    }
    assert len(cli.json("run", "list", "--state", "running")) == 1
    assert len(cli.json("run", "list", "--prefix", "build:")) == 1
    assert held.acquired
    db.clock.advance("1 min")
    assert "abandoned" in cli.ok("run", "list").out
    shown = cli.ok("run", "show", "build:acme:2026-06-15").out
    assert "host-1" in shown
    assert '{"n": 3}' in shown
    assert cli.json("run", "show", "build:acme:2026-06-15")["result"] == {"n": 3}


def test_a_run_that_does_not_exist(cli):
    assert 'run "x" does not exist' in cli.refused(1, "run", "show", "x")
    assert "no runs" in cli.ok("run", "list").err
    assert "--state must be one of" in cli.refused(2, "run", "list", "--state", "done")


def test_the_payload_is_checked_by_the_application_that_is_named(cli, db, shop):
    error = cli.refused(1, "schedule", "add", "nightly", "mail.send", "1 day", '{"to": 7}', "--app", shop)
    assert "to" in error
    assert "string" in error
    assert (
        "did you mean"
        in cli.refused(1, "schedule", "add", "nightly", "mail.sent", "1 day", "--app", shop).lower()
    )
    assert db.run("select from onceward.schedules") == []

    cli.ok("schedule", "add", "nightly", "mail.send", "1 day", '{"to": "a@example.com"}', "--app", shop)
    assert db.value("select payload from onceward.schedules") == {"to": "a@example.com"}
