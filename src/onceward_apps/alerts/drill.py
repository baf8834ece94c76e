"""The drill: call a function from twenty places at once, kill its worker in the middle, and count what came of it.

Real processes on a real database.  The run is held in the middle by a lock on the table that it writes into.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from onceward.errors import OncewardError

Connection = psycopg.Connection[Any]
TENANT, FUNCTION, LEASE_SECONDS, PATIENCE_SECONDS = "drill", "detect-alerts", 5, 60
WINDOW = timedelta(minutes=5)
CALLERS = 20


def drill(dsn: str, say: Callable[[str], None]) -> bool:
    """Whether there was one run and one alert.  Raises OncewardError when it cannot be tried here."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        _check_alone(connection)
        rule = _prepare(connection)
        at = _free_window(connection)
        say(f"{CALLERS} callers at once, for the window of {at:%H:%M} UTC:")
        with ThreadPoolExecutor(CALLERS) as pool:
            answers = list(pool.map(lambda _: _call(dsn, at), range(CALLERS)))
        counted = Counter(outcome for outcome, _ in answers)
        say("  " + ", ".join(f"{count} × {outcome}" for outcome, count in counted.items()))
        job = answers[0][1]
        with psycopg.connect(dsn) as blocker:
            blocker.execute("lock table alerts.alert_instances in share row exclusive mode")
            first = _worker(dsn)
            _until(lambda: _is_held(connection), "the run did not get to its middle")
            first.kill()
            first.wait()
        say("a worker was killed in the middle of the run (kill -9)")
        say(f"  the next call hears: {_call(dsn, at)[0]}")
        say(f"its lease of {LEASE_SECONDS} seconds ends, and the next call sets it going again:")
        _until(lambda: _call(dsn, at)[0] == "resumed", "the lease did not end")
        second = _worker(dsn)
        try:
            _until(lambda: _status(connection, job)[0] == "completed", "the run was not finished")
        finally:
            second.terminate()
            second.wait()
        status, retries = _status(connection, job)
        alerts = _one(
            connection, "select count(*) from alerts.alert_instances where alert_config_id = %s", rule
        )
        runs = _one(
            connection,
            "select count(*) from alerts.runs where job_id = any (%s)",
            [one for _, one in answers],
        )
        say(f"  {status} after {retries} retry; runs: {runs}, alerts: {alerts}")
        return (counted["started"], runs, alerts) == (1, 1, 1)


def _check_alone(connection: Connection) -> None:
    busy = connection.execute(
        "select name from onceward.workers where state = 'live' and 'alerts' = any (lanes) limit 1"
    ).fetchone()
    if busy is not None:
        raise OncewardError(
            f'worker "{busy[0]}" serves the lane alerts, and would be faster than the one that is to be killed',
            hint="Use a database of its own: ONCEWARD_HOME=$(mktemp -d) python -m onceward_apps.alerts drill",
        )


def _prepare(connection: Connection) -> UUID:
    """A tenant with one value, and a rule of its own for this drill."""
    with connection.transaction():
        connection.execute("set local role onceward_owner")
        tenant = _one(connection, "select alerts.add_tenant(%s, 'Drill', 'UTC')", TENANT)
        connection.execute(
            "insert into alerts.metric_definitions (tenant_id, metric_code, title) values (%s, 'pulse', 'Pulse') "
            "on conflict do nothing",
            [tenant],
        )
        connection.execute(
            "insert into alerts.metric_values (tenant_id, metric_code, observed_at, value) "
            "select %s, 'pulse', onceward.now() - n * interval '1 hour', 1 from generate_series(0, 100) as n "
            "on conflict do nothing",
            [tenant],
        )
        connection.execute("update alerts.alert_configs set enabled = false where tenant_id = %s", [tenant])
        return UUID(
            str(
                _one(
                    connection,
                    "insert into alerts.alert_configs (tenant_id, metric_code, title, kind, comparison, threshold) "
                    "values (%s, 'pulse', 'Pulse is low', 'threshold', 'below', 10) returning id",
                    tenant,
                )
            )
        )


def _free_window(connection: Connection) -> datetime:
    """The latest window in which no drill was."""
    at: datetime = _one(connection, "select onceward.now()")
    taken = {start for (start,) in connection.execute("select starts_at from alerts.runs").fetchall()}
    at -= timedelta(minutes=at.minute % 5, seconds=at.second, microseconds=at.microsecond)
    while at in taken:
        at -= WINDOW
    return at


def _call(dsn: str, at: datetime) -> tuple[str, UUID]:
    with psycopg.connect(dsn) as connection:
        connection.execute("select set_config('onceward.tenant', %s, true)", [TENANT])
        found = connection.execute(
            "select outcome, job_id from alerts.begin_function(%s, '5m', null, %s, '{}', 'drill')",
            [FUNCTION, at],
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def _worker(dsn: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "onceward.cli", "worker", "onceward_apps.alerts.app:app",
        "--lanes", "alerts", "--lease", f"{LEASE_SECONDS}s",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "ONCEWARD_DSN": dsn,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _is_held(connection: Connection) -> bool:
    return bool(
        _one(
            connection,
            "select exists (select from pg_locks where not granted and relation = 'alerts.alert_instances'::regclass)",
        )
    )


def _status(connection: Connection, job: UUID) -> tuple[str, int]:
    found = connection.execute(
        "select status, retry_count from alerts.job_runs where id = %s", [job]
    ).fetchone()
    assert found is not None
    return found[0], found[1]


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > give_up:
            raise OncewardError(otherwise)
        time.sleep(0.1)


def _one(connection: Connection, statement: Any, *params: object) -> Any:
    row = connection.execute(statement, params or None).fetchone()
    assert row is not None
    return row[0]
