"""Monitors in code: declared beside the tasks, run by workers; one that hangs or raises stops nothing."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from onceward import Client, Onceward
from onceward.errors import InvalidArgument
from onceward.monitors import Finding, findings_text
from tests.sdk.test_worker import until, working

SOON = timedelta(seconds=1)


@pytest.fixture
def rows(onceward_database):
    with psycopg.connect(onceward_database, autocommit=True, row_factory=namedtuple_row) as conn:
        yield lambda sql, *params: conn.execute(sql, params).fetchall()


def watched(dsn, app, condition):
    """Run a worker until the condition holds."""

    async def main():
        async with working(dsn, app):
            return await until(condition)

    return asyncio.run(main())


# ---------------------------------------------------------------- declaring


def test_parameters_are_thresholds():
    app = Onceward()

    @app.monitor(
        "stock", every="5 minutes", severity="critical", hold_for=timedelta(minutes=1), remind_every=None
    )
    async def stock(least: int = 5, age: timedelta = timedelta(hours=2), most: float | None = None) -> None:
        """Articles that are sold out.

        More is not shown.
        """

    assert app.monitors["stock"].to_json() == {
        "name": "stock", "description": "Articles that are sold out.", "every": "300.000000 seconds",
        "severity": "critical", "hold_for": "60.000000 seconds", "remind_every": None,
        "thresholds": [
            {"name": "least", "unit": "count", "value": 5, "description": "least"},
            {"name": "age", "unit": "seconds", "value": 7200.0, "description": "age"},
            {"name": "most", "unit": "count", "value": None, "description": "most"},
        ],
    }  # fmt: skip
    assert app.monitors["stock"].arguments({"least": 2, "age": 60}) == {
        "least": 2,
        "age": timedelta(minutes=1),
        "most": None,
    }


@pytest.mark.parametrize(
    ("name", "options", "fragment"),
    [
        ("a b", {}, "name of a monitor must be"),
        ("a", {"every": "often"}, "every of a monitor must be"),
        ("a", {"every": 5}, "every of a monitor must be"),
        ("a", {"hold_for": 5}, 'hold_for of monitor "a" must be a timedelta'),
        ("a", {"timeout": None}, 'timeout of monitor "a" must be a timedelta'),
        ("a", {"severity": "bad"}, "severity of a monitor must be one of"),
        ("a", {"colour": "red"}, "a monitor has no option colour"),
    ],
)
def test_bad_declarations_are_refused_at_once(name, options, fragment):
    app = Onceward()

    with pytest.raises(InvalidArgument, match=fragment):
        app.monitor(name, **options)(lambda: None)
    assert app.monitors == {}


def test_a_parameter_needs_a_number_as_its_default():
    app = Onceward()
    for check in (lambda least: None, lambda name="x": None, lambda *rest: None, lambda flag=True: None):
        with pytest.raises(InvalidArgument, match="cannot have the parameter"):
            app.monitor("a")(check)


def test_a_name_is_declared_once():
    app = Onceward()
    app.monitor("a")(lambda: None)

    with pytest.raises(InvalidArgument, match='monitor "a" is declared twice'):
        app.monitor("a")(lambda: None)


@pytest.mark.parametrize("rubbish", ["text", 5, {"key": "x"}, [Finding("a", "b"), "c"], True])
def test_what_is_not_findings_is_refused(rubbish):
    with pytest.raises(InvalidArgument, match="a check must return None, a Finding or several"):
        findings_text(rubbish)


# ---------------------------------------------------------------- running


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_worker_runs_it_and_its_findings_become_an_alert(onceward_database, rows, kind):
    app = Onceward()

    def found(least):
        return [Finding("sku-1", f"only {least - 1} left", value=least - 1, tenant="acme", detail={"sku": 1})]

    if kind == "async":

        @app.monitor("stock", every=SOON)
        async def stock(least: int = 5):
            return found(least)
    else:

        @app.monitor("stock", every=SOON)
        def stock_in_a_thread(least: int = 5):
            assert threading.current_thread().name == "monitor stock"
            return found(least)

    watched(
        onceward_database,
        app,
        lambda: rows("select from onceward.alerts where monitor = 'stock' and seen > 1"),
    )

    (alert,) = rows("select * from onceward.alerts where monitor = 'stock'")
    assert (alert.key, alert.tenant, alert.severity, alert.value) == ("sku-1", "acme", "warning", 4)
    assert (alert.summary, alert.detail) == ("only 4 left", {"sku": 1})


@pytest.mark.slow
def test_one_that_raises_returns_rubbish_or_hangs_is_recorded_and_the_others_go_on(onceward_database, rows):
    app = Onceward()
    ends = threading.Event()

    @app.monitor("raises", every=SOON)
    async def raises():
        raise ValueError("no stock")

    @app.monitor("rubbish", every=SOON)
    async def rubbish():
        return "all well"

    @app.monitor("hangs", every=SOON, timeout=timedelta(seconds=1))
    async def hangs():
        await asyncio.Event().wait()

    @app.monitor("blocks", every=SOON, timeout=timedelta(seconds=1))
    def blocks():
        ends.wait()

    @app.monitor("works", every=SOON)
    async def works():
        return None

    @app.task
    async def echo(text: str) -> str:
        return text

    def seen():
        found = dict(
            rows("select monitor, max(error) from onceward.monitor_runs where status = 'error' group by 1")
        )
        works = rows("select from onceward.monitor_runs where monitor = 'works' and status = 'ok'")
        return found if {"raises", "rubbish", "hangs", "blocks"} <= set(found) and len(works) > 2 else None

    async def main():
        async with working(onceward_database, app):
            found = await until(seen)
            # And the work goes on.
            with Client(onceward_database, app=app) as client:
                job = client.enqueue(echo, {"text": "still here"})
                assert await asyncio.to_thread(client.wait, job) == "still here"
            return found

    try:
        found = asyncio.run(main())
    finally:
        ends.set()

    assert found["raises"] == "ValueError: no stock"
    assert found["rubbish"].startswith("InvalidArgument: a check must return")
    assert found["hangs"] == found["blocks"] == "it did not end within 0:00:01"
    # One that is still in its thread is not begun a second time.
    assert len(rows("select from onceward.monitor_runs where monitor = 'blocks'")) == 1


@pytest.mark.slow
def test_an_sql_check_that_hangs_is_ended_by_the_server(onceward_database, rows):
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        conn.execute("create schema app")
        conn.execute("grant usage on schema app to onceward_owner")
        conn.execute(
            "create function app.slow(p jsonb) returns table (key text, summary text) language sql as"
            " $$ select 'k', 's' from pg_sleep(3600) $$"
        )
        conn.execute("select onceward.add_monitor('slow', 'app.slow(jsonb)', p_timeout => '1 second')")

    watched(
        onceward_database,
        Onceward(),
        lambda: rows("select from onceward.monitor_runs where monitor = 'slow' and status = 'error'"),
    )

    (run,) = rows("select * from onceward.monitor_runs where monitor = 'slow'")
    assert run.error == "it did not end within 0:00:01"
    built_in = rows("select distinct monitor from onceward.monitor_runs where status = 'ok'")
    assert len(built_in) == 18


@pytest.mark.slow
def test_a_worker_retains_by_the_hour(onceward_database, onceward_kit, rows, monkeypatch):
    monkeypatch.setattr("onceward.worker.maintenance.RETENTION_EVERY", 0.1)
    with Client(onceward_database) as client:
        client.cancel(client.enqueue("gone", {}))
    onceward_kit.clock.advance("200 days")

    watched(
        onceward_database,
        Onceward(),
        lambda: rows("select from onceward.removals where kind = 'archive' and row_count = 1"),
    )

    assert rows("select from onceward.jobs") == []


def test_draining_runs_no_checks(onceward_kit, rows):
    app = Onceward()
    app.monitor("a")(lambda: None)

    onceward_kit.drain(app)

    assert rows("select from onceward.monitor_runs") == []
    assert [row.name for row in rows("select name from onceward.monitors where source = 'code'")] == ["a"]
