"""Addresses, texts, tokens and URLs appear nowhere but in the content: not in a log, an error, a job, an attempt, a view."""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import replace

import psycopg
import pytest
import structlog

from onceward import Onceward
from onceward.deliveries import Deliveries, Resend, Slack, Telegram, Webhooks
from tests.deliveries.conftest import SHORT
from tests.deliveries.test_webhook import SECRET

pytestmark = pytest.mark.slow
CANARY = "canary7391"
MAIL_COMMANDS = (
    "", "rcpt_450", "rcpt_550", "data_451", "data_552", "drop_at_data", "drop_after_dot", "hang_rcpt", "hang_after_dot",
)  # fmt: skip
HTTP_COMMANDS = ("fine", "s400", "s401", "s422", "s429", "s500", "s502", "redirect", "drop", "hang")


@pytest.fixture
def log(caplog, monkeypatch):
    """Everything that anybody logs, also what nobody would usually see."""
    lines: list[str] = []
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "asyncio", "mail.log"):
        caplog.set_level(logging.DEBUG, name)

    def take(_logger, _name, event):
        lines.append(str(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, take], cache_logger_on_first_use=False
    )
    # Loggers that were used before keep the configuration of then.
    for name, module in list(sys.modules.items()):
        if name.startswith("onceward") and hasattr(module, "log"):
            monkeypatch.setattr(module, "log", structlog.get_logger(name))
    yield (
        lambda: (
            lines
            + [
                # What the sinks say is theirs.
                record.getMessage()
                + "".join(traceback.format_exception(*record.exc_info) if record.exc_info else [])
                for record in caplog.records
                if record.name != "mail.log"
            ]
        )
    )
    structlog.configure(**before)


def test_nothing_private_leaves_the_content(onceward_kit, smtp, mail_sink, http_sink, log, capfd):
    app = Onceward()
    Deliveries(
        app,
        email=replace(smtp, timeout=SHORT, user=None),
        slack=Slack({"default": f"{http_sink.url}/{CANARY}"}, SHORT),
        telegram=Telegram(f"1:{CANARY}", http_sink.url, SHORT),
        webhook=Webhooks({"default": SECRET}, allow_private=True, timeout=SHORT),
        alerts_to={"kind": "email", "content": {"to": f"{CANARY}@example.com"}},
        environ={},
    )
    ledger = onceward_kit.client(app).deliveries
    for command in MAIL_COMMANDS:
        ledger.email(
            to=f"{CANARY} <{CANARY}+{command or 'fine'}@example.com>", subject=CANARY, text=CANARY, html=CANARY,
            reply_to=f"{CANARY}@example.com", key=f"mail {command}",
        )  # fmt: skip
    for command in HTTP_COMMANDS:
        ledger.slack(text=f"{CANARY} #{command}", key=f"slack {command}")
        ledger.telegram(chat_id=f"@{CANARY}", text=f"{CANARY} #{command}", key=f"telegram {command}")
        url = f"{http_sink.url}/{CANARY}?do={command}"
        ledger.webhook(url=url, payload={"secret": CANARY}, key=f"webhook {command}")

    for _ in range(3):
        onceward_kit.drain(app)
        onceward_kit.clock.advance("5 hours")

    with psycopg.connect(onceward_kit.dsn) as conn:
        tables = conn.execute(
            "select relname from pg_class where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p', 'v') "
            "   and relname <> 'delivery_content_private'"
        ).fetchall()
        stored = [
            str(row)
            for (table,) in tables
            for row in conn.execute(f"select t::text from onceward.{table} as t")
        ]
        states = dict(
            conn.execute("select state, count(*) from onceward.deliveries where not is_alert group by 1")
        )
    printed = capfd.readouterr()
    shown = [*log(), printed.out, printed.err, *stored]
    # The test has seen something: each way of ending, and the logs of the libraries.
    assert set(states) >= {"sent", "uncertain", "abandoned"}
    assert any("delivery_not_sent" in line for line in shown)
    assert [line for line in shown if CANARY in line] == []


def test_the_key_of_resend_and_what_it_echoes_stay_private(onceward_kit, http_sink, log):
    app = Onceward()
    Deliveries(app, email=Resend(CANARY, "s@example.com", http_sink.url, SHORT), environ={})
    client = onceward_kit.client(app)
    made = [
        client.deliveries.email(
            to=f"{CANARY}@example.com", subject=f"{CANARY} #{command}", text=CANARY, key=command
        )
        for command in HTTP_COMMANDS
    ]

    onceward_kit.drain(app)

    shown = [*log(), *(str(client.job(one.id)) + str(client.attempts(one.id)) for one in made)]
    assert any("delivery_not_sent" in line for line in shown)
    assert [line for line in shown if CANARY in line] == []
