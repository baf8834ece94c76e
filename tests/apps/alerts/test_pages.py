"""The pages with the sample companies: looked at in a real browser, on a desk and on a phone, light and dark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from onceward_apps.alerts import sample
from tests.apps.alerts.place import Place
from tests.web.conftest import Site, chromium  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.browser] if False else pytest.mark.slow
SHOTS = Path(os.environ.get("ONCEWARD_TEST_SHOTS", ".pytest_cache/shots")) / "alerts"
PAGES = ("", "decisions", "outcomes", "runs", "health", "errors", "errors?settled=1", "scheduling")


@pytest.fixture
def filled(onceward_kit, tmp_path):
    place = Place(onceward_kit, tmp_path)
    place.conn.execute("delete from alerts.tenants")
    sample.fill(onceward_kit.dsn, place.functions)
    place.work()
    return place
