"""Monitors: when they run, what is recorded, what happens when the check itself fails, and how they are set."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from onceward.install import upgrade
from tests.support.engine import refused
from tests.support.watch import Watch

DISK = {"key": "disk"}


@pytest.fixture
def watch(db):
    return Watch(db)


def runs(db, monitor):
    return db.run("select * from onceward.monitor_runs where monitor = %s order by started_at, id", monitor)


def replace(db, body, *, returns="table (key text, summary text)", name="probe"):
    db.run(f"drop function app.{name}(jsonb)")
    db.run(
        f"create function app.{name}(p_thresholds jsonb) returns {returns} language plpgsql as $$ {body} $$"
    )


# ---------------------------------------------------------------- when


def test_a_monitor_runs_when_it_is_due_and_not_before(db, watch):
    db.worker("a")
    db.run("update onceward.monitor_private set next_at = onceward.now()")
    assert len(db.call("check_monitors")) == 18
    assert db.call("check_monitors") == []

    db.clock.advance("30 seconds")
    due = {row.monitor for row in db.call("check_monitors")}

    assert due == {
        "ready_age", "stuck", "dead_letters", "delivery_trouble", "workers", "pinned_xmin", "limit_starvation",
        "seal_lag",
    }  # fmt: skip
    assert (
        db.value(
            "select next_at - onceward.now() = interval '30 s' from onceward.monitors where name = 'stuck'"
        )
        is True
    )


def test_after_a_standstill_it_runs_once(db):
    db.call("check_monitors")
    db.clock.advance("3 days")

    db.call("check_monitors")

    assert db.call("check_monitors") == []
    assert len(runs(db, "stuck")) == 2


def test_a_run_is_recorded_with_status_duration_and_result(db, watch):
    watch.probe()
    watch.look({**DISK, "value": 5, "tenant": "acme", "detail": {"job": 1}})

    (run,) = runs(db, "probe")
    assert (run.status, run.findings, run.error) == ("firing", 1, None)
    assert run.took.total_seconds() > 0
    assert run.result == [
        {
            "key": "disk", "tenant": "acme", "severity": "warning", "value": 5, "summary": "disk is wrong",
            "detail": {"job": 1},
        }
    ]  # fmt: skip
    row = db.one("select * from onceward.monitors where name = 'probe'")
    assert (row.last_status, row.last_run_at, row.errors) == ("firing", db.now(), 0)


def test_a_disabled_monitor_does_not_run_and_its_alerts_are_closed(db, watch):
    watch.channel()
    watch.probe()
    watch.look(DISK)

    assert db.answer("disable_monitor", name="probe") is True
    assert db.answer("disable_monitor", name="probe") is False
    assert (watch.alerts(), watch.told()) == ([], [("opened", "ops")])
    db.clock.advance("1 hour")
    assert "probe" not in {row.monitor for row in db.call("check_monitors")}

    assert db.answer("enable_monitor", name="probe") is True
    assert db.answer("enable_monitor", name="probe") is False
    assert "probe" in {row.monitor for row in db.call("check_monitors")}


# ---------------------------------------------------------------- the check itself fails

RUBBISH = {
    "it raises": ("begin raise exception 'no such disk'; end", "no such disk (P0001)"),
    "its key is missing": ("begin return query select null::text, 'x'::text; end", "key of a finding must be"),
    "its summary is empty": ("begin return query select 'k'::text, ''::text; end", "summary of a finding must be"),
    "too many": (
        "begin return query select n::text, 's'::text from generate_series(1, 1001) as n; end",
        "findings must be at most 1000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "error"), list(RUBBISH.values()), ids=list(RUBBISH))
def test_a_check_that_fails_is_a_run_with_its_error_and_the_others_go_on(db, watch, body, error):
    watch.probe()
    replace(db, body)
    db.dead_letter()

    statuses = {row.monitor: row.status for row in db.call("check_monitors")}

    assert (statuses["probe"], statuses["dead_letters"], len(statuses)) == ("error", "firing", 19)
    (run,) = runs(db, "probe")
    assert run.status == "error"
    assert error in run.error
    assert run.took is not None
    row = db.one("select * from onceward.monitors where name = 'probe'")
    assert (row.last_status, row.errors, row.last_error) == ("error", 1, run.error)


@pytest.mark.parametrize(
    ("returns", "body", "error"),
    [
        ("table (key text, summary text, severity text)", "select 'k', 's', 'terrible'", "severity of a finding must be"),
        ("table (key text, summary text, tenant text)", "select 'k', 's', '*'", "tenant of a finding must be"),
        ("table (key text, summary text, value text)", "select 'k', 's', 'many'", "value of a finding must be a number"),
        ("setof integer", "select 1", "key of a finding must be"),
    ],
)  # fmt: skip
def test_a_check_with_odd_columns_is_an_error(db, watch, returns, body, error):
    watch.probe()
    replace(db, f"begin return query {body}; end", returns=returns)

    assert watch.run("probe") == "error"
    assert error in runs(db, "probe")[0].error


def test_a_function_that_is_gone_is_an_error(db, watch):
    watch.probe()
    db.run("drop function app.probe(jsonb)")

    assert watch.run("probe") == "error"
    assert "42883" in runs(db, "probe")[0].error


def test_a_check_that_writes_before_it_fails_leaves_nothing_but_its_error(db, watch):
    """Trap P10: the record of a failed run must not go down with what failed."""
    watch.probe()
    db.run("grant insert on app.said to onceward_owner")
    replace(db, "begin insert into app.said values ('half', '[]'); raise exception 'then it broke'; end")

    watch.run("probe")

    assert db.value("select count(*) from app.said where name = 'half'") == 0
    assert [run.status for run in runs(db, "probe")] == ["error"]


def test_errors_in_a_row_are_an_alert_of_their_own_which_closes_when_the_check_works_again(db, watch):
    watch.channel()
    watch.probe()
    watch.look(DISK)
    replace(db, "begin raise exception 'secret of jane'; end")
    for n in range(1, 5):
        assert watch.run("probe") == "error"
        assert ("check failed" in watch.severities("probe")) == (n >= 3)
    # What was found before stays open: nobody knows.
    assert set(watch.severities("probe")) == {"disk", "check failed"}
    assert watch.told() == [("opened", "ops"), ("opened", "ops")]
    assert "jane" not in str(watch.texts())

    replace(db, "begin return; end")
    assert watch.run("probe") == "ok"
    assert watch.alerts() == []
    assert db.value("select errors from onceward.monitors where name = 'probe'") == 0


def test_a_run_whose_process_died_is_an_error_and_the_monitor_goes_on(db, watch):
    watch.probe()
    (begun,) = [run for run in db.call("begin_checks", limit=100) if run.monitor == "probe"]
    db.clock.advance("61 seconds")

    db.call("check_monitors")

    first, second = runs(db, "probe")
    assert (first.id, first.status) == (begun.run_id, "error")
    assert "did not end within" in first.error
    assert second.status == "ok"
    with db.refused("OW041", "is over", "Discard"):
        db.call("run_check", run_id=begun.run_id)


def test_a_monitor_runs_once_at_a_time(db, watch):
    watch.probe()
    db.run("update onceward.monitor_private set every = '1 second' where name = 'probe'")
    db.call("begin_checks", limit=100)
    db.clock.advance("10 seconds")

    assert "probe" not in {run.monitor for run in db.call("begin_checks", limit=100)}
    # By hand, neither: the answer is the run that is under way.
    (row,) = db.call("run_monitor", name="probe")
    assert row.status == "running"


# ---------------------------------------------------------------- outside the database


def declare(db, *specs, app="shop"):
    return {
        row.name: row.outcome for row in db.call("declare_monitors", app=app, monitors=Jsonb(list(specs)))
    }


def test_a_python_monitor_is_begun_by_those_who_know_it_and_finished_with_findings(db, watch):
    assert declare(db, {"name": "stock", "severity": "critical"}) == {"stock": "created"}
    assert "stock" not in {run.monitor for run in db.call("begin_checks", limit=100)}

    (run,) = [run for run in db.call("begin_checks", python=["stock"], limit=100) if run.monitor == "stock"]
    assert (run.kind, run.thresholds) == ("python", {})
    found = [{"key": "sku-1", "summary": "sold out\x07"}]
    assert db.answer("finish_check", run_id=run.run_id, findings=Jsonb(found), took="1 s") == "firing"

    (alert,) = watch.alerts("stock")
    assert (alert.severity, alert.summary) == ("critical", "sold out ")
    with db.refused("OW041"):
        db.call("finish_check", run_id=run.run_id, findings=Jsonb([]))


def test_a_python_monitor_that_fails_is_recorded(db, watch):
    declare(db, {"name": "stock"})
    (run,) = [run for run in db.call("begin_checks", python=["stock"], limit=100) if run.monitor == "stock"]

    assert db.answer("fail_check", run_id=run.run_id, error="ValueError: no stock") == "error"

    assert runs(db, "stock")[0].error == "ValueError: no stock"


@pytest.mark.parametrize("rubbish", [{"key": "x"}, "text", None, [1], [{"summary": "no key"}]])
def test_findings_that_cannot_be_read_are_an_error_of_the_check(db, rubbish):
    declare(db, {"name": "stock"})
    (run,) = [run for run in db.call("begin_checks", python=["stock"], limit=100) if run.monitor == "stock"]

    assert db.answer("finish_check", run_id=run.run_id, findings=Jsonb(rubbish)) == "error"
    assert runs(db, "stock")[0].status == "error"


def test_a_python_monitor_run_by_hand_is_made_due(db):
    declare(db, {"name": "stock", "every": "1 hour"})
    (run,) = [run for run in db.call("begin_checks", python=["stock"], limit=100) if run.monitor == "stock"]
    db.call("finish_check", run_id=run.run_id, findings=Jsonb([]))

    assert Watch(db).run("stock") == "asked"
    assert "stock" in {run.monitor for run in db.call("begin_checks", python=["stock"], limit=100)}


# ---------------------------------------------------------------- settings


def test_thresholds_are_set_switched_off_and_given_their_default_back(db, watch):
    def value():
        return db.value(
            "select value from onceward.thresholds where monitor = 'ready_age' and name = 'warning_age'"
        )

    watch.set("ready_age", {"warning_age": 10})
    assert value() == 10
    watch.set("ready_age", {"warning_age": None})
    assert value() is None
    watch.set("ready_age", {"warning_age": "default"})
    assert value() == 300


def test_what_a_person_has_set_survives_an_upgrade(db, watch):
    watch.set("ready_age", {"warning_age": 10}, every="5 minutes")
    db.call("disable_monitor", name="stuck")
    db.run("update onceward.code_private set digest = 'of an older version'")

    upgrade(db.dsn)

    row = db.one("select * from onceward.monitors where name = 'ready_age'")
    assert (row.every.total_seconds(), row.thresholds["warning_age"], row.set_by) == (
        300,
        10,
        db.value("select session_user"),
    )
    assert db.value("select enabled from onceward.monitors where name = 'stuck'") is False


def test_code_changes_what_nobody_has_set(db, watch):
    stock = {"name": "stock", "every": "1 minute", "thresholds": [{"name": "least", "value": 5}]}
    assert declare(db, stock) == {"stock": "created"}
    assert declare(db, stock) == {"stock": "unchanged"}
    assert declare(db, {**stock, "every": "2 minutes", "thresholds": [{"name": "least", "value": 6}]}) == {
        "stock": "changed"
    }
    row = db.one("select * from onceward.monitors where name = 'stock'")
    assert (row.every.total_seconds(), row.thresholds) == (120, {"least": 6})

    watch.set("stock", {"least": 1}, every="1 hour")
    declare(db, stock)
    row = db.one("select * from onceward.monitors where name = 'stock'")
    assert (row.every.total_seconds(), row.thresholds) == (3600, {"least": 1})


def test_a_name_that_is_taken_is_refused(db, watch):
    with db.refused("OW008", 'monitor "stuck" exists already', "built in"):
        declare(db, {"name": "stuck"})


def test_a_built_in_monitor_cannot_be_dropped_and_another_can(db, watch):
    watch.probe()
    watch.look(DISK)

    with db.refused("OW008", "must not be a built-in one", "Disable it"):
        db.call("drop_monitor", name="stuck")
    db.call("drop_monitor", name="probe")

    assert watch.alerts() == []
    with db.refused("OW038", 'monitor "probe" does not exist', "stuck"):
        db.call("drop_monitor", name="probe")


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"thresholds": {"warning": 1}}, "threshold must be one of critical_age, warning_age"),
        ({"thresholds": {"warning_age": -1}}, "must be a number that is not negative"),
        ({"thresholds": {"warning_age": "soon"}}, "must be a number that is not negative"),
        ({"every": "0.1 s"}, "every must be between 1 second and 30 days"),
        ({"severity": "bad"}, "severity must be info, warning or critical"),
        ({"hold_for": "-1 s"}, "hold_for must be between"),
        ({"clear_after": "31 days"}, "clear_after must be between"),
        ({"remind_every": "1 s"}, "remind_every must be between"),
        ({"timeout": "1 hour"}, "timeout must be between"),
        ({"errors_allowed": 0}, "errors_allowed must be between"),
    ],
)
def test_bad_settings_are_refused(db, options, fragment):
    with db.refused("OW008", fragment):
        db.call("set_monitor", name="ready_age", **options)


@pytest.mark.parametrize(
    "function", ["set_monitor", "enable_monitor", "disable_monitor", "drop_monitor", "run_monitor"]
)
def test_an_unknown_monitor_is_named_with_those_that_are_known(db, function):
    with db.refused("OW038", 'monitor "rady_age" does not exist', "ready_age"):
        db.call(function, name="rady_age")


def test_only_an_owner_makes_a_monitor_of_a_function(db, watch):
    """It runs with the owner's rights."""
    watch.probe()
    for role in ("operator", "worker", "producer"):
        with refused("42501"):
            db.on(db.connect(role=f"onceward_{role}", tenant="*")).run(
                "select onceward.add_monitor('x', 'app.probe(jsonb)')"
            )
    with db.refused("OW008", "must be a function (thresholds jsonb)"):
        db.run("select onceward.add_monitor('x', 'pg_catalog.lower(text)')")


# ---------------------------------------------------------------- size


@pytest.mark.slow
def test_checks_do_not_read_the_archive(db, watch):
    """However many jobs have ended: the plans go by index, and the newest ten thousand are enough."""
    db.run(
        "insert into onceward.archive_private (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes,"
        " created_at, run_at, finished_at, payload)"
        " select onceward.new_id(), 'default', 'default', 'ocr', 'done', 0, 1, 1, 8, 0, now(), now(), now(), '{}'"
        " from generate_series(1, 50000)"
    )
    db.run("analyze onceward.archive_private")
    db.run("select pg_stat_force_next_flush()")
    count = (
        "select sum(pg_stat_get_tuples_returned(c.oid) + pg_stat_get_tuples_fetched(c.oid)) from pg_class as c"
        " where c.relname ~ '^archive_' and c.relkind = 'r'"
    )
    before = db.value(count)

    db.call("check_monitors")

    db.run("select pg_stat_force_next_flush()")
    # Two monitors look at ten thousand each.
    assert db.value(count) - before < 60_000
    assert db.value("select count(*) from onceward.monitor_runs where status <> 'ok'") == 0
