from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from onceward.deliveries import Outgoing, Smtp
from tests.deliveries.sinks import HttpSink, MailSink

# For receivers that hang; whatever is to succeed may take longer on a busy machine.
SHORT, LONG = timedelta(seconds=0.4), timedelta(seconds=30)
MAIL = {"to": "jane@example.com", "subject": "Welcome", "text": "Hello Jane"}


@pytest.fixture
def mail_sink():
    with MailSink() as sink:
        yield sink


@pytest.fixture
def http_sink():
    with HttpSink() as sink:
        yield sink


@pytest.fixture
def smtp(mail_sink):
    return Smtp("127.0.0.1", mail_sink.port, "none", sender="Shop <shop@example.com>", timeout=LONG)


def outgoing(content=None, *, kind="email", **given) -> Outgoing:
    now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    values = {
        "id": uuid.UUID(int=7), "kind": kind, "key": "k", "tenant": "default", "content": content or MAIL, "tries": 1,
        "first_try_at": now, "sending_at": now + timedelta(hours=1), **given,
    }  # fmt: skip
    return Outgoing(**values)


def send(provider, content=None, **given):
    return asyncio.run(provider.send(outgoing(content, **given)))
