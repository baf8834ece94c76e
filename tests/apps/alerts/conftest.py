from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onceward_apps.alerts import store
from tests.apps.alerts.place import Place
from tests.web.conftest import chromium

__all__ = ["chromium"]

# Friday evening in California, Saturday noon in New Zealand.
EVENING = datetime(2026, 2, 7, 1, 32, tzinfo=UTC)


@pytest.fixture(scope="session")
def alerts_template(onceward_server):
    """The schema, installed once."""
    with onceward_server.cloned() as template:
        store.install(template.dsn)
        yield template


@pytest.fixture
def onceward_database(onceward_server, alerts_template):
    with onceward_server.cloned(alerts_template) as database:
        yield database.dsn


@pytest.fixture
def place(onceward_kit, tmp_path):
    onceward_kit.clock.pin(EVENING)
    with Place(onceward_kit, tmp_path) as place:
        yield place


@pytest.fixture(scope="session", autouse=True)
def files_of_this_session(tmp_path_factory):
    """What samples write, and what synchronisations read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALERTS_SYNC_FILES", str(tmp_path_factory.mktemp("files")))
        yield
