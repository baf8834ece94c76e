"""The commands of the README, on a real database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onceward_apps.alerts
from tests.apps.alerts.place import Place

pytestmark = pytest.mark.slow


@pytest.fixture
def onceward_database(onceward_server):
    """Without the schema."""
    with onceward_server.cloned() as database:
        yield database.dsn


def run(kit, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "onceward_apps.alerts", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ONCEWARD_DSN": kit.dsn},
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_install_sample_tenant_and_functions(onceward_kit):
    onceward_kit.clock.unpin()
    assert "schema alerts is installed" in run(onceward_kit, "install")
    assert "2 sample companies are new" in run(onceward_kit, "sample")
    assert "0 sample companies are new" in run(onceward_kit, "sample")
    assert 'tenant "acme" is set' in run(
        onceward_kit, "tenant", "acme", "Acme", "--zone", "Europe/Lisbon", "--notify", "a@example.com"
    )
    assert "detect-alerts" in run(onceward_kit, "functions")
    zones = (
        onceward_kit.connect()
        .execute(
            "select distinct tenant, zone from onceward.schedules where name = 'detect-alerts' order by 1"
        )
        .fetchall()
    )
    assert zones == [
        ("acme", "Europe/Lisbon"),
        ("kiwi", "Pacific/Auckland"),
        ("northwind", "America/Los_Angeles"),
    ]


@pytest.mark.crash
def test_the_drill(onceward_kit):
    onceward_kit.clock.unpin()
    said = run(onceward_kit, "drill")
    assert "1 × started" in said
    assert "completed after 1 retry; runs: 1, alerts: 1" in said


def test_the_drill_says_where_it_can_be_tried_when_a_worker_is_there(onceward_kit, tmp_path):
    with Place(onceward_kit, tmp_path) as place:
        place.conn.execute("select onceward.register_worker('busy', array['alerts'])")
        said = run(onceward_kit, "drill", status=1)
    assert 'worker "busy" serves the lane alerts' in said
    assert "ONCEWARD_HOME=$(mktemp -d) python -m onceward_apps.alerts drill" in said


def test_the_readme_makes_tokens_with_options_that_exist():
    readme = (Path(onceward_apps.alerts.__file__).parent / "README.md").read_text()
    known = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "token", "create", "--help"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
    ).stdout
    for line in re.findall("onceward token create[^`\n]+", readme):
        assert re.findall(r"--only-tenant", line), line
        assert all(option in known for option in re.findall(r"--[a-z-]+", line)), line
