"""From nothing to a code in the outbox, with the commands of the README."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def onceward_database(onceward_server):
    """Without the schema."""
    with onceward_server.cloned() as database:
        yield database.dsn


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )
    return done.stdout


def test_keys_schema_sample_and_a_worker(onceward_kit, tmp_path):
    keys = dict(
        line.removeprefix("export ").replace("'", "").split("=", 1)
        for line in run("onceward_apps.meals", "keys").splitlines()
    )
    environ = {
        **keys,
        "STRIPE_WEBHOOK_SECRET": "of-stripe-itself-1",
        "ONCEWARD_DSN": onceward_kit.dsn,
        "ONCEWARD_EMAIL": f"outbox:{tmp_path}",
    }

    first = run("onceward_apps.meals", "sample", **environ)
    second = run("onceward_apps.meals", "sample", **environ)
    program = (
        "import asyncio; from onceward.worker import Worker; from onceward_apps.meals.app import app, meals; "
    )
    enqueue = "app.client(tenant='meals').enqueue('meals.issue_qr', {}); "
    subprocess.run(
        [sys.executable, "-c", program + enqueue + "asyncio.run(Worker(app).drain()); meals.close()"],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environ},
    )

    assert first.splitlines() == ["schema meals is installed", "40 sample customers are new"]
    assert second.splitlines() == ["schema meals is up to date", "0 sample customers are new"]
    # The others of the sample are sent already, wait for their retry, or were given up.
    assert len(list(tmp_path.glob("*.eml"))) == 7
    (link,) = run("onceward_apps.meals", "kiosks", **environ).splitlines()
    assert link.split() == [
        "counter-1",
        f"https://frontiermeals.com/kiosk#{keys['MEALS_KIOSKS'].partition('=')[2]}",
    ]
