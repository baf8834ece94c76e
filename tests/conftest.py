from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from hypothesis import HealthCheck, settings

from tests.support.engine import Engine

# The plugin registers itself through its entry point; an installation made before that was declared has none.
if not entry_points(group="pytest11", name="onceward"):
    pytest_plugins = ["onceward.testing.plugin"]

# The database decides how long an example takes, and a shared machine decides how long the database takes.
settings.register_profile("onceward", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile("onceward")


@pytest.fixture
def db(onceward_server):
    """The contract in SQL on a fresh database: a superuser's connection, and time that stands still."""
    with onceward_server.cloned() as database, Engine(database) as engine:
        # On the connection that is there; the clock opens one of its own when a test moves it.
        engine.run("update onceward_testing.clock set pinned = statement_timestamp()")
        yield engine
