from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import pytest
import structlog

from onceward.web import WebSettings
from onceward_apps.kit import schema
from onceward_apps.meals.section import section
from tests.apps.meals.place import Place
from tests.deliveries.sinks import HttpSink, MailSink
from tests.web.conftest import Site

# A Monday in California, at nine in the morning.
MONDAY = datetime(2026, 11, 16, 17, 0, tzinfo=UTC)


@pytest.fixture
def mail_sink():
    with MailSink() as sink:
        yield sink


@pytest.fixture
def chat_sink():
    with HttpSink() as sink:
        sink.reply = {"ok": True, "result": {"message_id": 7}}
        yield sink


@pytest.fixture(scope="session")
def meals_template(onceward_server):
    """The schema, installed once."""
    with onceward_server.cloned() as template:
        schema.install(template.dsn, "meals", "meals")
        yield template


@pytest.fixture
def onceward_database(onceward_server, meals_template):
    with onceward_server.cloned(meals_template) as database:
        yield database.dsn


@pytest.fixture
def place(onceward_kit, mail_sink, chat_sink):
    """The system on a database of its own, with a mail server and a Telegram that record what arrives."""
    onceward_kit.clock.pin(MONDAY)
    with Place(onceward_kit, mail_sink, chat_sink) as place:
        yield place


@pytest.fixture
def log(caplog, monkeypatch):
    """Every structured line that is logged, as JSON."""
    lines: list[str] = []
    caplog.set_level(logging.DEBUG)

    def take(_logger, _name, event):
        lines.append(json.dumps(event, default=str))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=False,
    )
    # Loggers that were used before keep the configuration of then.
    for name, module in list(sys.modules.items()):
        if name.startswith("onceward") and hasattr(module, "log"):
            monkeypatch.setattr(module, "log", structlog.get_logger(name))
    yield lambda: lines + [record.getMessage() for record in caplog.records if record.name != "mail.log"]
    structlog.configure(**before)


class _Books:
    """What a site needs of a test's database."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.dsn = place.kit.dsn

    def run(self, statement: str, *parameters: object) -> None:
        self._place.conn.execute(statement, parameters or None)


@pytest.fixture
def site(place):
    """The system among the engine's pages, on a real server."""
    sections = [section(place.app, place.meals)]
    site = Site(_Books(place), WebSettings(dsn=place.kit.dsn, apps=(place.app,), sections=sections))
    yield site
    site.close()


@pytest.fixture
def ana(site):
    return site.signed_in()
