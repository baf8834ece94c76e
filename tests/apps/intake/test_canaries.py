"""A thousand canaries in names, pages and facts: none in a log, a metric, an error, an audit message, or any table of the engine."""

from __future__ import annotations

import json
import logging
import sys

import pytest
import structlog

from onceward import calls
from onceward.client import Client
from tests.apps.intake.stage import AUDIT, png

WORDS = [f"CANARY{number:04d}" for number in range(1000)]


@pytest.fixture
def log(caplog, monkeypatch):
    """Every line that is logged, at any level."""
    lines: list[str] = []
    caplog.set_level(logging.DEBUG)
    for noisy in ("httpx", "httpcore", "asyncio"):
        caplog.set_level(logging.WARNING, noisy)

    def take(_logger, _name, event):
        lines.append(json.dumps(event, default=str))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level,
                    structlog.processors.format_exc_info, take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=False,
    )  # fmt: skip
    for name, module in list(sys.modules.items()):
        if name.startswith("onceward") and hasattr(module, "log"):
            monkeypatch.setattr(module, "log", structlog.get_logger(name))
    yield lambda: lines + [record.getMessage() for record in caplog.records]
    structlog.configure(**before)


def test_a_thousand_canaries_stay_where_they_belong(intake, door, log):
    intake.clock.pin()
    intake.conn.execute("update intake.user_profiles set display_name = 'CANARY of a name'")
    answers = []
    for number in range(10):
        words = WORDS[number * 100 : number * 100 + 100]
        answers.append(
            door.upload(png(" ".join(words)), filename=f"{words[0]} {words[1]}.png", key=f"key-{number}")
        )
    assert {answer.status_code for answer in answers} == {201}
    # Whatever goes wrong quotes what it was about.
    echo = " ".join(WORDS[:50])
    intake.reading.trouble = [RuntimeError(echo), ValueError(echo)]
    intake.reading.extractor.trouble = [RuntimeError(echo), TimeoutError(echo), OSError(echo)]
    # And so does the database.
    intake.conn.execute(
        "alter table intake.clinical_facts add constraint not_this check (name not like 'CANARY03%%')"
    )
    for _ in range(9):
        intake.drain()
        intake.clock.advance("80 s")
    assert intake.one("select count(*) from intake.shell_files where status = 'completed'") == 9
    assert intake.one("select count(*) from intake.shell_files where status = 'failed'") == 1
    assert intake.one("select count(*) from intake.ocr_words where content like 'CANARY%%'") == 1000

    # What is refused does not repeat it either.
    answers.append(door.upload(b"CANARY and no picture, of some length", filename="CANARY.png"))
    answers.append(door.upload(png("CANARY"), filename="CANARY.pdf"))
    answers.append(door.upload(png("CANARY other"), key="key-1"))
    token = {"authorization": f"Bearer {intake.token()}"}
    answers.append(
        door.http.post(AUDIT, json={"table_name": "CANARY", "record_id": "CANARY X"}, headers=token)
    )
    assert {answer.status_code for answer in answers[10:]} == {415, 409, 422}
    assert [answer.text for answer in answers if "CANARY" in answer.text] == []

    assert [line for line in log() if "CANARY" in line] == []
    with Client(intake.dsn, tenant="*") as client:
        assert "CANARY" not in repr(client.run(calls.metrics()))
    tables = intake.all(
        "select c.relname from pg_class as c where c.relnamespace = 'onceward'::regnamespace and c.relkind in ('r', 'p')"
    )
    for (table,) in tables:
        assert (
            intake.one(f"select count(*) from onceward.{table} as t where t::text like '%%CANARY%%'") == 0
        ), table
    errors = intake.all(
        "select processing_error::text from intake.shell_files where processing_error is not null"
    )
    assert errors
    assert "CANARY" not in str(errors)
